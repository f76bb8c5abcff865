"""A store that forgets at exit: for tests, and where a partition's state is small and Kafka is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


class MemoryStore:
    """A `Store` in a dictionary."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """See `Store.get`."""
        return self._values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Store.get_many`."""
        return [self._values.get(key) for key in keys]

    def items(self, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """See `Store.items`."""
        for key in sorted(self._values):
            if key.startswith(prefix):
                yield key, self._values[key]

    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        """See `Store.write`."""
        if erased is not None:
            first, after = erased
            self._values = {key: value for key, value in self._values.items() if not first <= key < after}
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def clear(self) -> None:
        """See `Store.clear`."""
        self._values.clear()

    def close(self) -> None:
        """See `Store.close`."""
