"""Do the parts of what a task has read say of each of its records what it may be?"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.source import spans as module
from spark_sink.source.spans import MOST_PARTS, PART_RECORDS, SpanParts


class Piece(NamedTuple):
    """Records that are read at once."""

    partition: int
    times: list[int | None]
    """µs; None: no event."""


PIECES = st.builds(Piece, st.integers(0, 2), st.lists(st.none() | st.integers(-9, 9), max_size=6))


def added(pieces: list[Piece]) -> SpanParts:
    """Return the parts of pieces, whose offsets go on within a partition with a gap after each record."""
    found, ends = SpanParts(), {piece.partition: 0 for piece in pieces}
    for partition, times in pieces:
        offsets = np.arange(len(times), dtype=np.int64) * 2 + ends[partition]
        ends[partition] += 2 * len(times)
        good = np.array([each is not None for each in times], np.bool_)
        found.add(partition, offsets, good, np.array([each or 0 for each in times], np.int64))
    return found


@given(st.lists(PIECES, max_size=40), st.integers(1, 8), st.integers(2, 5))
def test_each_record_is_of_one_part_which_says_how_old_and_how_bad_its_records_are(
    pieces: list[Piece], full: int, most: int
) -> None:
    before = module.PART_RECORDS, module.MOST_PARTS
    module.PART_RECORDS, module.MOST_PARTS = full, most
    try:
        found = added(pieces).found
    finally:
        module.PART_RECORDS, module.MOST_PARTS = before

    told = [(each.partition, at) for each in found for at in range(each.first, each.last + 1, 2)]
    records: dict[int, list[int | None]] = {number: [] for number in range(3)}
    for piece in pieces:
        records[piece.partition] += piece.times
    assert sorted(told) == [(number, 2 * at) for number in records for at in range(len(records[number]))]
    for each in found:
        held = records[each.partition][each.first // 2 : each.last // 2 + 1]
        events = [at for at in held if at is not None]
        assert each[3:] == (min(events, default=None), held.count(None), len(events))


def test_a_long_read_has_few_parts_and_one_record_little_around_it() -> None:
    found = added([Piece(0, [5] * 4_096)] * 1_000).found
    assert MOST_PARTS // 2 <= len(found) <= MOST_PARTS
    assert all(one.last + 2 == after.first for one, after in pairwise(found))
    assert max(each.last - each.first for each in found) < 2 * 4_096_000 // 20


def test_parts_of_many_partitions_stay_small() -> None:
    found = added([Piece(at % 100, [5] * 4_096) for at in range(1_000)]).found
    assert max(each.events for each in found) < 3 * PART_RECORDS
