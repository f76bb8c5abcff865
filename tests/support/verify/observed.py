"""Makes of topics that are right those of a pipeline that has observed for a while, by text alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.judges.fingerprints import LET_IN
from tests.support.verify.compared import Topics, renumber

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.support.kafka.topics import Record

OBSERVED = ("seqmark.observed", b"true")


def said_of(receipt: Record) -> dict[str, object]:
    """Return what a receipt says."""
    said: dict[str, object] = json.loads(receipt.value or b"")
    return said


def source_offset(quarantined: Record) -> int:
    """Return the offset that a quarantined record came from."""
    return int((quarantined.headers[-1][1] or b"").rpartition(b":")[2])


def observed(topics: Topics, span: Collection[int], refused: Collection[int] = ()) -> Topics:
    """Return what stands there where all of ``span`` was observed; ``refused``: too large as they came."""
    aside = {source_offset(each) for each in topics.quarantine}
    told = {int(str(said["offset"])): said for said in map(said_of, topics.duplicates)}
    kept_back = {at for at, said in told.items() if said.get("action") not in LET_IN} | aside
    passing = [each.offset for each in topics.source if each.offset not in kept_back]
    came = dict(zip(passing, topics.sink, strict=True))
    for each in topics.source:
        if each.offset in span and each.offset not in refused:
            came[each.offset] = each
    sink = [came[offset] for offset in sorted(came)]
    duplicates = [
        each._replace(value=json.dumps({**said_of(each), "observed": True}).encode())
        if said_of(each)["offset"] in span
        else each
        for each in topics.duplicates
    ]
    quarantine = [
        each._replace(headers=(*each.headers[:-3], OBSERVED, *each.headers[-3:]))
        if source_offset(each) in span and source_offset(each) not in refused
        else each
        for each in topics.quarantine
    ]
    return Topics(list(topics.source), renumber(sink), renumber(duplicates), renumber(quarantine))


def unflagged(receipts: list[Record], place: int) -> list[Record]:
    """Return receipts of which one does not say what it said of whether its record passed."""
    said = said_of(receipts[place])
    other = {name: value for name, value in said.items() if name != "observed"}
    value = json.dumps(other if "observed" in said else {**said, "observed": True}).encode()
    return [*receipts[:place], receipts[place]._replace(value=value), *receipts[place + 1 :]]
