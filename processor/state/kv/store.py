"""The interface of a key-value store in which a partition's state survives a restart.

A store keeps keys and values in one place, all changes of one call at once or not at all. It is a mirror of
the changelog: it may lag it, it never leads it, and it can be thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


class StoreError(StopError):
    """The store cannot be opened, read or written, and nothing says that what it holds is wrong.

    The disk is full or fails, or somebody else has the folder. Nothing is thrown away, for a new one would
    fail likewise, again and again; the worker stops and says why.
    """


class CorruptStoreError(StoreError):
    """What the store holds is not whole; throwing it away and restoring is the cure."""


class Store(Protocol):
    """One partition's keys and values; implementations pass `tests/unit/state/test_store.py`."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, None if there is none."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of ``keys``, None where there is none."""
        ...

    def items(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield keys that begin with ``prefix`` and their values, in byte order."""
        ...

    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        """Put values (None deletes), all or none of them, also when the process is killed.

        Args:
            changes: Keys and values.
            erased: Before that, of what is there already, all keys from the first up to the second, which is
                not one of them, are deleted.
        """
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def close(self) -> None:
        """Release files and locks; nothing can be called afterwards."""
        ...
