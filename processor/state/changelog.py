"""A changelog partition as what restores a state sees it; `processor.kafka.changelog` has it in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.batch.columns import Columns


class ChangelogBounds(NamedTuple):
    """Offsets of a changelog partition."""

    start: int
    stable: int
    end: int


class Changelog(Protocol):
    """Reads one changelog partition."""

    name: str
    """``topic:partition``, for messages."""

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends now."""
        ...

    def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        """Yield committed records, good until the next await, and the position after them, up to ``stop``."""
        ...
