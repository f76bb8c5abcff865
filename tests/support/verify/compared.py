"""Runs a comparison without Kafka: topics are lists of records, judged by the naive model.

topics = Topics.of([numbered(1), numbered(1)])
topics.sink.pop()
report = compared(topics)
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from processor.verify.partition import PartitionCheck
from processor.verify.report import VerifyReport
from processor.wire.decode import Chunk, Decoder
from schemas.config import Pipeline
from tests.support.kafka.topics import Record
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns
    from processor.engine.ids.clock import PartitionClock
    from processor.verify.unproved import KnownClock
    from tests.support.kafka.topics import New

PIPELINE = Pipeline.model_validate(
    {
        "name": "p",
        "source": "s",
        "sink": "clean",
        "duplicates": "receipts",
        "quarantine": "bad",
        "dedup": {"mode": "watermark", "sequence": {"from": "header", "name": "seq", "format": "int64"}},
    }
)


class Listed:
    """A stream from a list, some records a piece; each piece overwrites the one before it."""

    def __init__(self, name: str, records: Sequence[Record], piece: int, floor: int | None = None) -> None:
        self.name = f"{name}:0"
        self.floor = len(records) if floor is None else floor
        self._decoder = Decoder()
        self._left = [records[start : start + piece] for start in range(0, len(records), piece)]

    async def next(self, *, wait: bool) -> Columns | None:
        """See `processor.verify.align.Stream`."""
        del wait
        if not self._left:
            return None
        made = [batches.on_wire(each) for each in self._left.pop(0)]
        (piece,) = self._decoder.pieces(Chunk(self.name, 0, 0, batches.by_hand(made)))
        return piece.columns


@dataclass
class Topics:
    """What stands in the topics of a partition.

    Attributes:
        source: As it came.
        sink: What passes.
        duplicates: Receipts; written as text here, not by the worker's kernel.
        quarantine: What has no sequence of eight bytes.
    """

    source: list[Record] = field(default_factory=list)
    sink: list[Record] = field(default_factory=list)
    duplicates: list[Record] = field(default_factory=list)
    quarantine: list[Record] = field(default_factory=list)

    @classmethod
    def of(cls, stream: Sequence[New]) -> Self:
        """Judge a stream by the rules of scope partition, strict."""
        made = cls()
        highest: int | None = None
        for offset, each in enumerate(stream):
            came = Record(0, offset, *each, True)
            made.source.append(came)
            value = dict(each.headers).get("seq") or b""
            sequence = int.from_bytes(value, "big", signed=True)
            if len(value) != 8:
                made.quarantine.append(
                    came._replace(headers=(*each.headers, *ours(offset, "header_malformed")))
                )
            elif highest is None or sequence > highest:
                highest = sequence
                made.sink.append(came)
            else:
                receipt = _receipt(came, sequence, highest)
                made.duplicates.append(came._replace(headers=(), value=receipt))
        for topic in (made.sink, made.duplicates, made.quarantine):
            renumber(topic)
        return made


def renumber(records: list[Record]) -> list[Record]:
    """Give records the offsets that they have one after the other."""
    records[:] = [each._replace(offset=place) for place, each in enumerate(records)]
    return records


def ours(offset: int, code: str) -> list[tuple[str, bytes]]:
    """Return the headers that a quarantined record has beside its own."""
    return [
        ("seqmark.error", code.encode()),
        ("seqmark.detail", b"for people"),
        ("seqmark.source", b"s:0:%d" % offset),
    ]


def _receipt(record: Record, sequence: int, watermark: int) -> bytes:
    fields = {
        "pipeline": "p",
        "topic": "s",
        "partition": 0,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "verdict": "duplicate" if sequence == watermark else "late",
        "mode": "watermark",
        "sequence": sequence,
        "watermark": watermark,
    }
    return json.dumps(fields).encode()


def compared(
    topics: Topics,
    piece: int = 1_000,
    *,
    floor: int | None = None,
    receipts_begin_late: bool = False,
    pipeline: Pipeline = PIPELINE,
    clock: PartitionClock | None = None,
    known: KnownClock | None = None,
    secret: bytes | None = None,
) -> VerifyReport:
    """Compare, with so many records a piece; ``floor`` is that of the sink."""
    report = VerifyReport("p", 0, 0, len(topics.source))
    outputs = {
        "clean": Listed("clean", topics.sink, piece, floor),
        "receipts": Listed("receipts", topics.duplicates, piece),
        "bad": Listed("bad", topics.quarantine, piece),
    }
    check = PartitionCheck(
        pipeline, outputs, report, clock, known, receipts_begin_late=receipts_begin_late, secret=secret
    )
    asyncio.run(_compare(check, Listed("s", topics.source, piece)))
    return report


async def _compare(check: PartitionCheck, source: Listed) -> None:
    while (columns := await source.next(wait=False)) is not None:
        await check.take(columns)
    await check.settle()
    await check.finish()


def found(report: VerifyReport) -> list[tuple[int, str]]:
    """Return offset and rule of each violation."""
    return [(each.offset, each.rule.value) for each in report.violations]


def details(report: VerifyReport) -> str:
    """Return what is said of each."""
    return "\n".join(each.detail for each in report.violations)
