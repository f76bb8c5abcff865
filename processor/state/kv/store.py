"""The interface of a key-value store in which a partition's state survives a restart, and one that forgets.

A store keeps keys and values in one place, all changes of one call at once or not at all. It is a mirror of
the changelog: it may lag it, it never leads it, and it can be thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

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


class MemoryStore(Store):
    """Keys and values in a dictionary: for tests, and where a partition's state is small and Kafka is near."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    @override
    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    @override
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._values.get(key) for key in keys]

    @override
    def items(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        for key in sorted(self._values):
            if key.startswith(prefix):
                yield key, self._values[key]

    @override
    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        if erased is not None:
            first, after = erased
            self._values = {key: value for key, value in self._values.items() if not first <= key < after}
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    @override
    def clear(self) -> None:
        self._values.clear()

    @override
    def close(self) -> None:
        """Keep all: another table may be opened over it."""
