"""Compares what became of a partition's records with what should have, by the truth of their producer.

Pure: records as a plain consumer sees them go in, counts and differences come out. Receipts and quarantine name
the records of the source that they are of. All others have to be in the clean topic, byte for byte, in order;
what collided has the new id there that its note names, and behind its headers the old one. That all else that
receipts say is right is what `seqmark verify` proves.
"""

from __future__ import annotations

import uuid
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from processor.demo.script import TruthCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from processor.kafka.plain.consumer import Seen

    Line = Mapping[str, Any]

FIRST, COLLISION = "first", "collision"
_UUID_VERSION = 8


class PartitionTopics(NamedTuple):
    """A partition of each topic, as it is read_committed."""

    source: Sequence[Seen]
    clean: Sequence[Seen]
    duplicates: Sequence[Seen]
    quarantine: Sequence[Seen]


def compare(place: str, truth: Sequence[Line], topics: PartitionTopics, member: str) -> TruthCheck:
    """Compare one partition's outputs with what its source and the truth ask for.

    Args:
        place: ``topic:partition`` of the source.
        truth: Lines of the truth file, by offset.
        topics: What they hold.
        member: Of the values, that gets a new id where a record collided.
    """
    source = {record[4]: record for record in topics.source}
    if list(source) != [line["offset"] for line in truth]:
        text = f"the source holds {len(source):,} records at other offsets than the {len(truth):,} produced"
        return TruthCheck(differences=[f"{place}: {text}"])
    told = [orjson.loads(value or b"{}") for _, value, *_ in topics.duplicates]
    receipts = {each["offset"]: each for each in told}
    aside = {_offset(record): _header(record, "seqmark.error") for record in topics.quarantine}
    became = [_became(line, receipts, aside) for line in truth]
    new_ids = [each.get("new_id") for each in told if each["verdict"] == COLLISION]
    found = Counter(question for line in became for question in _questions(line))
    # As many as are there: what is there twice, or is of no record, counts too.
    found.update({"in the clean topic": len(topics.clean), "quarantined": len(topics.quarantine)})
    found.update({"receipts": len(told) - len(new_ids), "notes of collisions": len(new_ids)})
    wanted = Counter(question for line in truth for question in (*_questions(line), *_outputs(line)))
    left = [source[line["offset"]] for line in became if line["passes"]]
    differences = [
        f":{is_['offset']} has {_fate(is_)}, must have {_fate(line)}"
        for is_, line in zip(became, truth, strict=True)
        if is_ != line
    ]
    differences += _clean_differences(left, topics.clean, receipts, member)
    if len(set(new_ids)) < len(new_ids):
        differences.append(": records that collided share a new id")
    return TruthCheck(found, wanted, [place + each for each in differences])


def _became(line: Line, receipts: Mapping[int, Line], aside: Mapping[int, str]) -> Line:
    """Return the line that would be the truth if what is there were right."""
    offset, kind = line["offset"], line["kind"]
    verdict = receipts.get(offset, {}).get("verdict")
    passes = offset not in aside and verdict in {None, COLLISION}
    collides = verdict == COLLISION
    is_ = {**line, "passes": passes, "kind": COLLISION if collides else FIRST if kind == COLLISION else kind}
    is_.pop("quarantine", None)
    return is_ | ({"quarantine": aside[offset]} if offset in aside else {})


def _questions(line: Line) -> Iterator[str]:
    """Yield what a record counts for."""
    yield "in"
    if line["passes"]:
        yield "passed"
        if line["kind"] != FIRST:
            yield "collisions passed" if line["kind"] == COLLISION else "passed again"
    elif "quarantine" not in line:
        yield f"dropped: {line['kind']}"


def _outputs(line: Line) -> Iterator[str]:
    """Yield what there has to be of a record in the topics behind the source."""
    if line["passes"]:
        yield "in the clean topic"
    if "quarantine" in line:
        yield "quarantined"
    elif line["kind"] == COLLISION:
        yield "notes of collisions"
    elif not line["passes"]:
        yield "receipts"


def _fate(line: Line) -> str:
    became = f"been quarantined as {line['quarantine']}" if "quarantine" in line else "been dropped"
    return f"{'passed' if line['passes'] else became} ({line['kind']})"


def _header(record: Seen, name: str) -> str:
    return (dict(record[2]).get(name) or b"").decode()


def _offset(quarantined: Seen) -> int:
    """Return the offset in the source that a record of the quarantine names; -1: it names none."""
    digits = _header(quarantined, "seqmark.source").rpartition(":")[2]
    return int(digits) if digits.isdigit() else -1


def _clean_differences(
    left: Sequence[Seen], clean: Sequence[Seen], receipts: Mapping[int, Line], member: str
) -> Iterator[str]:
    """Yield the first record that is not as it must be: what comes behind it may follow from that."""
    for record, found in zip_longest(left, clean):
        if record is None:
            yield f": the clean topic has {len(clean) - len(left):,} records too many, from {found[4]} on"
            return
        note = receipts.get(record[4])
        must = record[:4] if note is None else _renamed(record, note.get("new_id"), member)
        if found is None or found[:4] != must:
            is_ = "ends before it" if found is None else f"has something else at its offset {found[4]}"
            yield f":{record[4]} is lost, changed or out of order: the clean topic {is_}"
            return


def _renamed(record: Seen, new_id: object, member: str) -> tuple[object, ...] | None:
    """Return what a record that collided is in the clean topic; None: its note names no new id."""
    try:
        right = uuid.UUID(str(new_id)).version == _UUID_VERSION
    except ValueError:
        return None
    key, value, headers, time_ms, _ = record
    old = str(orjson.loads(value or b"{}").get(member)).encode()
    value = (value or b"").replace(b'"%b"' % old, b'"%b"' % str(new_id).encode(), 1)
    return (key, value, (*headers, ("seqmark.original_id", old)), time_ms) if right else None
