"""Brings records that collided, and what they became in the sink, into one form in which they must be the same.

    source   {"event_id":"9f3a…", …}              {"event_id":"a new id", …}    and behind its own headers
    sink     {"event_id":"1c77…-8…-…", …}    ->   {"event_id":"a new id", …}    seqmark.original_id = 9f3a…

A new id is known to nobody without the partition's secret: it is checked by its form, and the note of the
collision must name the same one. Every other byte is compared.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.demo.check import id_grounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.demo.check import Grounds
    from processor.generator.window import Judged
    from processor.kafka.plain.consumer import Seen

ORIGINAL_ID = "seqmark.original_id"
# A UUID of version 8 as text (RFC 9562).
_NEW_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_IN_ITS_PLACE = "a new id"
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


class Comparable(NamedTuple):
    """A partition's records in the form in which source and sink must be the same.

    Attributes:
        source: Collisions that pass have the old id in the header, and the same text in its place.
        sink: New ids are this text too; what is none by its form stays as it is.
        grounds: What receipts have to say, and notes.
    """

    source: list[Seen]
    sink: list[Seen]
    grounds: Grounds


def comparable(
    place: str, source: Sequence[Seen], judged: Judged, sink: Sequence[Seen], member: str
) -> Comparable:
    """Prepare one partition for `processor.demo.check.compare`, where collisions are renamed.

    Args:
        place: ``topic:partition`` of the source.
        source: What it holds.
        judged: What the rules say of that.
        sink: What the sink holds.
        member: Where values have their id.
    """
    kept = _kept(source, judged, member)
    went, new_ids = _found(sink, member)
    receipt = id_grounds(place, source, judged, member)

    def grounds(row: int) -> Mapping[str, object]:
        said = receipt(row)
        if not judged.collision[row]:
            return said
        return {
            **said,
            "verdict": "collision",
            "fingerprint": _FINGERPRINT,
            "owner_fingerprint": _FINGERPRINT,
            "action": "rename",
            "new_id": new_ids.get(kept[row][:4]),
        }

    return Comparable(kept, went, grounds)


def _kept(source: Sequence[Seen], judged: Judged, member: str) -> list[Seen]:
    kept = list(source)
    for row in np.flatnonzero(judged.collision & judged.passes).tolist():
        key, value, headers, timestamp_ms, offset = source[row]
        old = json.loads(value or b"{}")[member]
        headers = (*headers, (ORIGINAL_ID, old.encode()))
        kept[row] = (key, _replaced(value, old), headers, timestamp_ms, offset)
    return kept


def _found(sink: Sequence[Seen], member: str) -> tuple[list[Seen], dict[tuple[object, ...], str]]:
    """Return the records in the common form, and by what `compare` looks at the new ids that they had."""
    went = list(sink)
    new_ids: dict[tuple[object, ...], str] = {}
    for at, (key, value, headers, timestamp_ms, offset) in enumerate(sink):
        if headers[-1:] and headers[-1][0] == ORIGINAL_ID:
            new = json.loads(value or b"{}").get(member)
            if isinstance(new, str) and _NEW_ID.fullmatch(new):
                went[at] = (key, _replaced(value, new), headers, timestamp_ms, offset)
                new_ids[went[at][:4]] = new
    return went, new_ids


def _replaced(value: bytes | None, id_: str) -> bytes | None:
    return value and value.replace(json.dumps(id_).encode(), json.dumps(_IN_ITS_PLACE).encode(), 1)
