"""Blocks and pages of ids are read as they were written, by another reader too, or not at all."""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids.block import (
    IdRows,
    PageError,
    UnreadableBlockError,
    confirm,
    decode,
    decode_pages,
    encode,
    ids_within,
)
from tests.support.suite.examples import examples

KEY = b"B\0\0\0\0\0\0\0\7"
int64 = st.integers(-(2**62), 2**62)


def made(count: int, *, first: int = 1, seed: int = 1, refresh: bool = False) -> IdRows:
    """Make ids as a commit of the stream has them: offsets in a run, readings within minutes."""
    random = np.random.default_rng(seed)
    number = first + np.arange(count)
    return IdRows(
        first,
        random.integers(0, 2**64, (count, 2), np.uint64),
        1_000_000 + 2 * np.arange(count),
        1_700_000_000_000 + np.sort(random.integers(0, 300_000, count)),
        np.where(random.random(count) < 0.3, number - 5, -1) if refresh else np.full(count, -1),
    )


def same(one: IdRows, other: IdRows) -> bool:
    return one.first == other.first and all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("hash", "owner", "reading_ms", "supersedes")
    )


def by_hand(data: bytes, key: bytes) -> tuple[list[tuple[int, ...]], int]:
    """Read a block as the module draws it, with another library's checksum.

    Of those that have more also whether a row is a collision's, its fingerprint and route word, -1 for none.
    """
    version, pages, count, first, clock, crc = struct.unpack_from(">BIIqqI", data)
    assert (version, crc) == (1, google_crc32c.value(key + data[:25]))
    at, rows = 29, []
    for _ in range(pages):
        version, ids, *widths, number, owner, reading, more = struct.unpack_from(">BHBBBqqqB", data, at)
        assert version == 1
        told = [8 * (more & 1), 2 * (more >> 2 & 1)]
        place = at + 35
        stop = place + ids * (16 + sum(widths) + sum(told))
        crc = int.from_bytes(data[place - 4 : place], "big")
        assert stop - at <= 4096
        assert crc == google_crc32c.value(data[at : place - 4] + data[place:stop])
        hashes = [struct.unpack_from(">QQ", data, place + 16 * k) for k in range(ids)]
        place += 16 * ids
        values = []
        for width in [*widths, *told]:
            values.append([int.from_bytes(data[place + width * k :][:width], "big") for k in range(ids)])
            place += width * ids
        for k in range(ids):
            back = values[2][k]
            superseded = number + k - back if back else -1
            row = (*hashes[k], owner + values[0][k], reading + values[1][k], superseded)
            said = [values[3 + j][k] if told[j] else -1 for j in range(2)]
            rows.append((*row, more >> 1 & 1, *said) if more else row)
        assert number == first + len(rows) - ids
        at = stop
    assert (at, len(rows)) == (len(data), count)
    return rows, clock


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), int64, int64, st.integers(0, 2**40)), min_size=1, max_size=30
    ),
    st.integers(2**41, 2**60),
    int64,
    st.sampled_from([1, 20]),
)
def test_any_ids_are_read_back_by_the_kernel_and_by_hand(
    items: list[tuple[int, int, int, int]], first: int, clock: int, times: int
) -> None:
    items = items * times
    number = first + np.arange(len(items))
    hashes = np.array([(word, word ^ 2**63) for word, _, _, _ in items], np.uint64)
    owner, reading, back = (np.array(column, np.int64) for column in list(zip(*items, strict=True))[1:])
    rows = IdRows(first, hashes, owner, reading, np.where(back == 0, -1, number - back))
    data, pages = encode(rows, clock, KEY)
    read, said, found = decode(data, KEY)
    assert same(read, rows)
    assert said == clock
    for one, other in ((found.first, pages.first), (found.last_ms, pages.last_ms), (found.at, pages.at)):
        assert one.tolist() == other.tolist()
    listed = np.column_stack([owner, reading, rows.supersedes]).tolist()
    expected = [(*pair, *rest) for pair, rest in zip(hashes.tolist(), listed, strict=True)]
    assert by_hand(data, KEY) == (expected, clock)


@examples(60)
@given(
    st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2, st.booleans(), st.integers(0, 2**16 - 1)), min_size=1),
    st.sampled_from([1, 30]),
    st.sampled_from([(True, False), (False, True), (True, True)]),
)
def test_fingerprints_collisions_and_route_words_are_read_back_by_the_kernel_and_by_hand(
    items: list[tuple[int, int, bool, int]], times: int, told: tuple[bool, bool]
) -> None:
    items = items * times
    words, prints, collisions, routes = zip(*items, strict=True)
    plain = made(len(items), first=7, refresh=True)
    hashes = np.array([(word, ~word & 2**64 - 1) for word in words], np.uint64)
    rows = replace(plain, hash=hashes)
    if told[0]:
        collision = np.array(collisions)
        rows = replace(rows, fingerprint=np.array(prints, np.uint64), collision=collision)
    if told[1]:
        rows = replace(rows, route=np.array(routes, np.uint16))

    data, pages = encode(rows, 5, KEY)

    expected = [
        (*pair, *rest, collided if told[0] else 0, mine if told[0] else -1, word if told[1] else -1)
        for pair, rest, mine, collided, word in zip(
            hashes.tolist(),
            np.column_stack([rows.owner, rows.reading_ms, rows.supersedes]).tolist(),
            prints,
            collisions,
            routes,
            strict=True,
        )
    ]
    assert by_hand(data, KEY) == (expected, 5)
    read, _, found = decode(data, KEY, fingerprints=True)
    assert same(read, rows)
    assert found.collision.tolist() == pages.collision.tolist()
    assert read.fingerprint.tolist() == (list(prints) if told[0] else [0] * len(items))
    assert read.collision.tolist() == (list(collisions) if told[0] else [False] * len(items))
    cut = [data[pages.at[k] : pages.at[k + 1]] for k in range(pages.first.size)]
    number = rows.first + np.arange(len(rows))
    which = np.searchsorted(pages.first, number, side="right") - 1
    single = confirm(cut, pages.first, which, number - pages.first[which], fingerprints=True)
    assert single.fingerprint.tolist() == read.fingerprint.tolist()
    assert np.array_equal(single.owner, rows.owner)
    assert len(data) <= ids_bytes(rows)


def ids_bytes(rows: IdRows) -> int:
    """Return the least limit of a block that these ids are certainly let into."""
    low, high = 0, 10 * 2**20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ids_within(rows, middle) >= len(rows) else (middle, high)
    return high


@pytest.mark.parametrize("most_bytes", [150, 275, 400, 5_000])
def test_ids_between_collisions_go_into_a_small_block_as_far_as_there_is_room(most_bytes: int) -> None:
    rows = made(200)
    told = np.arange(200, dtype=np.uint64), np.arange(200) % 2 == 1
    rows = replace(rows, fingerprint=told[0], collision=told[1])
    most = ids_within(rows, most_bytes)
    assert most > 0
    assert len(encode(rows.part(0, most), 7, KEY)[0]) <= most_bytes


@pytest.mark.parametrize("count", [1, 184, 185, 1000])
def test_each_page_is_whole_by_itself_and_single_ids_are_read_from_it(count: int) -> None:
    rows = made(count)
    data, pages = encode(rows, 7, KEY)
    cut = [data[pages.at[k] : pages.at[k + 1]] for k in range(pages.first.size)]
    read = [decode_pages([page], first)[0] for page, first in zip(cut, pages.first.tolist(), strict=True)]
    assert np.array_equal(np.concatenate([each.hash for each in read]), rows.hash)
    assert [int(each.reading_ms.max()) for each in read] == pages.last_ms.tolist()
    which = np.searchsorted(pages.first, rows.first + np.arange(count), side="right") - 1
    found = confirm(cut, pages.first, which, rows.first + np.arange(count) - pages.first[which])
    assert np.array_equal(found.hash, rows.hash)
    assert np.array_equal(found.owner, rows.owner)
    assert np.array_equal(found.reading_ms, rows.reading_ms)


def test_an_id_takes_at_most_24_bytes() -> None:
    data, pages = encode(made(20_000), 7, KEY)
    assert len(data) <= 23 * 20_000
    assert max(np.diff(pages.at)) <= 4096


def test_a_flipped_bit_and_a_cut_are_found_wherever_they_are() -> None:
    data, pages = encode(made(300), 7, KEY)
    places = [*range(29 + 35), *range(29, len(data), 101), *range(int(pages.at[1]), int(pages.at[1]) + 35)]
    for at in places:
        wrong = bytes([*data[:at], data[at] ^ 1 << at % 8, *data[at + 1 :]])
        with pytest.raises(UnreadableBlockError):
            decode(wrong, KEY)
    for size in [*range(64), *range(0, len(data), 101), len(data) - 1]:
        with pytest.raises(UnreadableBlockError):
            decode(data[:size], KEY)
    with pytest.raises(UnreadableBlockError):
        decode(data + b"\0", KEY)
    with pytest.raises(UnreadableBlockError):
        decode(data, KEY + b"x")


def test_pages_of_another_block_or_in_another_order_are_found() -> None:
    data, pages = encode(made(600), 7, KEY)
    other, _ = encode(made(600, first=2), 7, KEY)
    cut = [data[pages.at[k] : pages.at[k + 1]] for k in range(pages.first.size)]
    foreign = other[pages.at[1] : pages.at[2]]
    for wrong in ([cut[1], cut[0], *cut[2:]], cut[:-1], [cut[0], foreign, *cut[2:]], [*cut, cut[-1]]):
        with pytest.raises(UnreadableBlockError) as caught:
            decode(data[:29] + b"".join(wrong), KEY)
        assert caught.value.reason in {PageError.ORDER, PageError.CUT}
    with pytest.raises(UnreadableBlockError) as caught:
        decode_pages([cut[1]], int(pages.first[0]))
    assert caught.value.reason is PageError.ORDER


def test_a_newer_version_is_refused_as_that() -> None:
    data, pages = encode(made(3), 7, KEY)
    with pytest.raises(UnreadableBlockError) as caught:
        decode(b"\2" + data[1:], KEY)
    assert caught.value.reason is PageError.VERSION
    with pytest.raises(UnreadableBlockError) as caught:
        decode_pages([b"\3" + data[30 : pages.at[1]]], 1)
    assert caught.value.reason is PageError.VERSION


def test_a_damaged_page_a_wrong_one_and_a_row_that_it_has_not_are_not_confirmed_from() -> None:
    data, pages = encode(made(10), 7, KEY)
    page, first, zero = data[29:], pages.first, np.zeros(1, np.int64)
    for wrong, number, row in (
        (page[:-1] + bytes([page[-1] ^ 1]), first, zero),
        (page[:-1], first, zero),
        (page + b"\0", first, zero),
        (page[:20], first, zero),
        (page, first + 1, zero),
        (page, first, zero + 10),
        (page, first, zero - 1),
    ):
        with pytest.raises(UnreadableBlockError):
            confirm([wrong], number, zero, row)
