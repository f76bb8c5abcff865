"""An index that is restored in bulk is the one that the stream has made, whatever was renewed or expired."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids.block import IdRows, UnreadableBlockError, decode
from processor.engine.ids.exact import index as exact_index
from processor.engine.ids.exact.bulk_load import GROUP_BITS, GROUPS
from processor.engine.ids.exact.hash_table import DEPTH, LINE, OCCUPIED, SEGMENTS, SPLITS
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.ids.exact.renewed_index import RenewedIndex
from processor.engine.ids.judgement import IdColumns
from processor.engine.ids.page import Pages
from processor.engine.verdict import Verdict
from tests.support.judges.ids import KEY, ExactPartition, hashes_of, ids_of
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAMES = hashes_of([b"%d" % number for number in range(60)])
# Names of a chunk, how far the clock goes on before it, and whether the commit sweeps.
steps = st.lists(
    st.tuples(st.lists(st.integers(0, 59), max_size=80), st.sampled_from([0, 1, 7, 60]), st.booleans()),
    max_size=12,
)
# Few buckets and bits of the hash: chains, splits while pouring, ids that meet.
forms = st.sampled_from([(0, 28), (1, 28), (2, 4), (3, 2), (10, 28)])


def candidates(index: ExactIndex, hashes: NDArray[np.uint64], clock: int) -> set[tuple[int, int]]:
    """Return which rows could be which numbers."""
    found = index.look_up(columns_of(hashes, clock))
    return set(zip(found.row.tolist(), found.number.tolist(), strict=True))


def columns_of(hashes: NDArray[np.uint64], clock: int) -> IdColumns:
    """Return records that are judged at one reading of the clock."""
    reading_ms = np.full(len(hashes), clock)
    return IdColumns.of(ids_of(hashes), reading_ms, reading_ms)


def cut(block: bytes, pages: Pages) -> list[bytes]:
    """Return the pages of a block."""
    return [block[at:end] for at, end in pairwise(pages.at.tolist())]


def looked_over(index: ExactIndex) -> None:
    """Look that all ids can be found: a bucket that one was passed over for has no empty slot."""
    count, buckets = int(index._meta[SEGMENTS]), index._form[0]
    slots = index._table.slots[: count * buckets * LINE].reshape(count, buckets, LINE)
    full = (slots != 0).all(axis=2)
    hops = ((slots >> np.uint64(32)) & np.uint64(15)).astype(np.int64)
    for hop in range(1, 16):
        segment, bucket, _ = np.nonzero((hops >= hop) & (slots != 0))
        assert full[segment, (bucket - hop) % buckets].all()
    assert index._table.used[:count].tolist() == np.count_nonzero(slots, axis=(1, 2)).tolist()
    assert index._meta[OCCUPIED] == np.count_nonzero(slots)


@examples(150)
@given(
    steps, st.sampled_from([5, 40, 10_000]), st.booleans(), forms, st.sampled_from([0, 20, 1 << 20]), st.data()
)
def test_a_restored_index_lists_the_candidates_that_the_stream_has_left(
    script: list[tuple[list[int], int, bool]],
    window: int,
    refresh: bool,  # noqa: FBT001 - hypothesis gives it by name
    form: tuple[int, int],
    waiting: int,
    data: st.DataObject,
) -> None:
    partition = ExactPartition(window, refresh=refresh, line_bits=form[0], tag_bits=form[1])
    offset, clock = 0, 0
    for names, later, sweeping in script:
        clock += later
        partition.judge(ids_of(NAMES[names]), offset + np.arange(len(names)), np.full(len(names), clock))
        offset += len(names)
        partition.commit(clock, 100 if sweeping else 0)
    restored = ExactIndex(window, refresh=refresh, line_bits=form[0], tag_bits=form[1])
    blocks = [decode(block, KEY) for block in partition.blocks]
    # What is expired may be gone in front, as far as somebody has deleted it.
    dead = sum(
        pages.first[-1] < partition.index.floor and rows.first + len(rows) <= partition.index.floor
        for rows, _, pages in blocks
    )
    gone = data.draw(st.integers(0, int(dead)))
    expiring, by_pages = data.draw(st.booleans()), data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact_index, "WAITING", waiting)
        for (rows, at_ms, pages), block in zip(blocks[gone:], partition.blocks[gone:], strict=True):
            if by_pages:
                restored.restore_pages(cut(block, pages), pages.first)
            else:
                restored.restore(rows, pages)
            if expiring:
                restored.commit(None, at_ms, 1)
    restored.commit(None, clock, 1)
    if gone == len(blocks):
        return
    assert (restored.next_number, restored.floor) == (partition.index.next_number, partition.index.floor)
    assert candidates(restored, NAMES, clock) == candidates(partition.index, NAMES, clock)
    looked_over(restored)


@pytest.mark.parametrize("groups", [256, 2])
@pytest.mark.parametrize("renewed", [0, 900], ids=["plain", "renewed"])
@pytest.mark.parametrize("expired", [0, 700], ids=["living", "expired"])
def test_ids_of_more_extents_than_groups_find_their_places_at_once(
    expired: int, renewed: int, groups: int
) -> None:
    hashes = np.random.default_rng(11).integers(0, 2**64, (4_000, 2), np.uint64)
    if groups == 2:  # blocks one behind the other in each, and more than one of what finds no room
        hashes[:, 0] &= np.uint64(0x80FFFFFFFFFFFFFF)
    partition = ExactPartition(100, refresh=True, line_bits=1)
    for start in range(0, 4_000, 500):
        clock = 0 if start < expired else 60 + start // 500
        partition.judge(ids_of(hashes[start : start + 500]), start + np.arange(500), np.full(500, clock))
        partition.commit(clock)
    # Each once or twice.
    for again in (hashes[3_000 : 3_000 + renewed], hashes[3_000 : 3_000 + renewed // 2]):
        clock = partition.clock + 1
        partition.judge(ids_of(again), 5_000 + np.arange(len(again)), np.full(len(again), clock))
        partition.commit(clock)
    now = 101 if expired else 71
    partition.commit(now)
    assert (partition.index.floor > 1) == bool(expired)
    index = ExactIndex(100, refresh=True, line_bits=1)
    for block in partition.blocks:
        pages = decode(block, KEY)[2]
        index.restore_pages(cut(block, pages), pages.first)
    if groups == 2:
        assert index._waiting.following.size > 2 + GROUPS
    index.commit(None, now)
    assert len(index) == (4_000 if not expired else 3_000)
    assert index._meta[DEPTH] > GROUP_BITS
    looked_over(index)
    assert candidates(index, hashes, now) == candidates(partition.index, hashes, now)


@pytest.mark.parametrize("kind", [ExactIndex, RenewedIndex])
def test_pages_restore_what_their_block_does(kind: type[ExactIndex]) -> None:
    partition = ExactPartition(100, refresh=True)
    ids = hashes_of([b"%d" % k for k in range(600)])
    for clock in (0, 1):
        partition.judge(ids_of(ids), np.arange(600), np.full(600, clock))
        partition.commit(clock)
    by_rows, by_pages = kind(100, refresh=True), kind(100, refresh=True)
    for block in partition.blocks:
        rows, _, pages = decode(block, KEY)
        by_rows.restore(rows, pages)
        by_pages.restore_pages(cut(block, pages), pages.first)
    assert len(by_pages) == len(by_rows) == 600
    assert candidates(by_pages, ids, 1) == candidates(by_rows, ids, 1) == candidates(partition.index, ids, 1)


def test_pages_that_do_not_go_on_from_each_other_are_refused() -> None:
    partition = ExactPartition(10, refresh=False)
    partition.judge(ids_of(hashes_of([b"%d" % k for k in range(600)])), np.arange(600), np.zeros(600, np.int64))
    partition.commit(0)
    block, pages = partition.blocks[0], decode(partition.blocks[0], KEY)[2]
    whole, first = cut(block, pages), pages.first
    assert len(whole) > 2
    for wrong, numbers in (
        (whole[::2], first[::2]),
        ([whole[0][:-1], whole[1]], first[:2]),
        ([whole[0], whole[1] + b"\0"], first[:2]),
        ([whole[1]], first[:1]),
        (whole[:2], first[:2] + np.array([0, 1])),
    ):
        with pytest.raises(UnreadableBlockError):
            ExactIndex(10, refresh=False).restore_pages(wrong, numbers)


def test_many_ids_are_poured_without_a_split_and_grow_on_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_index, "WAITING", 1 << 20)  # all at once
    count, more = 340_000, 210_000
    hashes = np.random.default_rng(5).integers(0, 2**64, (count + more, 2), np.uint64)
    index = ExactIndex(1_000, refresh=False)
    for start in range(0, count, 34_000):
        rows = IdRows(1 + start, hashes[start : start + 34_000], *_columns(start, 34_000))
        index.restore(rows, Pages(np.array([1 + start]), np.zeros(1, np.int64), np.zeros(0, np.int64)))
    # 8 bytes each wait, and a started block for each group.
    assert index.size_bytes < 16 * count
    index.insert()
    assert (len(index), index._meta[SPLITS]) == (count, 0)
    assert index.size_bytes < 24 * count
    looked_over(index)
    assert len(candidates(index, hashes[:count], 0)) >= count
    for start in range(count, count + more, 70_000):
        rows = IdRows(1 + start, hashes[start : start + 70_000], *_columns(start, 70_000))
        index.restore(rows, Pages(np.array([1 + start]), np.zeros(1, np.int64), np.zeros(0, np.int64)))
        index.insert()
    assert index._meta[SPLITS] > 0
    looked_over(index)
    assert {(k, k + 1) for k in range(count + more)} <= candidates(index, hashes, 0)


def test_rows_renewed_time_and_again_take_the_room_of_their_ids_while_they_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact_index, "WAITING", 1_000)
    partition = ExactPartition(10, refresh=True)
    ids = ids_of(NAMES)
    for reading in range(120):
        partition.judge(ids, np.arange(60), np.full(60, reading))
        partition.commit(reading)
    index = ExactIndex(10, refresh=True)
    sizes = []
    for block in partition.blocks:
        rows, clock, pages = decode(block, KEY)
        index.restore(rows, pages)
        index.commit(None, clock, 1)
        sizes.append(index._waiting.entries)
    # 14,340 entries in all.
    assert max(sizes) <= 1_000 + 11 * 60 + 2 * 60
    assert candidates(index, NAMES, 119) == candidates(partition.index, NAMES, 119)
    judged = index.look_up(columns_of(NAMES, 119))
    assert judged.row.size >= 60
    partition.restart()
    again = partition.judge(ids, np.arange(60), np.full(60, 119))
    assert (again.verdict == Verdict.DUPLICATE).all()


def _columns(start: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return start + np.arange(count), np.zeros(count, np.int64), np.full(count, -1)
