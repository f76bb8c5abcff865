"""A store in RocksDB, one folder a partition. The only importer of rocksdict.

Opened in raw mode: otherwise values are unpickled, and code stored in a value would run (trap 13). Written
through the write-ahead log without fsync: that survives the process being killed, and what a power loss
takes is restored from the changelog.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from rocksdict import Options, Rdict, ReadOptions, WriteBatch

from processor.state.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""RocksDB's 64 MiB a database would be 4 GiB for 64 partitions."""
LOG_FILES = 2
READ_AHEAD_BYTES = 1024 * 1024
"""Of who reads all there is: half the time, and what others have in the cache stays there."""

_LOCKED = ("While lock file:", "lock hold by current process")
"""How RocksDB says that another process, or this one, has the folder open. "lock" alone would not do: paths may
hold it, and so does "block checksum mismatch"."""


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_keep_log_file_num(LOG_FILES)
    return options


class RocksStore:
    """A `Store` in a folder.

    Args:
        folder: Made if missing. RocksDB locks it: a second opener fails.

    Raises:
        StoreError: It cannot be opened: corrupt, locked, no permission, disk full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._db = self._open()

    def _open(self) -> Rdict:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return Rdict(str(self._folder), _options())
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreError(f"{self._folder}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        """See `Store.get`."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreError(f"{self._folder}: {error}") from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Store.get_many`."""
        try:
            values: list[bytes | None] = self._db.get(list(keys))
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreError(f"{self._folder}: {error}") from error
        return values

    def items(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """See `Store.items`."""
        try:
            reading = ReadOptions()
            reading.set_readahead_size(READ_AHEAD_BYTES)
            reading.fill_cache(False)
            for key, value in self._db.items(from_key=prefix, read_opt=reading):
                if not key.startswith(prefix):
                    return
                yield key, value
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreError(f"{self._folder}: {error}") from error

    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        """See `Store.write`."""
        batch = WriteBatch(raw_mode=True)
        if erased is not None:
            batch.delete_range(*erased)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        try:
            self._db.write(batch)
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreError(f"{self._folder}: {error}") from error

    def clear(self) -> None:
        """See `Store.clear`: the folder is removed and made anew, whatever state it is in."""
        self._db.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._db = self._open()

    def close(self) -> None:
        """See `Store.close`."""
        self._db.close()


def open_store(folder: Path) -> tuple[RocksStore, str | None]:
    """Open a folder; one that cannot be opened is thrown away and made anew.

    Returns:
        The store, and why it had to be made anew (None: it did not).

    Raises:
        StoreError: Even the new one cannot be opened: no permission, disk full, locked.
    """
    try:
        return RocksStore(folder), None
    except StoreError as error:
        if any(sign in str(error.__cause__) for sign in _LOCKED):
            raise
        shutil.rmtree(folder, ignore_errors=True)
        return RocksStore(folder), str(error)
