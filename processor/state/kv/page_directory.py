"""Finds in which file and where in it each page lies.

In memory a page takes 20 bytes, whatever its size. The pages of a front (`processor.state.kv.page_records`) are
sorted arrays that grow at their end: pages come in the order of their keys, but for those that are
written once more.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from processor.state.kv.page_records import FILE_SHIFT, NUMBER_BYTES, OFFSET_MASK, PageColumns, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from processor.state.kv.page_records import Name, PageRecord

_STEP = 256
"""Pages that `PageDirectory.stretches` looks at in one go: about 1 MB."""


class PageStretch(NamedTuple):
    """Pages that lie one behind the other in a file, in the order of their keys.

    Attributes:
        file: Its number.
        offset: Where the first one begins.
        keys: Of each page.
        sizes: Of each page.
    """

    file: int
    offset: int
    keys: list[bytes]
    sizes: list[int]


class PageDirectory:
    """Where all pages of a store lie."""

    def __init__(self) -> None:
        self._series: dict[Name, _Series] = {}

    def __len__(self) -> int:
        """Return how many pages there are."""
        return sum(len(each) for each in self._series.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all pages."""
        return sum(int(each.places.size.sum(dtype=np.int64)) for each in self._series.values())

    def apply(self, record: PageRecord) -> None:
        """Take over what a write has changed; in the order in which they were."""
        for first, after in record.erased:
            for each in self._series.values():
                each.erase(each.below(first), each.below(after))
        for key in record.deleted:
            name, number = split(key)
            if name in self._series:
                self._series[name].delete(number)
        for name, places in record.pages.items():
            if name not in self._series:
                self._series[name] = _Series(*name)
            self._series[name].put(places)
        if record.erased or record.deleted:
            self._series = {name: each for name, each in self._series.items() if len(each)}

    def touched_by(self, first: bytes, after: bytes) -> bool:
        """Whether there are pages of keys from ``first`` up to ``after``."""
        return any(each.below(first) < each.below(after) for each in self._series.values())

    def find(self, keys: Sequence[bytes]) -> tuple[list[int], list[int], list[int]]:
        """Return of each key's page the file, -1 where there is none, the offset and the bytes."""
        place, size = np.zeros(len(keys), np.uint64), np.full(len(keys), -1, np.int64)
        for (name, rows), numbers in _by_series(keys):
            series = self._series.get(name)
            if series is not None:
                place[rows], size[rows] = series.find(numbers)
        file = np.where(size < 0, -1, (place >> np.uint64(FILE_SHIFT)).astype(np.int64))
        return file.tolist(), (place & np.uint64(OFFSET_MASK)).tolist(), size.tolist()

    def behind(self, file: int, offset: int) -> dict[Name, PageColumns]:
        """Return the pages that lie there or behind it."""
        begin = np.uint64(file << FILE_SHIFT | offset)
        found = {}
        for name, each in self._series.items():
            late = each.places.part(np.flatnonzero(each.places.place >= begin))
            if late.number.size:
                found[name] = late
        return found

    def first_file(self) -> int | None:
        """Return the lowest number of a file that a page lies in; None: there is no page."""
        least = [int(each.places.place.min()) for each in self._series.values()]
        return min(least) >> FILE_SHIFT if least else None

    def reach(self) -> dict[int, int]:
        """Return for each file that a page lies in where its last one ends."""
        reach: dict[int, int] = {}
        for each in self._series.values():
            _, place, size = each.places
            stop = (place & np.uint64(OFFSET_MASK)).astype(np.int64) + size
            files, which = np.unique(place >> np.uint64(FILE_SHIFT), return_inverse=True)
            last = np.zeros(files.size, np.int64)
            np.maximum.at(last, which, stop)
            for file, end in zip(files.tolist(), last.tolist(), strict=True):
                reach[file] = max(end, reach.get(file, 0))
        return reach

    def stretches(self, prefix: bytes, most_bytes: int) -> Iterator[PageStretch]:
        """Yield the pages whose keys begin with ``prefix``, in byte order, as they are now."""
        parts: list[tuple[bytes, bytes, Iterator[PageStretch]]] = []
        for each in self._series.values():
            begin, stop = each.below(prefix), each.below(_behind(prefix))
            if begin < stop:
                places = each.places.part(slice(begin, stop))
                ends = each.key(int(places.number[0])), each.key(int(places.number[-1]))
                parts.append((*ends, _stretches(each, places, most_bytes)))
        parts.sort(key=lambda part: part[0])
        if all(before[1] < after[0] for before, after in pairwise(parts)):
            for _, _, some in parts:
                yield from some
        else:
            singles = ((_single(stretch) for stretch in some) for _, _, some in parts)
            flat = [(one for many in each for one in many) for each in singles]
            yield from heapq.merge(*flat, key=lambda one: one.keys[0])


class _Series:
    """The pages of one front, sorted by number."""

    def __init__(self, front: bytes, width: int) -> None:
        self._front, self._width = front, width
        self._all = _empty(0)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def places(self) -> PageColumns:
        """All of them; what comes later changes nothing in what was returned."""
        return self._all.part(slice(self._begin, self._end))

    def key(self, number: int) -> bytes:
        return self._front + number.to_bytes(self._width, "big")

    def below(self, key: bytes) -> int:
        """Return how many of its keys lie below one, in byte order."""
        front = self._front
        if not key.startswith(front):
            return 0 if key < front else len(self)
        rest = key[len(front) :]
        number = int.from_bytes(rest[: self._width].ljust(self._width, b"\0"), "big")
        side: Literal["left", "right"] = "right" if len(rest) > self._width else "left"
        return int(self.places.number.searchsorted(np.uint64(number), side))

    def find(self, numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return place and bytes of each one's page, -1 where there is none."""
        number, place, size = self.places
        at = np.minimum(np.searchsorted(number, numbers), number.size - 1)
        return place[at], np.where(number[at] == numbers, size[at].astype(np.int64), -1)

    def put(self, places: PageColumns) -> None:
        """Put pages, which are sorted, in place of those with the same numbers."""
        if len(self) and places.number[0] <= self.places.number[-1]:
            self._merge(places)
            return
        count = places.number.size
        if self._end + count > self._all.number.size:
            room, before = _empty((len(self) + count) * 9 // 8 + 64), self.places
            _fill(room, slice(0, len(self)), before)
            self._all, self._begin, self._end = room, 0, len(self)
        _fill(self._all, slice(self._end, self._end + count), places)
        self._end += count

    def _merge(self, places: PageColumns) -> None:
        mine = self.places
        both = PageColumns(
            np.concatenate((mine.number, places.number)),
            np.concatenate((mine.place, places.place)),
            np.concatenate((mine.size, places.size)),
        )
        order = np.argsort(both.number, kind="stable")
        number = both.number[order]
        last = np.flatnonzero(np.append(number[1:] != number[:-1], [True]))
        self._set(both.part(order[last]))

    def delete(self, number: int) -> None:
        at = int(np.searchsorted(self.places.number, np.uint64(number)))
        if at < len(self) and int(self.places.number[at]) == number:
            self.erase(at, at + 1)

    def erase(self, begin: int, stop: int) -> None:
        if begin >= stop:
            return
        if begin == 0:
            self._begin += stop
        else:
            self._set(self.places.part(np.r_[0:begin, stop : len(self)]))

    def _set(self, places: PageColumns) -> None:
        self._all, self._begin, self._end = places, 0, places.number.size


def _by_series(keys: Sequence[bytes]) -> list[tuple[tuple[Name, list[int] | slice], NDArray[np.uint64]]]:
    """Return for each series its name, which of the keys are its, and their numbers."""
    if not keys:
        return []
    size = len(keys[0])
    if size >= NUMBER_BYTES and all(len(key) == size for key in keys):
        table = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, size)
        front = size - NUMBER_BYTES
        if (table[:, :front] == table[0, :front]).all():
            numbers = np.ascontiguousarray(table[:, front:]).view(">u8").ravel().astype(np.uint64)
            return [(((keys[0][:front], NUMBER_BYTES), slice(None)), numbers)]
    rows: dict[Name, tuple[list[int], list[int]]] = {}
    for row, key in enumerate(keys):
        name, number = split(key)
        mine = rows.setdefault(name, ([], []))
        mine[0].append(row)
        mine[1].append(number)
    return [((name, which), np.array(numbers, np.uint64)) for name, (which, numbers) in rows.items()]


def _stretches(series: _Series, places: PageColumns, most_bytes: int) -> Iterator[PageStretch]:
    for begin in range(0, places.number.size, _STEP):
        number, place, size = places.part(slice(begin, begin + _STEP))
        ends = np.cumsum(size, dtype=np.int64)
        apart = place[1:] != place[:-1] + size[:-1]
        full = ends[1:] // most_bytes != ends[:-1] // most_bytes
        cuts = [0, *(np.flatnonzero(apart | full) + 1).tolist(), number.size]
        keys = [series.key(each) for each in number.tolist()]
        for start, stop in pairwise(cuts):
            at = int(place[start])
            sizes = size[start:stop].tolist()
            yield PageStretch(at >> FILE_SHIFT, at & OFFSET_MASK, keys[start:stop], sizes)


def _single(stretch: PageStretch) -> Iterator[PageStretch]:
    offset = stretch.offset
    for key, size in zip(stretch.keys, stretch.sizes, strict=True):
        yield PageStretch(stretch.file, offset, [key], [size])
        offset += size


def _behind(prefix: bytes) -> bytes:
    """Return a key behind all that begin with ``prefix``."""
    kept = prefix.rstrip(b"\xff")
    if kept:
        return kept[:-1] + bytes([kept[-1] + 1])
    return b"\xff" * (len(prefix) + 256)


def _empty(count: int) -> PageColumns:
    return PageColumns(np.empty(count, np.uint64), np.empty(count, np.uint64), np.empty(count, np.uint32))


def _fill(columns: PageColumns, rows: slice, values: PageColumns) -> None:
    columns.number[rows], columns.place[rows], columns.size[rows] = values
