"""Compares what a worker has made of a topic, whose pipeline began with the archive, with the truth.

Pure: records as they were read go in, counts and differences come out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from processor.demo.batch.archive import COLLISIONS_AT_REST, COPIES_AT_REST, DAYS, RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.demo.batch.archive import ArchiveRow
    from processor.kafka.plain.consumer import Seen

_SHOWN = 5


class TopicRecords(NamedTuple):
    """All records of the four topics, one partition each."""

    source: Sequence[Seen]
    sink: Sequence[Seen]
    duplicates: Sequence[Seen]
    quarantine: Sequence[Seen]


@dataclass(slots=True)
class StreamCheck:
    """What was found.

    Attributes:
        records: Of the three outputs.
        source: Records of the topic.
        became: Records that have become what they must, by kind.
        differences: For people; empty where all is as it should be.
    """

    records: int
    source: int
    became: Counter[RowKind] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def check_stream(topic: str, rows: Sequence[ArchiveRow], found: TopicRecords, backfill: str) -> StreamCheck:
    """Compare each record with its row.

    Args:
        topic: The source, of one partition.
        rows: By offset.
        found: What is in the topics.
        backfill: The name of the backfill that the pipeline began with.
    """
    outcome = StreamCheck(len(found.sink) + len(found.duplicates) + len(found.quarantine), len(found.source))
    wrong = outcome.differences
    if [value for _, value, *_ in found.source] != [row.line(corrected=True) for row in rows]:
        wrong.append("the topic does not hold what was sent")
        return outcome
    receipts = {
        each["offset"]: each for each in (orjson.loads(value or b"") for _, value, *_ in found.duplicates)
    }
    _check_outputs(rows, found, receipts, outcome)
    told = [row for row in rows if row.kind in {*COPIES_AT_REST, *COLLISIONS_AT_REST}]
    for row in told:
        receipt = receipts.get(row.row, {})
        must = _receipt(topic, row, backfill)
        if differ := {key: receipt.get(key) for key, value in must.items() if receipt.get(key) != value}:
            wrong.append(f"the receipt of {topic}:0:{row.row} says {differ}, must say {must}")
        elif row.kind in COPIES_AT_REST:
            outcome.became[row.kind] += 1
    if len(found.duplicates) != len(told):
        wrong.append(f"there are {len(found.duplicates):,} receipts, must be {len(told):,}")
    if len(wrong) > _SHOWN:
        wrong[_SHOWN:] = [f"and {len(wrong) - _SHOWN:,} more differences on the topic"]
    return outcome


def _check_outputs(
    rows: Sequence[ArchiveRow], found: TopicRecords, receipts: dict[int, Any], outcome: StreamCheck
) -> None:
    """Compare clean topic and quarantine, in order."""
    passes = [row for row in rows if row.kind is RowKind.FIRST or row.kind in COLLISIONS_AT_REST]
    bad = [row for row in rows if row.kind is RowKind.BAD]
    for name, must, are in (("clean topic", passes, found.sink), ("quarantine", bad, found.quarantine)):
        if len(must) != len(are):
            outcome.differences.append(f"the {name} has {len(are):,} records, must have {len(must):,}")
    for row, seen in zip(passes, found.sink, strict=False):
        if _passed(row, seen, receipts.get(row.row, {}).get("new_id")):
            outcome.became[row.kind] += 1
        else:
            outcome.differences.append(f"the clean topic has {seen}, must have what was sent at {row.row}")
    for row, seen in zip(bad, found.quarantine, strict=False):
        _, value, headers, *_ = seen
        if (value, dict(headers).get("seqmark.error")) == (row.line(corrected=True), row.fault.encode()):
            outcome.became[row.kind] += 1
        else:
            outcome.differences.append(f"quarantine has {seen}, must have what was sent at {row.row}")


def _passed(row: ArchiveRow, seen: Seen, new_id: str | None) -> bool:
    """Say whether a record is its row: as it came, or with the new id that its note names."""
    _, value, headers, time_ms, _ = seen
    if time_ms != row.sent_ms:
        return False
    if row.kind is RowKind.FIRST:
        return value == row.line(corrected=True) and not headers
    must = row.content(corrected=True) | {"event_id": new_id}
    original = [("seqmark.original_id", row.id.encode())]
    return bool(new_id) and orjson.loads(value or b"") == must and list(headers) == original


def _receipt(topic: str, row: ArchiveRow, backfill: str) -> dict[str, Any]:
    owner: dict[str, Any] = {"backfill": backfill}
    if row.owner is not None and row.owner.day == len(DAYS):
        owner = {"topic": topic, "partition": 0, "offset": row.owner.row}
    collides = row.kind in COLLISIONS_AT_REST
    said = {"verdict": "collision" if collides else "duplicate", "id": [row.id], "owner": owner}
    return said | ({"action": "rename"} if collides else {})
