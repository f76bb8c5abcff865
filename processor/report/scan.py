"""What is in the partitions of a topic between two offsets? Column by column, read_committed, each once.

Unlike a worker, a report goes on where it can: what could not be read becomes a sentence for its reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from processor.errors import RebuildError, StopError
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds
from processor.wire.decode import Decoder, UndecodableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client, TopicPartition
    from processor.wire.decode import Chunk

EMPTY_FETCHES = 60
"""Half a second each: a leader that says nothing for this long is not going to."""


@dataclass(slots=True)
class Scanned:
    """What a scan met.

    Attributes:
        records: By partition, aborted ones and control records left out.
        problems: What could not be read, sentences.
    """

    records: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Scanner:
    """Reads topics with one client; owns the decoder's buffer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._decoder = Decoder()

    async def scan(
        self,
        spans: Mapping[TopicPartition, tuple[int, int]],
        take: Callable[[int, Columns], None],
        progress: Callable[[int], None],
    ) -> Scanned:
        """Give every record between the offsets to ``take``, once, in order within a partition.

        Args:
            spans: First offset, and the one to stop before; the latter at or below the last stable offset.
            take: Called with a partition's number and columns, which are good for that call only.
            progress: Called with the number of offsets done since its last call.

        Raises:
            StopError: Nothing comes from the broker.
        """
        scanned = Scanned(dict.fromkeys((tp.partition for tp in spans), 0))
        positions = {tp: start for tp, (start, stop) in spans.items() if start < stop}
        fetcher, empty = Fetcher(self._client), 0
        while positions:
            before = dict(positions)
            try:
                for chunk in await fetcher.fetch(positions):
                    tp = next(each for each in positions if each.partition == chunk.partition)
                    positions[tp] = self._open(chunk, spans[tp][1], take, scanned)
            except OutOfRangeError as error:
                positions[error.partition] = await self._earliest(error, spans, scanned)
            except RebuildError as error:
                raise StopError(f"a topic cannot be read: {error}") from error
            progress(sum(min(positions[tp], spans[tp][1]) - before[tp] for tp in before))
            empty = 0 if positions != before else empty + 1
            if empty >= EMPTY_FETCHES:
                stuck = ", ".join(f"{tp.topic}:{tp.partition} at {at}" for tp, at in positions.items())
                raise StopError(f"nothing more comes from {stuck}: is the cluster well?")
            positions = {tp: at for tp, at in positions.items() if at < spans[tp][1]}
        return scanned

    def _open(self, chunk: Chunk, stop: int, take: Callable[[int, Columns], None], scanned: Scanned) -> int:
        """Take one chunk in and return the position after it."""
        if not chunk.data:
            # Compaction can leave nothing between a position and the last stable offset.
            return max(chunk.position, min(chunk.last_stable_offset, stop))
        at = chunk.position
        try:
            for piece in self._decoder.pieces(chunk):
                wanted = int(np.searchsorted(piece.columns.offset, stop))
                take(chunk.partition, piece.columns.rows(0, wanted))
                scanned.records[chunk.partition] += wanted
                at = piece.next_offset
        except UndecodableError as error:
            scanned.problems.append(f"{chunk.topic}:{chunk.partition} was read up to a damaged batch: {error}.")
            return stop
        return at

    async def _earliest(
        self, error: OutOfRangeError, spans: Mapping[TopicPartition, tuple[int, int]], scanned: Scanned
    ) -> int:
        """Return where to go on: retention removes records while we read, too."""
        tp, stop = error.partition, spans[error.partition][1]
        start = (await bounds(self._client, [tp]))[tp].start
        at = min(max(start, error.position + 1), stop)
        scanned.problems.append(
            f"Retention removed offsets {error.position} to {at - 1} of {tp.topic}:{tp.partition} while it was "
            "read."
        )
        return at
