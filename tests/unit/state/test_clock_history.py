"""Is it known what the clock read, from where on, and is a state whole that a reset has written anew?"""

from __future__ import annotations

import pytest

from processor.engine.ids.clock import NEVER
from processor.engine.verdict import Verdict
from processor.errors import StopError
from processor.judges import ids as judges_ids
from processor.state.ids import id_log
from processor.state.kv.store import MemoryStore
from schemas.changelog.clock import NO_LIMIT
from schemas.changelog.ids import ID_BLOCK_KIND, IDS_KEY, ORIGIN_COPY_KEY, IdState
from schemas.changelog.position import Origin
from tests.support.judges.id_state import AHEAD_MS, NOW_MS, Came, IdPartition

HOUR_MS = 3_600_000
MOST_MS = NOW_MS + AHEAD_MS
EACH = 400


def ids(start: int, stop: int, timestamp: int = NOW_MS) -> list[Came]:
    return [Came(b"id-%d" % number, timestamp) for number in range(start, stop)]


def took(partition: IdPartition, some: list[Came]) -> list[int]:
    verdict: list[int] = partition.take(some).verdict.tolist()
    partition.commit()
    return verdict


def moved_on(partition: IdPartition, commits: int) -> None:
    """Let all that was there expire, and be deleted from the changelog."""
    for number in range(1, commits + 1):
        partition.now_ms += HOUR_MS
        took(partition, ids(number * 10_000, number * 10_000 + EACH, partition.now_ms))
        partition.trim()
    assert partition.changelog.start > 0


@pytest.fixture(autouse=True)
def _few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each commit have a place of its own, so that every expired one is deleted."""
    monkeypatch.setattr(id_log, "ENTRY_IDS", EACH)


def test_where_timestamps_alone_move_the_clock_all_is_known_whatever_was_deleted() -> None:
    partition = IdPartition(window=HOUR_MS)
    took(partition, ids(0, EACH))
    moved_on(partition, 5)
    noted = partition.recording()
    assert (noted.known_from, noted.before_ms, noted.limits()) == (0, NEVER, [])
    assert noted.position == partition.next_offset


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_worker_has_bounded_is_known_until_it_is_deleted(restarts: bool) -> None:  # noqa: FBT001
    partition = IdPartition(window=HOUR_MS)
    took(partition, ids(0, 2))
    took(partition, [*ids(2, 3), Came(b"future", 10**15), *ids(3, 4)])
    took(partition, ids(4, 6))
    noted = partition.recording()
    assert noted.known_from == 0
    assert noted.limits() == [(2, MOST_MS), (5, NO_LIMIT)]

    moved_on(partition, 3)
    if restarts:
        partition.open()
        took(partition, ids(50_000, 50_000 + EACH, partition.now_ms))
        partition.open(MemoryStore())
        took(partition, ids(60_000, 60_000 + EACH, partition.now_ms))
    moved_on(partition, 3)
    noted = partition.recording()
    assert (noted.known_from, noted.before_ms, noted.limits()) == (5, MOST_MS, [])


def test_by_arrival_it_is_known_as_far_back_as_there_are_commits() -> None:
    partition = IdPartition(window=HOUR_MS, time="arrival")
    took(partition, ids(0, EACH))
    took(partition, ids(0, EACH))
    partition.now_ms += 7
    took(partition, ids(0, EACH))
    noted = partition.recording()
    assert noted.known_from == 0
    assert noted.limits() == [(0, NOW_MS), (2 * EACH, NOW_MS + 7)]
    moved_on(partition, 3)
    noted = partition.recording()
    assert noted.known_from is not None
    assert noted.known_from > 2 * EACH
    assert noted.known_from == partition.next_offset - EACH


def test_a_state_of_before_says_nothing_of_the_clock() -> None:
    partition = IdPartition(window=HOUR_MS)
    took(partition, ids(0, EACH))
    (at,) = partition.changelog.offsets(IDS_KEY)
    row = partition.changelog.rows[at]
    assert row is not None
    state = IdState.decode(row[1] or b"")
    partition.changelog.rows[at] = (
        IDS_KEY,
        IdState(state.secret, state.clock_ms, state.next_number, state.floor).encode(),
    )
    noted = partition.recording()
    assert (noted.known_from, noted.before_ms) == (EACH, NOW_MS)


def test_a_corrupt_state_is_named() -> None:
    partition = IdPartition(window=HOUR_MS)
    took(partition, ids(0, 1))
    (at,) = partition.changelog.offsets(IDS_KEY)
    partition.changelog.rows[at] = (IDS_KEY, b"\2none")
    with pytest.raises(StopError, match="restore the topic from a copy"):
        partition.recording()


def test_a_corrupt_state_in_front_of_an_origin_does_not_count() -> None:
    partition = IdPartition(window=HOUR_MS)
    took(partition, ids(0, 1))
    took(partition, [Came(b"future", 10**15), *ids(1, 2)])
    partition.restate(Origin(partition.next_offset, 0))
    before = partition.recording()
    at = partition.changelog.offsets(IDS_KEY)[0]
    partition.changelog.rows[at] = (IDS_KEY, b"\2none")
    noted = partition.recording()
    assert (noted.known_from, noted.limits(), noted.position) == (0, before.limits(), partition.next_offset)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_state_that_is_written_anew_is_whole_and_goes_on(trimmed: bool) -> None:  # noqa: FBT001
    partition = IdPartition(window=HOUR_MS)
    partition.limit_bytes = 20_000
    took(partition, [*ids(0, 50), Came(b"future", 10**15)])
    if trimmed:
        moved_on(partition, 3)
    took(partition, ids(0, 3 * EACH, partition.now_ms))
    before = len(partition.changelog.rows)

    partition.restate(Origin(partition.next_offset, 0))

    partition.changelog.start = before
    partition.open(MemoryStore())
    assert len([at for at in partition.changelog.offsets(ID_BLOCK_KIND) if at >= before]) > 1
    assert not [at for at in partition.changelog.offsets(ORIGIN_COPY_KEY) if at >= before]
    noted = partition.recording()
    if trimmed:
        assert noted.known_from == partition.next_offset
    else:
        assert (noted.known_from, noted.limits()) == (0, [(0, MOST_MS), (51, NO_LIMIT)])
    assert set(took(partition, ids(0, 3 * EACH, partition.now_ms))) == {Verdict.DUPLICATE}
    assert set(took(partition, ids(0, 3 * EACH, partition.now_ms + 2 * HOUR_MS))) == {Verdict.DUPLICATE}
    moved_on(partition, 4)
    assert set(took(partition, ids(0, EACH, partition.now_ms))) == {Verdict.PASS}


def test_of_a_state_that_is_written_anew_what_expires_is_deleted_block_by_block() -> None:
    partition = IdPartition(window=HOUR_MS)
    partition.limit_bytes = 20_000
    for each in range(8):
        took(partition, ids(each * EACH, (each + 1) * EACH, NOW_MS + each * HOUR_MS // 8))
        partition.now_ms += HOUR_MS // 8
    before = len(partition.changelog.rows)
    partition.restate(Origin(partition.next_offset, 0))
    blocks = [at for at in partition.changelog.offsets(ID_BLOCK_KIND) if at >= before]
    partition.changelog.start = before
    partition.open(MemoryStore())
    partition.now_ms += HOUR_MS
    took(partition, [Came(b"another", NOW_MS + HOUR_MS * 3 // 2)])
    took(partition, [Came(b"one more", NOW_MS + HOUR_MS * 3 // 2)])
    assert partition.trim()
    assert blocks[0] < partition.changelog.start < blocks[-1]
    partition.open(MemoryStore())
    assert set(took(partition, ids(5 * EACH, 8 * EACH, NOW_MS))) == {Verdict.DUPLICATE}
    assert set(took(partition, ids(0, 4 * EACH, NOW_MS))) == {Verdict.PASS}


def test_more_limits_than_a_commit_can_say_are_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges_ids, "MOST_LIMITS", 2)
    partition = IdPartition(window=HOUR_MS, time="arrival")
    for each in range(3):
        partition.now_ms += 1
        partition.take(ids(each, each + 1))
    partition.commit()
    noted = partition.recording()
    assert (noted.known_from, noted.before_ms, noted.limits()) == (3, NOW_MS + 3, [])
    partition.now_ms += 1
    took(partition, ids(5, 6))
    noted = partition.recording()
    assert (noted.known_from, noted.limits()) == (3, [(3, NOW_MS + 4)])
    partition.restate(Origin(partition.next_offset, 0))
    assert partition.recording().known_from == 4


def test_a_state_without_living_ids_is_written_anew_with_its_clock() -> None:
    partition = IdPartition(window=1)
    took(partition, ids(0, EACH))
    took(partition, [Came(b"another", NOW_MS + 100)])
    took(partition, [Came(None, NOW_MS)])
    partition.restate(Origin(partition.next_offset, 0))
    partition.open(MemoryStore())
    assert took(partition, [Came(b"another", NOW_MS), Came(b"id-0", NOW_MS)]) == [
        Verdict.DUPLICATE,
        Verdict.PASS,
    ]
