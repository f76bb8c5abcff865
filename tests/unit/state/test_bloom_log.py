"""Bloom filters survive a restart, by the disk and what is read again; what is wrong there is found."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from processor.engine.ids.bloom import snapshot as bloom_snapshot
from processor.engine.verdict import Verdict
from processor.errors import StopError
from processor.state.ids import bloom_log, id_log
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from schemas.changelog.bloom import PIECE_KIND, SNAPSHOT_KEY, BloomSnapshot, KeptFilter
from schemas.changelog.ids import ID_BLOCK_KIND, ID_PAGE_KIND, IDS_KEY
from schemas.changelog.values import CorruptStateError
from tests.support.judges.id_state import NOW_MS, Came, IdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_MS = 3_600_000
EACH = 100
"""Ids of a commit."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut filters of some KB into pieces, so that a snapshot takes several commits."""
    monkeypatch.setattr(bloom_snapshot, "PIECE_WORDS", 128)
    monkeypatch.setattr(bloom_log, "BYTES_A_COMMIT", 2048)
    monkeypatch.setattr(bloom_log, "LEAST_IDS", 0)
    monkeypatch.setattr(id_log, "ENTRY_IDS", EACH)


def ids(start: int, stop: int, timestamp: int = NOW_MS) -> list[Came]:
    return [Came(b"id-%d" % number, timestamp) for number in range(start, stop)]


def verdicts(partition: IdPartition, some: list[Came]) -> set[int]:
    return set(partition.take(some).verdict.tolist())


def begun(*, window_ms: int = HOUR_MS, rate: float = 1e-12, refresh: bool = False, **more: Any) -> IdPartition:
    options = {"bucket": 1, "expected_per_bucket": 500, "false_positive_rate": rate, **more}
    return IdPartition(window=window_ms, backend="bloom", bloom=options, refresh=refresh)


def filled(*, commits: int = 8, window_ms: int = HOUR_MS, bucket: int = HOUR_MS) -> IdPartition:
    """Return a partition with an empty commit, as each begins, and some of ids, a millisecond apart."""
    partition = begun(window_ms=window_ms, bucket=bucket)
    partition.commit()
    for number in range(commits):
        partition.take(ids(EACH * number, EACH * (number + 1), NOW_MS + number))
        partition.commit()
    return partition


def kept(partition: IdPartition, kind: bytes) -> list[bytes]:
    return [key for key, _ in partition.store.items(kind)]


def snapshot(partition: IdPartition) -> BloomSnapshot:
    return BloomSnapshot.decode(partition.store.get(SNAPSHOT_KEY) or b"")


def test_a_snapshot_is_what_was_written() -> None:
    filters = (KeptFilter(-3, 0, 5, 1), KeptFilter(2**40, 7, 2**40, 9))
    for some in ((), filters):
        value = BloomSnapshot(17, 4, some).encode()
        assert BloomSnapshot.decode(value) == BloomSnapshot(17, 4, some)
        for at in range(len(value)):
            flipped = bytearray(value)
            flipped[at] ^= 1
            with pytest.raises(CorruptStateError):
                BloomSnapshot.decode(bytes(flipped))
        for wrong in (b"", value[:-1], value[:10], value + bytes(26)):
            with pytest.raises(CorruptStateError):
                BloomSnapshot.decode(wrong)


@pytest.mark.parametrize("refresh", [False, True], ids=["kept", "renewed"])
def test_restarts_do_not_raise_the_rate(refresh: bool) -> None:  # noqa: FBT001 - a parameter
    # What was written of a filter after its last snapshot counts: it would be filled a second time.
    bloom = {"bucket": HOUR_MS, "expected_per_bucket": 2000, "false_positive_rate": 0.01}
    partition = IdPartition(window=HOUR_MS, refresh=refresh, backend="bloom", bloom=bloom)
    partition.commit()
    for number in range(240):
        partition.take(ids(50 * number, 50 * (number + 1)))
        partition.commit()
        if number % 3 == 2:
            partition.open()
    rate = partition.judge.take_clock_stats().false_positive_rate
    assert rate is not None
    # 12,000 ids: some 0.006. With two or three times as many in a filter as it is for it would be 0.1.
    assert 0 < rate < 0.01


def test_ids_stand_in_the_changelog_in_blocks_and_locally_not_at_all() -> None:
    partition = filled()
    assert len(partition.changelog.offsets(ID_BLOCK_KIND)) == 8
    assert not kept(partition, ID_PAGE_KIND)
    assert kept(partition, PIECE_KIND)


def test_a_restart_reads_filters_from_the_disk_and_of_the_changelog_what_they_lack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = filled()
    # The snapshot lags: it takes several commits.
    assert 1 < snapshot(partition).next_number < 1 + 8 * EACH
    first = snapshot(partition).changelog_offset
    assert first > partition.changelog.offsets(ID_BLOCK_KIND)[3]
    # All in front of it can be deleted: it is not read again.
    for at in range(first):
        partition.changelog.rows[at] = None
    partition.open()
    assert verdicts(partition, ids(0, 8 * EACH)) == {Verdict.DUPLICATE}
    assert verdicts(partition, ids(8 * EACH, 9 * EACH)) == {Verdict.PASS}
    assert "anew" not in caplog.text


def test_a_restart_counts_no_id_twice() -> None:
    partition = filled()
    for _ in range(3):
        partition.open()
        assert partition.judge.size()[0] == 8 * EACH


def test_ids_that_are_renewed_again_and_again_take_no_more_room_after_a_restart() -> None:
    bloom = {"bucket": HOUR_MS, "expected_per_bucket": 500}
    partition = IdPartition(window=HOUR_MS, backend="bloom", bloom=bloom, refresh=True)
    for number in range(30):
        partition.take(ids(0, EACH, NOW_MS + number))
        partition.commit()
    assert partition.judge.size()[0] == EACH
    partition.open(MemoryStore())
    assert partition.judge.size()[0] == EACH
    assert verdicts(partition, ids(0, EACH)) == {Verdict.DUPLICATE}


def test_pieces_of_a_filter_that_is_not_finished_say_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = filled(commits=1)
    (end,) = partition.changelog.offsets(ID_BLOCK_KIND)
    assert snapshot(partition).changelog_offset <= end
    assert len(kept(partition, PIECE_KIND)) == 2
    partition.open()
    assert verdicts(partition, ids(0, EACH)) == {Verdict.DUPLICATE}
    assert "anew" not in caplog.text


def test_what_is_of_a_bucket_that_is_dropped_is_deleted_locally_and_in_the_changelog() -> None:
    partition = filled(window_ms=2, bucket=1)
    first = PIECE_KIND + (NOW_MS + 5 + 2**63).to_bytes(8, "big")
    assert all(key >= first for key in kept(partition, PIECE_KIND))
    assert partition.trim()
    assert partition.changelog.start > partition.changelog.offsets(ID_BLOCK_KIND)[3]
    partition.open(MemoryStore())
    assert verdicts(partition, ids(6 * EACH, 8 * EACH, NOW_MS)) == {Verdict.DUPLICATE}
    assert verdicts(partition, ids(0, 4 * EACH, NOW_MS)) == {Verdict.PASS}


def test_what_is_of_a_bucket_that_lives_is_not_deleted() -> None:
    partition = filled(window_ms=3, bucket=1)
    oldest = PIECE_KIND + (NOW_MS + 5 + 2**63).to_bytes(8, "big")
    assert any(key.startswith(oldest) for key in kept(partition, PIECE_KIND))
    assert verdicts(partition, ids(5 * EACH, 8 * EACH, NOW_MS)) == {Verdict.DUPLICATE}


def lose_a_piece(store: MemoryStore) -> None:
    store.write({next(iter(store.items(PIECE_KIND)))[0]: None})


def flip_a_piece(store: MemoryStore) -> None:
    key, piece = next(iter(store.items(PIECE_KIND)))
    store.write({key: piece[:-1] + bytes([piece[-1] ^ 1])})


def flip_the_snapshot(store: MemoryStore) -> None:
    value = store.get(SNAPSHOT_KEY) or b""
    store.write({SNAPSHOT_KEY: value[:-1] + bytes([value[-1] ^ 1])})


def lose_the_state(store: MemoryStore) -> None:
    store.write({IDS_KEY: None})


@pytest.mark.parametrize("damage", [lose_a_piece, flip_a_piece, flip_the_snapshot, lose_the_state])
def test_a_local_state_that_is_not_whole_is_found_at_the_start_and_read_anew(
    damage: Callable[[MemoryStore], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = filled()
    assert snapshot(partition).filters
    assert isinstance(partition.store, MemoryStore)
    damage(partition.store)
    partition.open()
    assert "reading it again" in caplog.text
    assert verdicts(partition, ids(0, 8 * EACH)) == {Verdict.DUPLICATE}


def test_a_lost_snapshot_is_made_again_from_the_changelog(caplog: pytest.LogCaptureFixture) -> None:
    partition = filled()
    partition.store.write({SNAPSHOT_KEY: None})
    partition.open()
    assert verdicts(partition, ids(0, 8 * EACH)) == {Verdict.DUPLICATE}
    assert "corrupt" not in caplog.text


@pytest.mark.parametrize("disk", [True, False])
def test_a_second_restore_of_the_same_table_is_as_the_first(
    disk: bool,  # noqa: FBT001 - a parameter
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = filled()
    if not disk:
        partition.open(MemoryStore())
    asyncio.run(restore(partition.table, partition.changelog, 60, lambda _done, _total: None))
    partition.table.flush()
    assert not caplog.text
    assert partition.judge.size()[0] == 8 * EACH
    assert verdicts(partition, ids(0, 8 * EACH)) == {Verdict.DUPLICATE}


def test_a_block_that_is_missing_in_between_is_refused() -> None:
    partition = filled()
    partition.changelog.rows[partition.changelog.offsets(ID_BLOCK_KIND)[2]] = None
    with pytest.raises(StopError, match="are not there"):
        partition.open(MemoryStore())


def test_a_changelog_in_which_ids_of_living_buckets_are_deleted_is_refused() -> None:
    partition = filled()
    partition.changelog.start = partition.changelog.offsets(ID_BLOCK_KIND)[1]
    with pytest.raises(StopError, match="The local state has them"):
        partition.open()
    with pytest.raises(StopError, match="inside the window"):
        partition.open(MemoryStore())


def test_a_changelog_that_ends_before_what_is_known_is_refused_where_the_snapshot_lags_too() -> None:
    partition = filled()
    at = snapshot(partition).changelog_offset
    assert at < len(partition.changelog.rows) - 2
    del partition.changelog.rows[-2:]
    with pytest.raises(StopError, match="was deleted or cut"):
        partition.open()


def test_the_rate_that_is_shown_is_that_of_the_bits_that_are_set() -> None:
    partition = begun(rate=0.01, bucket=HOUR_MS)
    rates = []
    for number in range(5):
        partition.take(ids(EACH * number, EACH * (number + 1)))
        partition.commit()
        rates.append(partition.judge.take_clock_stats().false_positive_rate or 0.0)
    assert rates == sorted(rates)
    # 0.00375 when it is full, and by chance a tenth more or less.
    assert 0 < rates[0] < 0.001 < rates[-1] < 0.01


def test_nobody_knows_owner_or_expiry() -> None:
    partition = filled()
    judged = partition.take(ids(0, EACH))
    assert judged.owner is not None
    assert set(judged.owner.tolist()) == {-1}
    rows = [row for row in partition.changelog.rows if row is not None and row[0].startswith(ID_BLOCK_KIND)]
    assert sum(len(value or b"") for _, value in rows) < 8 * EACH * 18


def test_a_reset_takes_over_an_id_that_filters_have_renewed_again_and_again() -> None:
    partition = begun(bucket=1, refresh=True)
    partition.now_ms += HOUR_MS
    partition.commit()
    # One id comes with each commit: more often than an index has places for one hash.
    for number in range(400):
        partition.take([Came(b"hot", NOW_MS + number), *ids(number, number + 1)])
        partition.commit()
    partition.open(MemoryStore(), exact=True)
    assert partition.judge.size()[0] == 401
    judged = partition.take([Came(b"hot", NOW_MS + 400), *ids(7, 8), *ids(400, 401)])
    assert judged.verdict.tolist() == [Verdict.DUPLICATE, Verdict.DUPLICATE, Verdict.PASS]
    assert judged.owner is not None
    assert judged.expires_ms is not None
    assert judged.owner.tolist() == [0, 0, -1]
    assert judged.expires_ms.tolist()[:2] == [NOW_MS + 400 + HOUR_MS] * 2
