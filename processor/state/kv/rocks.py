"""A store in RocksDB, one folder per partition. The only importer of rocksdict.

Opened in raw mode: otherwise values are unpickled, and code stored in a value would run (trap 13). Written
through the write-ahead log without fsync: that survives the process being killed, and what a power loss
takes is restored from the changelog.

Keys that begin with `LATE` are in a column family of their own: pages that come in the order of their keys and
are never written again. Beside values that are rewritten all the time each compaction of these would write
all of them again. One batch goes to both at once, by the one log.
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
from processor.state.kv.store import CorruptStoreError, Store, StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""Up to two for each family: 16 MiB a partition. RocksDB's own 64 MiB would be 16 GiB for 64 partitions."""
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
"""What the keys of the second family begin with: they are behind all others in byte order too."""
_LATE_FAMILY = "late"

_CORRUPT = ("Corruption", "Invalid argument", "Not implemented")
"""How RocksDB's messages begin where files do not say what they should, options and versions included. The lock
that another process, or this one, has is an "IO error", as a full disk is."""
_GONE = "No such file or directory"
"""An "IO error" too, and yet files that are missing are a state that is not whole."""


def _options() -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(CACHE)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_keep_log_file_num(LOG_FILES)
    options.set_max_total_wal_size(LOG_BYTES)
    # Most bytes are hashes and filters, which cannot be made smaller; trying took 5 % of all CPU time.
    options.set_compression_type(DBCompressionType.none())
    return options


@contextmanager
def _translating(folder: Path) -> Iterator[None]:
    """Say what an error of RocksDB means for the state in the folder."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # rocksdict raises plain Exception
        text = str(error)
        if text.startswith(_CORRUPT) or (text.startswith("IO error") and _GONE in text):
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
            self._db = Rdict(str(self._folder), _options(), column_families={_LATE_FAMILY: _options()})
            self._late = self._db.get_column_family(_LATE_FAMILY)

    @override
    def get(self, key: bytes) -> bytes | None:
        with _translating(self._folder):
            family = self._late if key.startswith(LATE) else self._db
            value: bytes | None = family.get(key)
        return value

    @override
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        families = {key.startswith(LATE) for key in keys}
        if len(families) > 1:
            return [self.get(key) for key in keys]
        with _translating(self._folder):
            values: list[bytes | None] = (self._late if True in families else self._db).get(list(keys))
        return values

    @override
    def items(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        reading = ReadOptions()
        reading.set_readahead_size(READ_AHEAD_BYTES)
        reading.fill_cache(False)
        for family in (self._late,) if prefix.startswith(LATE) else (self._db, self._late):
            yield from self._read(family, prefix, reading)

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
        with _translating(self._folder):
            self._db.write(self._batch(changes, erased))

    def _batch(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None) -> WriteBatch:
        # A handle keeps the folder locked, and a traceback would hold one of `write`.
        late = self._db.get_column_family_handle(_LATE_FAMILY)
        batch = WriteBatch(raw_mode=True)
        if erased is not None:
            batch.delete_range(*erased, late if erased[0].startswith(LATE) else None)
            if erased[1].startswith(LATE) and not erased[0].startswith(LATE):
                batch.delete_range(LATE, erased[1], late)
        for key, value in changes.items():
            family = late if key.startswith(LATE) else None
            if value is None:
                batch.delete(key, family)
            else:
                batch.put(key, value, family)
        return batch

    @override
    def clear(self) -> None:
        # The folder is removed and created again, whatever state it is in.
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._open()

    @override
    def close(self) -> None:
        late, self._late = self._late, self._db
        for family in (late, self._db):
            try:
                family.close()
            except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
                # What could not be written was said when it was tried, and is in the changelog.
                log.warning("closing %s: %s", self._folder, error)


def peek(folder: Path, key: bytes) -> bytes | None:
    """Return one value of a store that may be in use, as it was written last; None: there is none.

    Takes no lock and writes nothing into the folder.

    Raises:
        StoreError: It cannot be read.
    """
    with TemporaryDirectory() as logs, _translating(folder):
        options = Options(raw_mode=True)
        options.set_db_log_dir(logs)  # otherwise RocksDB writes its log beside the data
        db = Rdict(
            str(folder),
            options,
            column_families={_LATE_FAMILY: Options(raw_mode=True)},
            access_type=AccessType.read_only(),
        )
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
