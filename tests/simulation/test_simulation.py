"""Episodes of simulation: some the same in each run, thousands of others in CI's; and what it would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from seqmark.in_memory.cluster import MemoryCluster
from tests.simulation.brokers.episode import WorkerEpisode
from tests.simulation.run import KINDS, run
from tests.support.suite import extent

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST, EPISODES, CPU_S = 700_008, len(KINDS), 60.0
NOTICED_S = 60.0
PARTS, PART_S = 8, 30.0
"""What a run of CI simulates, in CPU seconds: so that several processes share it."""


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def always_commits(before: Callable[..., None]) -> Callable[..., None]:
    """Have each transaction end by a commit, also what a fence finds open."""

    def finish(self: MemoryCluster, owner: object, *, commit: bool) -> None:
        del commit
        before(self, owner, commit=True)

    return finish


def keeps_its_owner(before: Callable[..., object]) -> Callable[..., object]:
    """Have whoever fences share the id with the owner before."""

    def fence(self: MemoryCluster, transactional_id: str) -> object:
        return self._owners.get(transactional_id) or before(self, transactional_id)

    return fence


def test_no_record_is_lost_or_repeated_whatever_goes_wrong() -> None:
    totals = run(FIRST, CPU_S, EPISODES)
    assert totals.kills > totals.episodes, totals


@pytest.mark.core
@pytest.mark.parametrize("part", range(PARTS))
def test_nor_in_episodes_that_nobody_has_seen(request: pytest.FixtureRequest, part: int) -> None:
    # Of the first kind: those over brokers have not run long enough to be drawn (`make sim` does).
    totals = run((extent.seed(request.config) * PARTS + part) << 20, PART_S, step=len(KINDS))
    extent.note(request.config, f"simulation, part {part}: {totals}")


def test_the_seed_alone_says_what_happens() -> None:
    def left(seed: int) -> dict[object, object]:
        episode = KINDS[seed % len(KINDS)](seed)
        outcome = episode.run()
        cluster = episode.brokers if isinstance(episode, WorkerEpisode) else episode.cluster
        return {"outcome": outcome, **{tp: log.fetch(0, 2**62) for tp, log in cluster.logs.items()}}

    for seed in map(KINDS.index, dict.fromkeys(KINDS)):
        assert left(seed) == left(seed)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("add_offsets", lambda _: nothing),
        ("_finish", always_commits),
        ("fence", keeps_its_owner),
    ],
)
def test_what_a_cluster_must_not_do_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, mistake: Callable[..., Callable[..., object]]
) -> None:
    monkeypatch.setattr(MemoryCluster, name, mistake(getattr(MemoryCluster, name)))
    with pytest.raises((AssertionError, KeyError, StopError)) as caught:
        run(0, NOTICED_S)
    assert "--seed" in caught.value.__notes__[0]
