"""A store in RocksDB, one folder per partition. The only importer of rocksdict.

Opened in raw mode: otherwise values are unpickled, and code stored in a value would run (trap 13). Written
through the write-ahead log without fsync: that survives the process being killed, and what a power loss
takes is restored from the changelog.

Keys that begin with `LATE` are those of pages, which come in the order of their keys, are seldom written again,
and bring a checksum of their own that names the key. They lie in files (`processor.state.kv.page_files`)::

    folder/                   RocksDB
    folder/pages/             pages, one file after the other

RocksDB has in a column family of its own the records of where they lie. A write appends its pages first; then
one batch has all the rest at once, by the one log.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)
from typing_extensions import override

from processor.paths import PRIVATE_FOLDER
from processor.state.kv.page_files import PageFiles
from processor.state.kv.store import CorruptStoreError, Store, StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from processor.state.kv.page_files import PreparedPages

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""Up to two: 8 MiB a partition. RocksDB's own 64 MiB would be 16 GiB for 64 partitions."""
RECORDS_BUFFER_BYTES = 256 * 1024
"""Of the records of pages, likewise: 20 bytes for each page of 4 KB."""
LOG_BYTES = 16 * 1024 * 1024
"""A file of the write-ahead log stays until both families have been written since: without a bound, 64 MiB."""
LOG_FILES = 2
CACHE_BYTES = 128 * 1024 * 1024
CACHE = Cache(CACHE_BYTES)
"""What was read lately, for all stores of the process. RocksDB's own is 32 MiB for each family of each: up to
4 GiB with 64 partitions."""
READ_AHEAD_BYTES = 1024 * 1024
"""Of who reads all there is: half the time, and what others have in the cache stays there."""
LATE = b"\xff"
"""What the keys of pages begin with: they are behind all others in byte order too."""
PAGES_FOLDER = "pages"
_PAGES_FAMILY = "pages"

_CORRUPT = ("Corruption", "Invalid argument", "Not implemented")
"""How RocksDB's messages begin where files do not say what they should, options and versions included. The lock
that another process, or this one, has is an "IO error", as a full disk is."""
_GONE = "No such file or directory"
"""An "IO error" too, and yet files that are missing are a state that is not whole."""


def _options(buffer_bytes: int = WRITE_BUFFER_BYTES) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(CACHE)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(2)
    options.set_keep_log_file_num(LOG_FILES)
    options.set_max_total_wal_size(LOG_BYTES)
    # Most bytes are hashes and filters, which cannot be made smaller; trying took 5 % of all CPU time.
    options.set_compression_type(DBCompressionType.none())
    return options


def _reading() -> ReadOptions:
    reading = ReadOptions()
    reading.set_readahead_size(READ_AHEAD_BYTES)
    reading.fill_cache(False)
    return reading


@contextmanager
def _translating(folder: Path) -> Iterator[None]:
    """Say what an error of RocksDB means for the state in the folder."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # rocksdict raises plain Exception
        text = str(error)
        gone = isinstance(error, FileNotFoundError) or (text.startswith("IO error") and _GONE in text)
        if gone or text.startswith(_CORRUPT):
            raise CorruptStoreError(f"{folder}: {text}") from error
        raise StoreError(
            f"local state {folder} cannot be read or written: {text}. It is left as it is: see to the disk "
            "(room, permissions, faults), or let worker.state_dir name another one, and start the worker again"
        ) from error


class RocksStore(Store):
    """A `Store` in a folder.

    Args:
        folder: Made if missing. RocksDB locks it: a second opener fails.

    Raises:
        CorruptStoreError: It is not whole.
        StoreError: It cannot be opened: locked, no permission, disk full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open()

    def _open(self) -> None:
        with _translating(self._folder):
            self._folder.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            families = {_PAGES_FAMILY: _options(RECORDS_BUFFER_BYTES)}
            self._db = Rdict(str(self._folder), _options(), column_families=families)
            self._records = self._db.get_column_family(_PAGES_FAMILY)
            try:
                records = self._read(self._records, b"", _reading())
                self._pages = PageFiles(self._folder / PAGES_FOLDER, records)
            except BaseException:
                self._close_families()
                raise

    @override
    def get(self, key: bytes) -> bytes | None:
        if key.startswith(LATE):
            return self.get_many([key])[0]
        with _translating(self._folder):
            value: bytes | None = self._db.get(key)
        return value

    @override
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        late = [key.startswith(LATE) for key in keys]
        if any(late) and not all(late):
            return [self.get(key) for key in keys]
        with _translating(self._folder):
            if late and late[0]:
                return self._pages.get_many(keys)
            values: list[bytes | None] = self._db.get(list(keys))
        return values

    @override
    def items(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        if not prefix.startswith(LATE):
            yield from self._read(self._db, prefix, _reading())
        if prefix.startswith(LATE) or not prefix:
            with _translating(self._folder):
                yield from self._pages.items(prefix)

    def _read(self, family: Rdict, prefix: bytes, reading: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
        with _translating(self._folder):
            at = family.iter(reading)
            try:
                at.seek(prefix)
                while at.valid():
                    key: bytes = at.key()
                    if not key.startswith(prefix):
                        return
                    yield key, at.value()
                    at.next()
                # An iterator is at its end, too, where it could not read on; those of `Rdict.items` do not say.
                at.status()
            finally:
                # While there is an iterator the folder stays locked, and a traceback would hold this one.
                del at

    @override
    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        late = {key: value for key, value in changes.items() if key.startswith(LATE)}
        rest = {key: value for key, value in changes.items() if key not in late} if late else changes
        gone = None if erased is None or erased[1] <= LATE else (max(erased[0], LATE), erased[1])
        with _translating(self._folder):
            prepared = self._pages.prepare(late, gone) if late or gone else None
            self._db.write(self._batch(rest, erased, prepared))
            if prepared is None:
                return
            self._pages.committed(prepared)
            if prepared.record.erased or prepared.record.deleted:
                self._expire()

    def _batch(
        self,
        changes: Mapping[bytes, bytes | None],
        erased: tuple[bytes, bytes] | None,
        prepared: PreparedPages | None,
    ) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        if erased is not None and erased[0] < LATE:
            batch.delete_range(erased[0], min(erased[1], LATE))
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        if prepared is not None:
            # A handle keeps the folder locked, and a traceback would hold one of `write`.
            records = self._db.get_column_family_handle(_PAGES_FAMILY)
            if prepared.merged is not None:
                batch.delete_range(*prepared.merged, records)
            for key, value in prepared.puts.items():
                batch.put(key, value, records)
        return batch

    def _expire(self) -> None:
        """Delete the records that nobody needs any more, and then files."""
        first = self._pages.expired()
        if first is not None:
            batch = WriteBatch(raw_mode=True)
            batch.delete_range(b"", first, self._db.get_column_family_handle(_PAGES_FAMILY))
            self._db.write(batch)
        self._pages.remove()

    @override
    def clear(self) -> None:
        # The folder is removed and created again, whatever state it is in.
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._open()

    @override
    def close(self) -> None:
        self._pages.close()
        self._close_families()

    def _close_families(self) -> None:
        records, self._records = self._records, self._db
        for family in (records, self._db):
            try:
                family.close()
            except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
                # What could not be written was said when it was tried, and is in the changelog.
                log.warning("closing %s: %s", self._folder, error)


def peek(folder: Path, key: bytes) -> bytes | None:
    """Return one value of a store that may be in use, as it was written last, no page; None: there is none.

    Takes no lock and writes nothing into the folder.

    Raises:
        StoreError: It cannot be read.
    """
    with TemporaryDirectory() as logs, _translating(folder):
        options = Options(raw_mode=True)
        options.set_db_log_dir(logs)  # otherwise RocksDB writes its log beside the data
        db = Rdict(str(folder), options, column_families={}, access_type=AccessType.read_only())
        try:
            value: bytes | None = db.get(key)
        finally:
            db.close()
        return value


def open_store(folder: Path) -> tuple[RocksStore, str | None]:
    """Open a folder, or throw one that is corrupt away, and create it again; returns why that was, or None.

    Raises:
        StoreError: It, or the new one, cannot be opened: no permission, disk full, locked.
    """
    try:
        return RocksStore(folder), None
    except CorruptStoreError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return RocksStore(folder), str(error)
