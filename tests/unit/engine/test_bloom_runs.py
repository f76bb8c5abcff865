"""Ids of Bloom filters are found in memory and in runs, and pages that are not whole are refused."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.ids.block import UnreadableBlockError
from processor.engine.ids.bloom import sorted_run
from processor.engine.ids.bloom.memtable import BloomLookup, Memtable
from processor.engine.ids.bloom.sorted_run import NOWHERE, RunIndex, RunWriter, SortedRun
from schemas.changelog.bloom import KeptRun, run_key, run_name, run_page_key, run_page_keys, run_pages_before
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

COUNT = 2000
NUMBER = 7


def hashes_of(count: int, seed: int = 1) -> Hashes:
    dice = random.Random(seed)
    return np.array([[dice.randrange(2**64) for _ in range(2)] for _ in range(count)], np.uint64)


def written(table: Memtable, portion: int, number: int = NUMBER) -> tuple[SortedRun, list[bytes]]:
    writer = RunWriter(number, table)
    pages: list[tuple[int, bytes]] = []
    while writer.left:
        pages += writer.pages(portion)
    assert [place for place, _ in pages] == list(range(len(pages)))
    return writer.finish(), [page for _, page in pages]


def filled(hashes: Hashes) -> Memtable:
    table = Memtable(3)
    number = np.arange(len(hashes))
    table.put(hashes, number, number + 2**40)
    return table


def test_a_table_knows_what_was_put_last_of_each_id() -> None:
    hashes = hashes_of(COUNT)
    table = filled(hashes)
    again = np.arange(0, COUNT, 3)
    table.put(hashes[again], again, again)
    assert len(table) == COUNT
    found = BloomLookup.nothing(COUNT)
    table.find(hashes, np.arange(COUNT), found)
    assert found.known.all()
    assert found.owner.tolist() == list(range(COUNT))
    assert found.reading_ms.tolist() == [number + (2**40 if number % 3 else 0) for number in range(COUNT)]
    found.known[:] = False
    table.find(hashes_of(COUNT, 2), np.arange(COUNT), found)
    assert not found.known.any()


def looked_up(run: SortedRun, pages: list[bytes], hashes: Hashes) -> tuple[list[int], list[int]]:
    """Return owners and readings; the run is the last of three on a shelf."""
    shelf, first = shelf_of(run)
    place, page = shelf.find(hashes, np.full(len(hashes), len(shelf)))
    assert set(place.tolist()) == {2}
    _, at, number = shelf.numbers_of(place, page)
    assert at.tolist() == (page - first).tolist()
    each, which = np.unique(page, return_inverse=True)
    numbers = np.zeros(each.size, np.int64)
    numbers[which] = number
    known, owner, reading, _ = sorted_run.find([pages[k - first] for k in each], numbers, which, hashes)
    assert known.all()
    return owner.tolist(), reading.tolist()


def shelf_of(run: SortedRun) -> tuple[RunIndex, int]:
    """Put a run behind two others; return how many pages these have."""
    shelf, first = RunIndex(), 0
    for number in (1, 2):
        other, pages = written(filled(hashes_of(100 * number, 9 + number)), COUNT, number)
        shelf.add(other)
        first += len(pages)
    shelf.add(run)
    return shelf, first


def test_ids_of_the_same_first_word_are_sorted_by_the_second() -> None:
    dice = random.Random(3)
    hashes = np.array([[dice.randrange(3), dice.randrange(2**64)] for _ in range(COUNT)], np.uint64)
    table = filled(hashes)
    assert table.by_hash(0).hash.tolist() == sorted(hashes.tolist())
    assert looked_up(*written(table, COUNT), hashes)[0] == list(range(COUNT))


@pytest.mark.parametrize("portion", [1, 100, COUNT])
def test_each_id_of_a_run_is_on_the_one_page_that_its_fences_name(portion: int) -> None:
    hashes = hashes_of(COUNT)
    run, pages = written(filled(hashes), portion)
    owner, reading = looked_up(run, pages, hashes)
    assert owner == list(range(COUNT))
    assert reading == [number + 2**40 for number in range(COUNT)]
    assert all(len(page) <= 4096 for page in pages)


def test_ids_that_are_in_no_run_are_on_no_page_and_few_are_looked_for() -> None:
    others = hashes_of(COUNT, 2)
    run, pages = written(filled(hashes_of(COUNT)), COUNT)
    shelf, first = shelf_of(run)
    place, page = shelf.find(others, np.full(COUNT, 3))
    # Three filters of 1/128: 47 of 2,000, and thrice that is 14 deviations away.
    assert np.count_nonzero(place != NOWHERE) < 141
    mine = np.flatnonzero(place == 2)
    at = page[mine] - first
    numbers = (NUMBER << 32) + run.starts
    assert not sorted_run.find(pages, numbers, at, others[mine])[0].any()


def test_runs_before_one_are_asked_and_no_others() -> None:
    hashes = hashes_of(COUNT)
    run, _ = written(filled(hashes), COUNT)
    shelf, _ = shelf_of(run)
    place, _ = shelf.find(hashes, np.full(COUNT, 2))
    assert 2 not in place.tolist()
    assert np.count_nonzero(place != NOWHERE) < 141
    assert set(shelf.find(hashes, np.zeros(COUNT, np.int64))[0].tolist()) == {NOWHERE}


def test_a_page_of_which_any_byte_is_damaged_is_refused() -> None:
    hashes = hashes_of(30)
    _, (page,) = written(filled(hashes), 30)
    number, which = np.array([NUMBER << 32]), np.zeros(30, np.int64)
    damaged = [page[:at] + bytes([page[at] ^ 1]) + page[at + 1 :] for at in range(len(page))]
    for wrong in [*damaged, page[:-1], page + b"\0", page[:20], b""]:
        with pytest.raises(UnreadableBlockError):
            sorted_run.find([wrong], number, which, hashes)
    with pytest.raises(UnreadableBlockError):
        sorted_run.find([page], number + 1, which, hashes)


def test_a_run_is_what_was_written_and_one_of_which_any_byte_is_damaged_is_refused() -> None:
    key = run_key(-5, 9)
    assert run_name(key) == (-5, 9)
    kept = KeptRun(2**40, 17, 30, 7, 65, bytes(range(32)), bytes(8), bytes(16))
    value = kept.encode(key)
    assert KeptRun.decode(key, value) == kept
    damaged = [value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] for at in range(len(value))]
    for wrong in [*damaged, value[:-1], value[:20], b""]:
        with pytest.raises(CorruptStateError):
            KeptRun.decode(key, wrong)
    for other in (run_key(-5, 10), run_key(-4, 9)):
        with pytest.raises(CorruptStateError):
            KeptRun.decode(other, value)
    with pytest.raises(CorruptStateError):
        run_name(key[:-1])


def test_the_keys_of_several_pages_are_those_of_each() -> None:
    names = [(bucket, number, page) for bucket in (-2, 0, 3) for number in (1, 2**40) for page in (0, 300)]
    assert run_page_keys(*np.array(names, np.int64).T) == [run_page_key(*name) for name in names]
    assert run_page_keys(*np.zeros((3, 0), np.int64)) == []


def test_pages_sort_by_bucket_and_those_of_earlier_buckets_are_one_range() -> None:
    keys = [
        run_page_key(bucket, number, page) for bucket in (-2, 0, 3) for number in (1, 2) for page in (0, 300)
    ]
    assert keys == sorted(keys)
    first, after = run_pages_before(0)
    assert [first <= key < after for key in keys] == [True] * 4 + [False] * 8
