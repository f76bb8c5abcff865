"""Ids across commits, kills and restores against a naive dictionary with the partition's clock.

What the worker does is done to a judge, a table and a changelog in a list; a kill may come at any point, and
the restart may find the local state, an older one, none, or a changelog that has been deleted up to the first
living id.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids.bloom import snapshot
from processor.engine.ids.clock import NEVER
from processor.engine.verdict import Verdict
from processor.state.ids import bloom_log, exact_log, id_log
from processor.state.kv.store import MemoryStore
from schemas.changelog.position import Origin
from tests.support.judges.id_state import AHEAD_MS, NOW_MS, Came, IdPartition
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step(NamedTuple):
    """Some records in one chunk, how far the worker's clock goes on, and what happens after it."""

    some: list[Came]
    later_ms: int
    then: str


class StateModel(Protocol):
    """What says by a dictionary what is to become of records."""

    def judge(self, offset: int, came: Came, now_ms: int) -> tuple[Verdict, int, int]:
        """Return verdict, owner and expiry of the next record."""
        ...

    def copy(self) -> Self:
        """Return one that goes on by itself."""
        ...


class Dictionary:
    """The contract, sentence by sentence: owner and reading by id."""

    def __init__(self, window_ms: int, *, refresh: bool) -> None:
        self.window_ms, self.refresh = window_ms, refresh
        self.clock, self.ids = NEVER, dict[bytes, tuple[int, int]]()

    def judge(self, offset: int, came: Came, now_ms: int) -> tuple[Verdict, int, int]:
        if came.key is None:
            return Verdict.QUARANTINE, -1, 0
        self.clock = max(self.clock, min(came.timestamp, now_ms + AHEAD_MS))
        owner, reading = self.ids.get(came.key, (-1, NEVER))
        if owner >= 0 and self.clock < reading + self.window_ms:
            reading = self.clock if self.refresh else reading
            self.ids[came.key] = owner, reading
            return Verdict.DUPLICATE, owner, reading + self.window_ms
        self.ids[came.key] = offset, self.clock
        return Verdict.PASS, -1, 0

    def copy(self) -> Self:
        other = copy(self)
        other.ids = dict(self.ids)
        return other


class BucketDictionary(Dictionary):
    """Bloom filters: an id is remembered until all of its bucket is outside the window."""

    def __init__(self, window_ms: int, bucket_ms: int, *, refresh: bool) -> None:
        super().__init__(window_ms, refresh=refresh)
        self.bucket_ms = bucket_ms

    def judge(self, offset: int, came: Came, now_ms: int) -> tuple[Verdict, int, int]:
        if came.key is None:
            return Verdict.QUARANTINE, -1, 0
        self.clock = max(self.clock, min(came.timestamp, now_ms + AHEAD_MS))
        _, reading = self.ids.get(came.key, (-1, NEVER))
        ends = (reading // self.bucket_ms + 1) * self.bucket_ms - 1 + self.window_ms
        known = came.key in self.ids and self.clock < ends
        if not known or self.refresh:
            self.ids[came.key] = offset, self.clock
        return Verdict.DUPLICATE if known else Verdict.PASS, -1, 0


records = st.builds(
    Came,
    st.sampled_from([None, *(b"%d" % number for number in range(25))]),
    st.one_of(st.integers(NOW_MS - 40, NOW_MS + 40), st.integers(NOW_MS - 500, NOW_MS + 800)),
)
ENDS = [
    "go on",
    "commit",
    "commit",
    "killed",
    "killed before it is written locally",
    "without disk",
    "from an older disk",
    "trimmed, without disk",
    "trimmed, from an older disk",
]
steps = st.lists(
    st.builds(Step, st.lists(records, max_size=40), st.sampled_from([0, 1, 30, 400]), st.sampled_from(ENDS)),
    max_size=14,
)


def copied(store: MemoryStore) -> MemoryStore:
    other = MemoryStore()
    other.write(dict(store.items(b"")))
    return other


def go_through(script: Sequence[Step], partition: IdPartition, model: StateModel) -> None:
    """Do what a script says; every verdict has to be the model's, wherever it is killed and restored."""
    # Blocks of a few ids: a commit has several.
    partition.limit_bytes = 400
    partition.commit()
    committed, committed_offset = model.copy(), 0
    older = MemoryStore()
    for step in script:
        partition.now_ms += step.later_ms
        first = partition.next_offset
        expected = [model.judge(first + k, came, partition.now_ms) for k, came in enumerate(step.some)]
        judged = partition.take(step.some)
        assert judged.owner is not None
        assert judged.expires_ms is not None
        said = zip(judged.verdict.tolist(), judged.owner.tolist(), judged.expires_ms.tolist(), strict=True)
        assert list(said) == expected
        if step.then == "go on":
            continue
        assert isinstance(partition.store, MemoryStore)
        if step.then != "killed":
            before = copied(partition.store)
            partition.commit(locally="before" not in step.then)
            committed, committed_offset = model.copy(), partition.next_offset
            if step.then == "commit":
                older = before if len(step.some) % 2 else older
                continue
        if step.then == "reset":
            # Written whole, by the exact backend, behind an origin; nothing local goes on.
            partition.restate(Origin(partition.next_offset, 0))
            partition.open(MemoryStore())
            older = MemoryStore()
            continue
        if "trimmed" in step.then:
            partition.trim()
        if "without" in step.then:
            partition.open(MemoryStore())
        elif "older" in step.then:
            partition.open(copied(older))
        else:
            partition.open()
        model = committed.copy()
        assert partition.next_offset == committed_offset


@examples(150)
@given(steps, st.sampled_from([1, 10, 100, 10_000]), st.booleans(), st.sampled_from([1, 100_000]))
def test_verdicts_owners_and_expiries_are_the_dictionarys_wherever_it_is_killed_and_restored(
    script: list[Step],
    window_ms: int,
    refresh: bool,  # noqa: FBT001 - hypothesis gives it by name
    erased_ids: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_log, "ERASED_IDS", erased_ids)
        patch.setattr(id_log, "ENTRY_IDS", 1 + erased_ids // 1000)
        partition = IdPartition(window=window_ms, refresh=refresh)
        script = [
            step._replace(then="reset") if step.then == "without disk" and n % 2 else step
            for n, step in enumerate(script)
        ]
        go_through(script, partition, Dictionary(window_ms, refresh=refresh))


@examples(150)
@given(
    steps,
    st.sampled_from([1, 10, 100, 10_000]),
    st.sampled_from([1, 3, 50]),
    st.booleans(),
    st.sampled_from([(1, 1), (1, 64), (100, 1), (100, 64)]),
)
def test_bloom_filters_judge_as_the_dictionary_wherever_they_are_killed_and_restored(
    script: list[Step],
    window_ms: int,
    bucket_ms: int,
    refresh: bool,  # noqa: FBT001 - hypothesis gives it by name
    every: tuple[int, int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_log, "ENTRY_IDS", every[0])
        # A snapshot now and then, or with each commit; of several pieces: most are killed in the middle.
        patch.setattr(bloom_log, "BYTES_AN_ID", every[1])
        patch.setattr(snapshot, "PIECE_WORDS", 8)
        patch.setattr(bloom_log, "BYTES_A_COMMIT", 200)
        patch.setattr(bloom_log, "LEAST_IDS", 0)
        # No id is a false positive, whatever the seed.
        bloom = {"bucket": bucket_ms, "expected_per_bucket": 64, "false_positive_rate": 1e-12}
        partition = IdPartition(window=window_ms, refresh=refresh, backend="bloom", bloom=bloom)
        go_through(script, partition, BucketDictionary(window_ms, bucket_ms, refresh=refresh))
