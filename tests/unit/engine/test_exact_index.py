"""The index of ids grows, shrinks, and takes what it says; nobody can choose ids that make it slow."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.bytes.siphash import siphash128, words_of_key
from processor.engine.ids.block import IdRows, decode, encode
from processor.engine.ids.exact import index as exact_index
from processor.engine.ids.exact.bulk_load import SHARE
from processor.engine.ids.exact.hash_table import FULL, LINE, OCCUPIED, SEGMENTS, SPLITS, SPREAD
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.ids.judgement import IdColumns
from processor.engine.ids.page import CandidateRows, Pages
from processor.engine.verdict import Verdict
from tests.support.judges.ids import KEY, ExactPartition, ids_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOUR = 3_600_000


def random_hashes(count: int, seed: int = 1) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), np.uint64)


def fill(index: ExactIndex, hashes: NDArray[np.uint64], chunk: int = 20_000) -> list[float]:
    """Put new ids in, without writing them down; returns bytes an id after each commit."""
    sizes = []
    for start in range(0, len(hashes), chunk):
        some = hashes[start : start + chunk]
        rows = len(some)
        records = IdColumns.of(ids_of(some), np.arange(rows), np.zeros(rows, np.int64))
        wanted = index.look_up(records)
        # Candidates are others with the same first bits: what they are is of no account here.
        other = CandidateRows(
            np.zeros((wanted.row.size, 2), np.uint64), *np.zeros((2, wanted.row.size), np.int64)
        )
        index.judge(records, wanted, other)
        sizes.append(index.size_bytes / len(index))
        first = index.staged().first + np.arange(0, rows, 170)
        index.commit(Pages(first, np.zeros(first.size, np.int64), np.zeros(0, np.int64)), 0)
    return sizes


def chains(index: ExactIndex) -> NDArray[np.int64]:
    """Return how many buckets away from home each id lies, having looked that all buckets between are full."""
    count = int(index._meta[SEGMENTS])
    slots = index._table.slots[: count * index._form[0] * LINE].reshape(count, index._form[0], LINE)
    full = (slots != 0).all(axis=2)
    hops = ((slots >> np.uint64(32)) & np.uint64(15)).astype(np.int64)
    for hop in range(1, 16):
        segment, bucket, _ = np.nonzero((hops >= hop) & (slots != 0))
        assert full[segment, (bucket - hop) % index._form[0]].all()
    assert index._table.used[:count].sum() == np.count_nonzero(slots) == index._meta[OCCUPIED]
    found: NDArray[np.int64] = hops[slots != 0]
    return found


def test_a_million_ids_take_at_most_24_bytes_each_and_never_32() -> None:
    index = ExactIndex(HOUR, refresh=False)
    sizes = fill(index, random_hashes(1_000_000))[20:]
    assert len(index) == 1_000_000
    assert np.mean(sizes) <= 24
    assert max(sizes) <= 32
    assert chains(index).mean() < 0.5


@pytest.mark.parametrize("by_pages", [True, False], ids=["from pages", "from blocks"])
def test_a_restart_makes_the_slots_of_the_run_and_lets_little_wait(
    monkeypatch: pytest.MonkeyPatch, *, by_pages: bool
) -> None:
    # As many as there are when segments begin to be split: with room to spare for all there were twice as many.
    ids, bits, waiting = int((8 << 5 << 3) * (FULL - SPREAD)), 5, 300
    monkeypatch.setattr(exact_index, "WAITING", waiting)
    partition = ExactPartition(10, refresh=False, line_bits=bits)
    hashes = random_hashes(ids)
    for start in range(0, ids, 100):
        some = hashes[start : start + 100]
        partition.judge(ids_of(some), start + np.arange(len(some)), np.zeros(len(some), np.int64))
        partition.commit(0)

    restored = ExactIndex(10, refresh=False, line_bits=bits)
    if by_pages:
        restored.expect(ids)
    waited = []
    for block in partition.blocks:
        rows, _, pages = decode(block, KEY)
        if by_pages:
            ends = pages.at.tolist()
            restored.restore_pages([block[a:b] for a, b in pairwise(ends)], pages.first)
        else:
            restored.restore(rows, pages)
        waited.append(restored._waiting.entries)
    restored.insert()

    assert len(restored) == ids
    assert max(waited) < waiting + ids // SHARE
    segments = [int(index._meta[SEGMENTS]) for index in (partition.index, restored)]
    assert segments[1] <= segments[0] * 1.4, segments


def test_growing_moves_nothing_but_the_extent_that_is_full() -> None:
    index = ExactIndex(HOUR, refresh=False)
    hashes = random_hashes(350_000)
    fill(index, hashes[:300_000])
    size = LINE * index._form[0]
    for start in range(300_000, 350_000, 500):
        before, splits = index._table.slots.copy(), index._meta[SPLITS]
        fill(index, hashes[start : start + 500], 500)
        moved = np.count_nonzero(index._table.slots[: before.size] != before)
        assert moved <= 500 + (index._meta[SPLITS] - splits) * size
    assert index._meta[SPLITS] > 10
    assert index._meta[SPLITS] + 2 == index._meta[SEGMENTS]


@pytest.mark.parametrize("line_bits", [1, 4, 10])
def test_all_ids_are_found_while_extents_split_and_join(line_bits: int) -> None:
    partition = ExactPartition(HOUR, refresh=False, line_bits=line_bits)
    hashes = random_hashes(6_000)
    old, new = ids_of(hashes[:5_000]), ids_of(hashes[5_000:])
    offset, zero = np.arange(5_000), np.zeros(5_000, np.int64)
    assert (partition.judge(old, offset, zero).verdict == Verdict.PASS).all()
    partition.commit(0)
    assert (partition.judge(old, offset, zero).verdict == Verdict.DUPLICATE).all()
    many = partition.index._meta[SEGMENTS]
    # The first 5,000 expire; what came half a window later stays, in fewer segments.
    partition.judge(new, offset[:1_000], zero[:1_000] + HOUR // 2)
    partition.commit(HOUR // 2)
    for _ in range(10):
        partition.index.commit(None, HOUR, sweep=10_000)
        chains(partition.index)
    assert len(partition.index) == 1_000
    assert partition.index._meta[SEGMENTS] == 2 or partition.index._meta[SEGMENTS] < many / 2
    assert (partition.judge(new, offset[:1_000], zero[:1_000] + HOUR).verdict == Verdict.DUPLICATE).all()
    assert (partition.judge(old, offset, zero + HOUR).verdict == Verdict.PASS).all()


def test_a_stream_that_goes_on_for_many_windows_takes_the_room_of_one() -> None:
    partition = ExactPartition(HOUR, refresh=False, line_bits=4)
    sizes = []
    for step in range(60):
        ids = ids_of(random_hashes(1_000, seed=step))
        judged = partition.judge(ids, np.arange(1_000), np.full(1_000, step * HOUR // 10))
        assert (judged.verdict == Verdict.PASS).all()
        partition.commit(step * HOUR // 10, sweep=5)
        sizes.append(partition.index.size_bytes)
        assert len(partition.pages) <= 10 * 7
    chains(partition.index)
    assert max(sizes[20:]) <= 1.5 * max(sizes[:20])


def test_a_dropped_transaction_leaves_no_trace() -> None:
    partition = ExactPartition(HOUR, refresh=True, line_bits=2)
    known, new = ids_of(random_hashes(300)), ids_of(random_hashes(300, seed=2))
    partition.judge(known, np.arange(300), np.zeros(300, np.int64))
    partition.commit(0)
    for _ in range(2):
        judged = partition.judge(known, np.arange(300), np.full(300, 5))
        assert (judged.expires_ms == HOUR + 5).all()
        assert (partition.judge(new, np.arange(300), np.full(300, 6)).verdict == Verdict.PASS).all()
        assert (partition.judge(new, np.arange(300), np.full(300, 6)).verdict == Verdict.DUPLICATE).all()
        partition.index.drop()
        assert not len(partition.index.staged())
    # Not renewed, for that was dropped: expired at the hour sharp.
    assert (partition.judge(known, np.arange(300), np.full(300, HOUR - 1)).verdict == Verdict.DUPLICATE).all()
    partition.index.drop()
    assert (partition.judge(known, np.arange(300), np.full(300, HOUR)).verdict == Verdict.PASS).all()


def test_a_renewed_id_takes_one_slot_however_often_it_is_renewed_and_after_a_restart() -> None:
    partition = ExactPartition(HOUR, refresh=True, line_bits=1)
    ids = ids_of(random_hashes(50))
    for reading in range(100):
        partition.judge(ids, np.arange(50), np.full(50, reading))
        partition.commit(reading)
    assert len(partition.index) == 50
    partition.restart()
    assert len(partition.index) == 50
    judged = partition.judge(ids, np.full(50, 999), np.full(50, HOUR + 98))
    assert judged.owner.tolist() == list(range(50))


def test_of_two_rows_of_one_id_the_later_one_counts() -> None:
    partition = ExactPartition(HOUR, refresh=False)
    for first, owner in ((1, 7), (2, 8)):
        row = IdRows(first, random_hashes(1), *np.array([[owner], [first], [-1]]))
        block, pages = encode(row, first, b"key")
        partition.index.restore(row, pages)
        partition.pages[first] = block[pages.at[0] :]
    partition.index.commit(None, 2)
    judged = partition.judge(ids_of(random_hashes(1)), np.array([9]), np.array([3]))
    assert (judged.owner.tolist(), judged.expires_ms.tolist()) == ([8], [HOUR + 2])


def test_blocks_out_of_order_or_over_staged_ids_are_refused() -> None:
    partition = ExactPartition(HOUR, refresh=False)
    ids, zero = ids_of(random_hashes(10)), np.zeros(10, np.int64)
    partition.judge(ids, zero, zero)
    rows = partition.index.staged()
    pages = Pages(np.array([1]), np.zeros(1, np.int64), np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="staged"):
        partition.index.restore(rows, pages)
    with pytest.raises(ValueError, match="without the pages"):
        partition.index.commit(None, 0)
    partition.index.commit(pages, 0)
    with pytest.raises(ValueError, match="expected 11 or more"):
        partition.index.restore(rows, pages)


def chosen(count: int, secret: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return hashes, under no secret and under one, of ids that all lie in one bucket of 512 without one."""
    numbers = np.arange(count * 512, dtype="<u8").view(np.uint8)
    zero, key = words_of_key(bytes(16)), words_of_key(secret)
    plain, keyed = [], []
    for at in range(0, numbers.size, 8):
        first, second = siphash128(numbers, at, 8, zero)
        if int(first) & 511 == 7:
            plain.append((int(first), int(second)))
            keyed.append(tuple(map(int, siphash128(numbers, at, 8, key))))
    return np.array(plain, np.uint64), np.array(keyed, np.uint64)


def test_ids_chosen_by_who_knows_the_code_but_not_the_secret_make_no_chains() -> None:
    plain, keyed = chosen(500, b"a secret of 16 B")
    attacked, guarded, other = (ExactIndex(HOUR, refresh=False, line_bits=6) for _ in range(3))
    fill(attacked, plain)
    fill(guarded, keyed)
    fill(other, random_hashes(len(keyed)))
    # They work against an index whose hash has no secret, or this test would show nothing.
    assert attacked._meta[SEGMENTS] >= 2 * guarded._meta[SEGMENTS]
    assert chains(attacked).mean() > 1
    assert chains(guarded).mean() < 0.5
    assert guarded._meta[SEGMENTS] <= other._meta[SEGMENTS] + 1
