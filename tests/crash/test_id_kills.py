"""Ids, their owners and their readings survive every kill, also while they expire.

Ids are kept otherwise than watermarks: blocks of a commit's ids in the changelog, pages of them in the local
store, an index in memory that is made again at each start. The window is a second of the stream, some 10,000
records, so that ids expire all the time; the index begins with 64 slots, so that it grows all the time too.
Where ids collide their variants are kept, their notes and their new ids are judged too.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep, Restoring
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.members import Members
from tests.support.worker.crash import READY, Scene, seeded
from tests.support.worker.id_feed import COLLISIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

FIRST_RECORDS = 6_000
KILLS, ALL_KILLS = 2, 6
FEW = 100
"""Collisions of a partition: there are hundreds."""
PLAIN, RENEWING = IdRules(window="1s"), IdRules(window="1s", refresh=True)
# A bucket has some 9,000 ids: it outgrows filters of 2,000. Those of 300,000 take several commits to be
# written, and kills come in the middle of it.
SMALL, LARGE = (
    IdRules(window="1s", bloom={"bucket": "1s", "expected_per_bucket": ids, "false_positive_rate": 1e-12})
    for ids in (2000, 300_000)
)
COLLIDING = replace(COLLISIONS, window="1s", refresh=True)
KEPT = replace(COLLIDING, refresh=False, rename={"to": "/id", "keep": "/was"})
RULES: dict[str, IdRules] = {
    "plain": PLAIN,
    "refresh": RENEWING,
    "bloom": SMALL,
    "large": LARGE,
    "colliding": COLLIDING,
    "kept": KEPT,
}
MOMENTS: dict[str, CommitStep | Restoring] = {each.value: each for each in (*CommitStep, *Restoring)}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers write filters and pages of a bucket's 9,000 ids with several commits; see above."""
    monkeypatch.setenv("SEQMARK_TEST_SEGMENT_BITS", "3")
    monkeypatch.setenv("SEQMARK_TEST_SNAPSHOT_IDS", "0")
    # Ten commits or so; files are begun and go all the time.
    monkeypatch.setenv("SEQMARK_TEST_PAGE_FILE_BYTES", "65536")


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.drawn("moment")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_after_a_step_or_in_a_restore_loses_and_repeats_no_id_and_no_variant(
    broker: Broker, tmp_path: Path, moment: str, rules: str
) -> None:
    when = MOMENTS[moment]
    if isinstance(when, Restoring):
        kill_restores(when, broker, tmp_path, RULES[rules])
    else:
        kill_after(when, broker, tmp_path, RULES[rules])


def kill_after(step: CommitStep, broker: Broker, tmp_path: Path, rules: IdRules) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, rules=rules) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        # The first commit holds the positions, the second the first records: the third has something before it.
        times = dice.randrange(3, 8)
        with feed:
            worker = scene.worker(fault=f"{step}:{times}")
            assert worker.wait() == -signal.SIGKILL, f"{step} was not reached {times} times:\n{worker.stderr}"
        feed.send_again()
        feed.send(100)

        scene.drain()

        truth = scene.assert_exactly_once()
        assert sum(len(part.passed) for part in truth) > FIRST_RECORDS // 2
        assert all(part.quarantined for part in truth)
        collided = [part.outcomes.verdicts.count("collision") for part in truth]
        assert all(count > FEW for count in collided) == isinstance(rules, FingerprintRules), collided


def kill_restores(moment: Restoring, broker: Broker, tmp_path: Path, rules: IdRules) -> None:
    dice = seeded()
    # From the local state of the one that was killed first, or from the changelog alone, later ones from what
    # the killed restores have left.
    state = "a" if moment is Restoring.LOADED else "anew"
    with Scene(broker.bootstrap_servers, tmp_path, rules=rules) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        with feed:
            worker = scene.worker(fault=f"{CommitStep.ENDED}:{dice.randrange(10, 20)}")
            assert worker.wait() == -signal.SIGKILL, worker.stderr
            for times in (1, 2, 1):
                worker = scene.worker(state=state, fault=f"{moment}:{times}")
                assert worker.wait() == -signal.SIGKILL, worker.stderr
                assert READY not in worker.stderr
        feed.send_again()

        scene.drain(state=state)

        scene.assert_exactly_once()


@pytest.mark.timeout(900)
@pytest.mark.drawn("rules")
@pytest.mark.parametrize("rules", ["plain", "bloom", "large"])
def test_kills_at_random_lose_and_repeat_no_id(
    broker: Broker, tmp_path: Path, rules: str, *, whole: bool
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, rules=RULES[rules], slots=2) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        with feed:
            Members(scene, dice).kill_many(ALL_KILLS if whole else KILLS)
        feed.send_again()

        scene.drain("c")

        scene.assert_exactly_once()
