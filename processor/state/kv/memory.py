"""A store that forgets at exit: for tests, and where a partition's state is small and Kafka is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from processor.state.kv.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


class MemoryStore(Store):
    """Keys and values in a dictionary."""

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
