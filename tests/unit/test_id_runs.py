"""Ids of Bloom filters are found in memory and in runs, and pages that are not whole are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from processor.engine import run_pages
from processor.engine.blocks import UnreadableBlockError
from processor.engine.id_table import IdTable
from processor.engine.run_pages import Run, RunWriter
from schemas.bloom_state import KeptRun, run_key, run_name, run_page_key, run_pages_before
from schemas.changelog import CorruptStateError

COUNT = 2000
NUMBER = 7


def hashes_of(count: int, seed: int = 1) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    dice = random.Random(seed)
    return np.array([[dice.randrange(2**64) for _ in range(2)] for _ in range(count)], np.uint64)


def written(table: IdTable, portion: int) -> tuple[Run, list[bytes]]:
    writer = RunWriter(NUMBER, table.bucket, *table.by_hash())
    pages: list[tuple[int, bytes]] = []
    while writer.left:
        pages += writer.pages(portion)
    assert [place for place, _ in pages] == list(range(len(pages)))
    return writer.finish(), [page for _, page in pages]


def filled(hashes: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> IdTable:
    table = IdTable(3)
    number = np.arange(len(hashes))
    table.put(hashes, number, number + 2**40)
    return table


def test_a_table_knows_what_was_put_last_of_each_id() -> None:
    hashes = hashes_of(COUNT)
    table = filled(hashes)
    again = np.arange(0, COUNT, 3)
    table.put(hashes[again], again, again)
    assert len(table) == COUNT
    known, owner, reading = np.zeros(COUNT, np.bool_), *np.zeros((2, COUNT), np.int64)
    table.find(hashes, np.arange(COUNT), known, owner, reading)
    assert known.all()
    assert owner.tolist() == list(range(COUNT))
    assert reading.tolist() == [number + (2**40 if number % 3 else 0) for number in range(COUNT)]
    known[:] = False
    table.find(hashes_of(COUNT, 2), np.arange(COUNT), known, owner, reading)
    assert not known.any()


def test_ids_of_the_same_first_word_are_sorted_by_the_second() -> None:
    dice = random.Random(3)
    hashes = np.array([[dice.randrange(3), dice.randrange(2**64)] for _ in range(COUNT)], np.uint64)
    table = filled(hashes)
    found = table.by_hash()[0].tolist()
    assert found == sorted(hashes.tolist())
    run, pages = written(table, COUNT)
    which = run.page_of(hashes)
    known, owner, _ = run_pages.find(
        pages, np.array([run.page_number(k) for k in range(len(pages))]), which, hashes
    )
    assert known.all()
    assert owner.tolist() == list(range(COUNT))


@pytest.mark.parametrize("portion", [1, 100, COUNT])
def test_each_id_of_a_run_is_on_the_one_page_that_its_fences_name_and_no_other_id_is(portion: int) -> None:
    hashes, others = hashes_of(COUNT), hashes_of(COUNT, 2)
    run, pages = written(filled(hashes), portion)
    numbers = np.array([run.page_number(page) for page in range(len(pages))])
    known, owner, reading = run_pages.find(pages, numbers, run.page_of(hashes), hashes)
    assert known.all()
    assert owner.tolist() == list(range(COUNT))
    assert reading.tolist() == [number + 2**40 for number in range(COUNT)]
    known, _, _ = run_pages.find(pages, numbers, run.page_of(others), others)
    assert not known.any()
    assert all(len(page) <= 4096 for page in pages)


def test_a_page_of_which_any_byte_is_damaged_is_refused() -> None:
    hashes = hashes_of(30)
    run, (page,) = written(filled(hashes), 30)
    number, which = np.array([run.page_number(0)]), np.zeros(30, np.int64)
    damaged = [page[:at] + bytes([page[at] ^ 1]) + page[at + 1 :] for at in range(len(page))]
    for wrong in [*damaged, page[:-1], page + b"\0", page[:20], b""]:
        with pytest.raises(UnreadableBlockError):
            run_pages.find([wrong], number, which, hashes)
    with pytest.raises(UnreadableBlockError):
        run_pages.find([page], number + 1, which, hashes)


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


def test_pages_sort_by_bucket_and_those_of_earlier_buckets_are_one_range() -> None:
    keys = [
        run_page_key(bucket, number, page) for bucket in (-2, 0, 3) for number in (1, 2) for page in (0, 300)
    ]
    assert keys == sorted(keys)
    first, after = run_pages_before(0)
    assert [first <= key < after for key in keys] == [True] * 4 + [False] * 8
