"""Goes on reading wherever it can, unlike a worker, and says what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.kafka.offsets import bounds
from processor.kafka.reader import ReadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.kafka.client import Client
    from processor.kafka.fetch import OutOfRangeError
    from processor.wire.decode import UndecodableError


@dataclass(frozen=True)
class NoteAndGoOn(ReadPolicy):
    """Steps over what cannot be decoded and what retention has removed.

    Attributes:
        client: Whom to ask where a partition begins now.
        note: Takes a sentence about what was left out.
    """

    client: Client
    note: Callable[[str], None]

    @override
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        after = stop if error.next_offset is None else min(error.next_offset, stop)
        self.note(f"{name}: {error}; offsets {error.offset} to {after - 1} were stepped over.")
        return after

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        tp = error.partition
        start = (await bounds(self.client, [tp]))[tp].start
        at = min(max(start, error.position + 1), stop)
        self.note(f"Retention removed offsets {error.position} to {at - 1} of {name} while it was read.")
        return at
