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

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from processor.paths import PRIVATE_FILE, PRIVATE_FOLDER
from processor.state.kv.page_directory import PageDirectory
from processor.state.kv.page_records import PageRecord, sorted_pages
from processor.state.kv.store import CorruptStoreError, StoreError
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

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
