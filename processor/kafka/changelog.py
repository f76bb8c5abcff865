"""Reads a changelog partition as the state's restore asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from processor.errors import RebuildError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.state.changelog import ChangelogBounds

if TYPE_CHECKING:
    from processor.kafka.client import Client
    from processor.kafka.fetch import OutOfRangeError
    from processor.wire.decode import Decoder


class _OnlyCopy(StopReading):
    """Stops at a damaged batch, for nothing else knows what it said; rebuilds where records were deleted."""

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        raise RebuildError("changelog", f"{name}: {error}") from error


_POLICY = _OnlyCopy(damage="; restore the topic from a copy", loss="")


class ChangelogPartition(PartitionReader):
    """A `processor.state.changelog.Changelog` in Kafka.

    Several may share a decoder: whoever takes columns is done with them before the next await.
    """

    def __init__(self, client: Client, decoder: Decoder, topic: str, partition: int) -> None:
        super().__init__(client, decoder, TopicPartition(topic, partition), _POLICY)

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends now."""
        return ChangelogBounds(*(await bounds(self._client, [self._tp]))[self._tp])
