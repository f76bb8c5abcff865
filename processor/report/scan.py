"""Reads a topic's partitions for the report, and notes what cannot be read.

Unlike a worker, a report goes on where it can: what could not be read becomes a sentence for its reader.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.errors import RebuildError, StopError
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, ReadPolicy
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.fetch import OutOfRangeError
    from processor.wire.decode import UndecodableError


@dataclass(slots=True)
class Scanned:
    """The outcome of a scan.

    Attributes:
        records: By partition, aborted ones and control records left out.
        problems: What could not be read, sentences.
    """

    records: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class _Note(ReadPolicy):
    """Goes on wherever it can, and adds a sentence to ``problems``."""

    def __init__(self, client: Client, problems: list[str]) -> None:
        self._client = client
        self._problems = problems

    @override
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        self._problems.append(f"{name} was read up to a damaged batch: {error}.")
        return stop

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        tp = error.partition
        start = (await bounds(self._client, [tp]))[tp].start
        at = min(max(start, error.position + 1), stop)
        self._problems.append(
            f"Retention removed offsets {error.position} to {at - 1} of {name} while it was read."
        )
        return at


class Scanner:
    """Reads topics over one client; owns the decoder's buffer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._decoder = Decoder()

    async def scan(
        self,
        spans: Mapping[TopicPartition, tuple[int, int]],
        take: Callable[[int, Columns], None],
        progress: Callable[[int], None],
    ) -> Scanned:
        """Give every record between the offsets to ``take``, once, one partition after the other.

        Args:
            spans: First offset, and the one to stop before; the latter at or below the last stable offset.
            take: Called with a partition's number and columns, which are good for that call only.
            progress: Called with the number of offsets done since its last call.

        Raises:
            StopError: Nothing comes from the broker.
        """
        scanned = Scanned()
        policy = _Note(self._client, scanned.problems)
        for tp, (start, stop) in spans.items():
            reader = PartitionReader(self._client, self._decoder, tp, policy, ahead=True)
            records, at = 0, start
            try:
                async with aclosing(reader.columns(start, stop)) as pieces:
                    async for columns, after in pieces:
                        take(tp.partition, columns)
                        records += len(columns)
                        progress(after - at)
                        at = after
            except RebuildError as error:
                raise StopError(f"a topic cannot be read: {error}. Is the cluster well?") from error
            progress(stop - at)
            scanned.records[tp.partition] = records
        return scanned
