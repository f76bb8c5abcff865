"""Where does a partition's state survive a restart?

A store keeps keys and values in one place, all changes of one call at once or not at all. It is a mirror of
the changelog: it may lag it, it never leads it, and it can be thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


class StoreError(Exception):
    """The store cannot be opened or read; throwing it away and restoring is the cure."""


class Store(Protocol):
    """One partition's keys and values; implementations pass `tests/unit/test_store.py`."""

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
