"""Which passes of sampled ids are duplicates that escaped, on a few that can be followed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.extract.ids import NO_LOT, IdExtractor
from processor.engine.extract.parts import HeaderPart, KeyPart, ValuePart
from processor.engine.ids.passes import (
    ESCAPE_COLUMNS,
    UNWANTED,
    Passes,
    PassKind,
    PassTable,
    depth_of,
    drawn,
    leave_out,
    move,
    remaining,
    take,
)
from processor.wire.decode import Chunk, Decoder
from processor.wire.encode import plain_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WINDOW, HORIZON = 100, 1_000
PASSED, RENEWED = PassKind
Said = tuple[int, int, int, PassKind]
"""Key, the partition's clock, partition, kind."""


def lots(
    values: Sequence[bytes], parts: Sequence[HeaderPart | KeyPart | ValuePart], secret: int = 1
) -> NDArray[np.uint64]:
    """Return the lots of records with these keys, which are their values and headers as well."""
    batch = plain_batch([(value, value, 0, (("id", value),)) for value in values])
    data = batch.build(-1, -1, -1, transactional=False)
    (piece,) = Decoder().pieces(Chunk("t", 0, 0, data))
    return IdExtractor(list(parts), bytes([secret]) * 16).extract(piece.columns).lot.copy()


def table_of(said: Sequence[Said], table: PassTable | None = None) -> tuple[PassTable, list[list[int]]]:
    """Take passes into a table, one call each; return it, and of what escaped the copy and what was before."""
    table = table or PassTable.empty(64)
    found = []
    for key, at, partition, kind in said:
        one = Passes(
            np.array([key], np.uint64), np.array([at]), np.array([partition]), np.array([kind], np.uint8)
        )
        escapes = np.zeros((8, ESCAPE_COLUMNS), np.int64)
        taken, _, escaped = take(table, one, 8, WINDOW, HORIZON, escapes)
        assert taken == 1
        found += escapes[:escaped, :5].tolist()
    return table, found


@pytest.mark.parametrize(
    ("said", "escaped"),
    [
        pytest.param([(7, 0, 0, PASSED), (7, 100, 0, PASSED)], [[0, 100, 0, 0, 0]], id="a window later"),
        pytest.param([(7, 0, 0, PASSED), (7, 1_001, 0, PASSED)], [], id="beyond the horizon"),
        pytest.param([(7, 0, 0, PASSED), (7, 0, 0, PASSED)], [], id="judged again"),
        pytest.param(
            [(7, 500, 0, PASSED), (7, 100, 0, PASSED), (7, 500, 0, PASSED)], [], id="all of it judged again"
        ),
        pytest.param([(7, 0, 0, PASSED), (8, 100, 0, PASSED)], [], id="another id"),
        pytest.param(
            [(7, 0, 0, PASSED), (7, 100, 0, PASSED), (7, 250, 0, PASSED)],
            [[0, 100, 0, 0, 0], [0, 250, 0, 100, 1]],
            id="the second time it escapes",
        ),
        pytest.param([(7, 0, 0, PASSED), (7, 20, 1, PASSED)], [[1, 20, 0, 0, 0]], id="in another partition"),
        pytest.param(
            [(7, 20, 1, PASSED), (7, 0, 0, PASSED)], [[1, 20, 0, 0, 0]], id="the later one is judged first"
        ),
        pytest.param(
            [(7, 20, 1, PASSED), (7, 0, 0, PASSED), (7, 5, 2, PASSED)],
            [[1, 20, 0, 0, 0], [2, 5, 0, 0, 1]],
            id="between two",
        ),
        pytest.param(
            [(7, 0, 0, PASSED), (7, 90, 0, RENEWED), (7, 190, 0, PASSED)], [[0, 190, 0, 90, 0]], id="renewed"
        ),
    ],
)
def test_a_pass_is_an_escaped_duplicate_of_the_last_one_before_it(
    said: list[Said], escaped: list[list[int]]
) -> None:
    assert table_of(said)[1] == escaped


def test_it_ends_early_where_there_is_no_room_for_what_comes_next() -> None:
    table = PassTable.empty(64)
    both = Passes(
        np.array([7, 8], np.uint64), np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.uint8)
    )
    escapes = np.zeros((8, ESCAPE_COLUMNS), np.int64)
    assert take(table, both, 1, WINDOW, HORIZON, escapes) == (1, 1, 0)
    assert take(table, both, 8, WINDOW, HORIZON, escapes[:0]) == (0, 0, 0)


def test_a_sample_is_thinned_by_leaving_out_whole_ids() -> None:
    keys = [depth << 58 | 1 + number for depth in (0, 1, 2) for number in range(5)]
    table, _ = table_of([(key, at, at % 2, PASSED) for at, key in enumerate(keys)])
    assert remaining(table, 0, 1) == 10
    assert remaining(table, 12, 1) == 3
    smaller = PassTable.empty(32)
    move(table, 0, 1, smaller)
    assert sorted(smaller.key[smaller.key != 0].tolist()) == keys[5:]
    assert table_of([(keys[7], 200, 7 % 2, PASSED)], smaller)[1] == [[1, 200, 1, 7, 0]]
    leave_out(table, 0, 1)
    assert sorted(table.key[table.key != 0].tolist()) == keys[5:]
    assert table_of([(keys[7], 200, 7 % 2, PASSED)], table)[1] == [[1, 200, 1, 7, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_in_a_table_is_found_where_runs_of_entries_had_holes_made_in_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Most begin at the last slots, so that runs are long and go on at the first.
    keys = [int(n) << 58 | int(n) << 20 | int(b) for n, b in enumerate(rng.integers(55, 70, 40) % 64, 1)]
    rows = [(key, int(at), 0, PASSED) for key, at in zip(keys, rng.integers(0, 100, 40), strict=True)]
    table, _ = table_of(rows, PassTable.empty(64))
    leave_out(table, 30, 10)
    left = [row for row in rows if row[1] >= 30 and row[0] >> 58 >= 10]
    assert sorted(table.key[table.key != 0].tolist()) == sorted(key for key, *_ in left)
    assert not table.at[table.key == 0].any()
    # Whoever is looked for is found: it passes again.
    again = table_of([(key, at + 150, 0, PASSED) for key, at, *_ in left], table)[1]
    assert len(again) == len(left)


def test_ids_are_drawn_by_lots_that_do_not_depend_on_the_partitions_secret() -> None:
    values = [b"%d" % n for n in range(100)]
    assert np.array_equal(lots(values, [KeyPart()], 1), lots(values, [KeyPart()], 2))
    # A string is another id than the same bytes.
    assert not np.array_equal(lots([b"1"], [KeyPart()]), lots([b"1"], [ValuePart("")]))


@pytest.mark.parametrize(
    "form", ["%d", "%09d", "%09d-suffix-of-all", "a-prefix-of-all-%d", "%040d", "a%dlong-and-constant-middle%d"]
)
def test_the_share_of_counted_ids_that_is_drawn_is_that_of_the_level(form: str) -> None:
    count = 40_000
    values = [(form % ((n,) * form.count("%"))).encode() for n in range(count)]
    lot = np.concatenate([lots(values[k : k + 10_000], [KeyPart()]) for k in range(0, count, 10_000)])
    assert np.unique(lot).size == count
    for level in (1, 3, 5):
        share = np.count_nonzero(lot >> np.uint64(64 - level) == 0) / count
        # Five standard deviations of drawing each by itself.
        assert abs(share - 2.0**-level) < 5 * (2.0**-level / count) ** 0.5


def test_only_what_passed_is_drawn_and_by_a_hash_with_a_key() -> None:
    lot = np.array([1, 2**63, NO_LOT, 3, 3], np.uint64)
    kind = np.array([PASSED, PASSED, PASSED, UNWANTED, PASSED], np.uint8)
    at, partition = np.arange(5), np.arange(10, 15)
    found = []
    for secret in (1, 2):
        out = Passes(
            np.zeros(5, np.uint64), np.zeros(5, np.int64), np.zeros(5, np.int64), np.zeros(5, np.uint8)
        )
        key = np.array([secret, 0], np.uint64)
        count = drawn(lot, np.zeros(0, np.uint64), kind, at, partition, 1, key, out)
        assert (count, out.at[:count].tolist()) == (2, [0, 4])
        assert out.partition[:count].tolist() == [10, 14]
        assert depth_of(out.key[:count]).tolist() == [63, 62]
        found.append(out.key[:count].tolist())
    assert found[0] != found[1]


def test_records_of_one_id_with_other_content_are_others() -> None:
    lot = np.full(3, 5, np.uint64)
    out = Passes(np.zeros(3, np.uint64), np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros(3, np.uint8))
    drawn(
        lot, np.array([1, 1, 2], np.uint64), np.zeros(3, np.uint8), np.arange(3), np.zeros(3, np.int64), 0,
        np.array([1, 2], np.uint64), out,
    )  # fmt: skip
    assert out.key[0] == out.key[1] != out.key[2]
