"""Keeps pages in files that are only appended to, and reads each with one call.

A file holds nothing but pages, one behind the other. Where they lie is said by records
(`processor.state.kv.page_records`), which RocksDB keeps: a write first appends the pages, then puts its
record in the same batch with all else that it changes. So a write that was cut short leaves bytes that no
record speaks of, which the next one overwrites, or the next start cuts off.

A page is not checked here: what lies under these keys brings a checksum of its own that names the key
(`processor.engine.ids.page`). After a power loss there may be a record and no pages, or others.

A file goes when no page in it is of use any more. Pages are read by `pread` and not mapped into memory: a disk
that fails then is an error and no signal that ends the process, and what was read does not count as memory of
the worker, which `worker.memory_limit` is about.
"""

from __future__ import annotations

import heapq
import os
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from processor.paths import PRIVATE_FILE, PRIVATE_FOLDER
from processor.state.kv.page_records import (
    FILE_SHIFT,
    NUMBER_BYTES,
    OFFSET_MASK,
    PageColumns,
    PageRecord,
    sorted_pages,
    split,
)
from processor.state.kv.store import CorruptStoreError, StoreError
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.state.kv.page_records import Name

# In memory a page takes 20 bytes, whatever its size. The pages of a front
# (`processor.state.kv.page_records`) are sorted arrays that grow at their end: pages come in the order of
# their keys, but for those that are written once more.

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


SUFFIX = ".pages"
MOST_FILE_BYTES = 64 * 1024 * 1024
LEAST_FILE_BYTES = int(os.environ.get("SEQMARK_TEST_PAGE_FILE_BYTES", str(4 * 1024 * 1024)))
FILE_SHARE = 8
"""The next file is begun at this part of all pages, within the two bounds: expired pages wait for the rest of
their file, and so many files are open."""
MERGED_RECORDS = 1024
"""Records that are made one: a start reads them all."""
READ_BYTES = 1024 * 1024
"""Read in one go where all pages are read."""
_SEQUENCE_BYTES = 8


class PreparedPages(NamedTuple):
    """What is to be changed of the records for a write whose pages are appended.

    Attributes:
        record: What the write changes.
        since: The first record that is made one the next time.
        puts: Records by key.
        merged: The keys of records that one of ``puts`` takes the place of, from the first up to the second.
    """

    record: PageRecord
    since: int
    puts: dict[bytes, bytes]
    merged: tuple[bytes, bytes] | None


class PageFiles:
    """The pages of one store.

    Nobody else may have them open (RocksDB's lock sees to that).

    Args:
        folder: Where the files lie; made with the first.
        records: What has been written of them, by key and in order.

    Raises:
        CorruptStoreError: A record is not whole, or a file is missing or too short.
    """

    def __init__(self, folder: Path, records: Iterable[tuple[bytes, bytes]]) -> None:
        self._folder = folder
        self._directory = PageDirectory()
        self._files: dict[int, int] = {}
        self._closed = False
        # Of each file, the first record that is about it; and the next record.
        self._first: dict[int, int] = {}
        self._next = 1
        self._file = self._end = 0
        try:
            for key, value in records:
                self._load(key, value)
            self._find_files()
        except CorruptStateError as error:
            raise CorruptStoreError(f"{folder}: {error}") from error
        except BaseException:
            self.close()
            raise
        self._bytes = self._directory.size_bytes
        self._begin_merging(self._next, self._end)

    def _load(self, key: bytes, value: bytes) -> None:
        record = PageRecord.decode(key, value)
        self._directory.apply(record)
        self._next = int.from_bytes(key, "big")
        self._first.setdefault(record.file, self._next)
        self._next += 1
        self._file, self._end = record.file, record.end

    def _find_files(self) -> None:
        """Open the files that are of use, and remove the others."""
        needed = self._directory.reach()
        if self._file:
            needed[self._file] = self._end
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if path.name not in {_name(file) for file in needed}:
                path.unlink()
        for file, size in needed.items():
            path = self._folder / _name(file)
            try:
                self._files[file] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise CorruptStoreError(f"{path} is missing") from error
            there = os.fstat(self._files[file]).st_size
            if there < size:
                raise CorruptStoreError(f"{path} has {there} bytes, expected {size}")
        if self._file:
            os.ftruncate(self._files[self._file], self._end)

    # ---------------------------------------------------------------- reading

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the pages of ``keys``, None where there is none."""
        self._require_open()
        opened, pread = self._files, os.pread
        files, offsets, sizes = self._directory.find(keys)
        found = [
            None if file < 0 else pread(opened[file], size, offset)
            for file, offset, size in zip(files, offsets, sizes, strict=True)
        ]
        for page, file, size in zip(found, files, sizes, strict=True):
            if page is not None and len(page) != size:
                raise CorruptStoreError(f"{self._folder / _name(file)} is cut")
        return found

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin with ``prefix`` and their pages, in byte order."""
        self._require_open()
        for file, offset, keys, sizes in self._directory.stretches(prefix, READ_BYTES):
            self._require_open()
            if file not in self._files:
                raise StoreError(f"{self._folder / _name(file)} was erased while it was read")
            data = os.pread(self._files[file], sum(sizes), offset)
            at = 0
            for key, size in zip(keys, sizes, strict=True):
                page, at = data[at : at + size], at + size
                if len(page) != size:
                    raise CorruptStoreError(f"{self._folder / _name(file)} is cut")
                yield key, page

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._folder} is closed")

    # ---------------------------------------------------------------- writing

    def prepare(
        self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None
    ) -> PreparedPages | None:
        """Append pages, and return what the same write has to change of the records; None: nothing.

        Args:
            changes: Pages by key; None deletes.
            erased: As `Store.write` has it.
        """
        self._require_open()
        pages = {key: page for key, page in changes.items() if page is not None}
        deleted = [key for key, page in changes.items() if page is None]
        if deleted:
            files = self._directory.find(deleted)[0]
            deleted = [key for key, file in zip(deleted, files, strict=True) if file >= 0]
        ranges = [erased] if erased is not None and self._directory.touched_by(*erased) else []
        if not (pages or deleted or ranges):
            return None
        file, offset = (self._file + 1, 0) if pages and self._full() else (self._file, self._end)
        end = self._append(file, offset, pages.values()) if pages else offset
        record = PageRecord(file, end, ranges, deleted)
        record.pages = sorted_pages(pages, map(len, pages.values()), file, offset)
        puts, merged = {}, None
        since, begin = self._since
        if file != self._file or self._next - since >= MERGED_RECORDS:
            if self._next - since > 1:
                merged = _sequence(since), _sequence(self._next)
                puts[merged[0]] = self._merged(begin).encode(merged[0])
            since = self._next
        key = _sequence(self._next)
        puts[key] = record.encode(key)
        return PreparedPages(record, since, puts, merged)

    def _full(self) -> bool:
        """Whether the next pages begin a file."""
        most = max(min(self._bytes // FILE_SHARE, MOST_FILE_BYTES), LEAST_FILE_BYTES)
        return not self._file or self._end >= most

    def _append(self, file: int, offset: int, pages: Iterable[bytes]) -> int:
        """Write pages, and return where they end."""
        if file not in self._files:
            self._folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._files[file] = os.open(self._folder / _name(file), flags, PRIVATE_FILE)
        left, at = memoryview(b"".join(pages)), offset
        try:
            while left:
                written = os.pwrite(self._files[file], left, at)
                left, at = left[written:], at + written
        except OSError:
            with suppress(OSError):  # what was written of it takes no room
                os.ftruncate(self._files[file], offset)
            raise
        return at

    def _begin_merging(self, sequence: int, offset: int) -> None:
        """From this record on, whose pages lie there, records are made one the next time."""
        self._since = sequence, offset
        self._erased: list[tuple[bytes, bytes]] = []
        self._deleted: list[bytes] = []

    def _merged(self, begin: int) -> PageRecord:
        pages = self._directory.behind(self._file, begin)
        return PageRecord(self._file, self._end, self._erased, self._deleted, pages)

    def committed(self, prepared: PreparedPages) -> None:
        """Take what was prepared as written."""
        record = prepared.record
        if record.file != self._file:
            self._begin_merging(self._next, 0)
        elif prepared.since != self._since[0]:
            self._begin_merging(self._next, self._end)
        self._erased += record.erased
        self._deleted += record.deleted
        self._directory.apply(record)
        self._first.setdefault(record.file, self._next)
        self._next += 1
        self._file, self._end = record.file, record.end
        self._bytes += sum(int(each.size.sum()) for each in record.pages.values())

    def expired(self) -> bytes | None:
        """Return the key of the first record that is of use, where there are others before it.

        To be called when something was erased, and those before it to be deleted; then `remove` to be called.
        """
        self._bytes = self._directory.size_bytes
        first = self._directory.first_file() or self._file
        gone = [file for file in self._first if file < first]
        for file in gone:
            del self._first[file]
        return _sequence(self._first[first]) if gone else None

    def remove(self) -> None:
        """Remove the files that no page lies in."""
        live = {*self._directory.reach(), self._file}
        for file in [file for file in self._files if file not in live]:
            os.close(self._files.pop(file))
            with suppress(FileNotFoundError):
                (self._folder / _name(file)).unlink()

    def close(self) -> None:
        """Close all files; nothing can be called afterwards."""
        self._closed = True
        while self._files:
            os.close(self._files.popitem()[1])


def _name(file: int) -> str:
    return f"{file:010d}{SUFFIX}"


def _sequence(number: int) -> bytes:
    return number.to_bytes(_SEQUENCE_BYTES, "big")
