"""Streams with collisions: what must become of them, and what can be planted into that.

The naive model judges; the hashes of ids and the fingerprints are the engine's, which tests of their own hold;
a text editor's edits make what the sink must have. `COLLISION_PLANTED` is as `id_corruptions.ID_PLANTED`, with
what the config does with collisions in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.judges.ids import make_id_extractor
from tests.support.judges.collisions import new_id
from tests.support.judges.fingerprints import LET_IN, FingerprintModel, FingerprintRules
from tests.support.judges.outcomes import edited
from tests.support.kafka.topics import New, Record
from tests.support.verify.compared import Topics, ours, renumber
from tests.support.verify.corruptions import WHEN, Change, at, headed, inserted, moved, said, without
from tests.support.verify.id_corruptions import HOUR_MS, id_pipeline, id_receipt, owned, receipt_of
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.support.judges.id_rules import IdSaid

SECRET = bytes(range(16))
IN_VALUE = ({"from": "value", "pointer": "/id"},)
RENAME = {"to": "/id", "keep": "header"}
ACTIONS = ("pass", "tag", "rename", "quarantine", "drop")


def collision_rules(on_collision: str, **keys: Any) -> FingerprintRules:
    """Return rules by which ids stand in the value, and the time of sending does not count."""
    given: dict[str, Any] = {"id": IN_VALUE, "fingerprint": {"exclude": ["/at"]}, "window": "1h", **keys}
    if on_collision == "rename":
        given.setdefault("rename", RENAME)
    return FingerprintRules(on_collision=on_collision, **given)


def event(name: str, content: int, after_ms: int) -> New:
    """Return a record; each that comes at another time has a value of its own."""
    value = b'{"id": "%b", "n": %d, "at": %d}' % (name.encode(), content, after_ms)
    return New(b"key", value, (("id", name.encode()), ("none", None)), WHEN + after_ms)


def collision_topics(
    stream: Sequence[New],
    rules: FingerprintRules,
    now_ms: Callable[[], int] | None = None,
    too_large: Collection[int] = (),
    too_large_edited: Collection[int] = (),
) -> Topics:
    """Return a stream and what must become of it; some are too large for the sink, or with their edits."""
    made, model = Topics(), FingerprintModel(rules, now_ms)
    model.unfit = too_large_edited
    known = _Known(rules)
    for offset, each in enumerate(stream):
        came = Record(0, offset, *each, True)
        made.source.append(came)
        code = "too_large"
        if offset not in too_large:
            judged = model.judge(came)
            code = judged.verdict
            if code == "pass":
                made.sink.append(came)
            elif code == "duplicate":
                made.duplicates.append(id_receipt(came, judged, rules))
            elif code == "collision":
                made.duplicates.append(known.note(came, made.source[judged.owner], judged))
                code = "id_collision" if rules.on_collision == "quarantine" else "collision"
                if rules.on_collision in LET_IN:
                    made.sink.append(known.edited(came, judged.owner))
        if code not in {"pass", "duplicate", "collision"}:
            made.quarantine.append(came._replace(headers=(*each.headers, *ours(offset, code))))
    for topic in (made.sink, made.duplicates, made.quarantine):
        renumber(topic)
    return made


class _Known:
    """What depends on the partition's secret."""

    def __init__(self, rules: FingerprintRules) -> None:
        self._rules = rules
        dedup = id_pipeline(rules).id_dedup
        assert dedup is not None
        self._extractor = make_id_extractor(dedup, SECRET)

    def _hashed(self, record: Record) -> tuple[bytes, int]:
        wire = batches.on_wire(record)._replace(offset=0)
        (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand([wire])))
        ids = self._extractor.extract(piece.columns)
        return ids.hash[0].tobytes(), int(ids.fingerprint[0])

    def new_id(self, record: Record) -> str:
        return new_id(*self._hashed(record), SECRET)

    def note(self, came: Record, owner: Record, judged: IdSaid) -> Record:
        rules = self._rules
        more = {
            "fingerprint": f"{self._hashed(came)[1]:016x}",
            "owner_fingerprint": f"{self._hashed(owner)[1]:016x}",
            "action": rules.on_collision,
        }
        if rules.rename is not None:
            more["new_id"] = self.new_id(came)
        return id_receipt(came, judged, rules, **more)

    def edited(self, came: Record, owner: int) -> Record:
        rules = self._rules
        made = edited(came, owner, rules, "s", None if rules.rename is None else self.new_id(came))
        return came._replace(value=made.value, headers=made.headers)


BAD_EVENT = New(b"key", b'{"n": 1}', (("id", b"a"),), WHEN)
COLLISION_STREAM = [
    event("a", 1, 0),  # passes
    event("b", 1, 10),
    event("a", 2, 20),  # 2, collides with 0
    event("a", 1, 30),  # 3, duplicate of 0
    event("a", 2, 40),  # 4, duplicate of 2 where that is remembered
    BAD_EVENT,
    event("a", 3, 60),  # 6, collides with 0
    event("b", 1, 70),  # 7, duplicate of 1
    event("c", 1, 80),
    event("b", 2, 90),  # 9, collides with 1
    event("d", 1, 100),
    event("a", 1, HOUR_MS + 5),  # 11, the first is over: collides with 2 where that is remembered, else passes
    event("e", 1, HOUR_MS + 6),
]


def _came(offset: int) -> Record:
    return Record(0, 0, *COLLISION_STREAM[offset], True)


def _value(records: list[Record]) -> bytes:
    return (records[2].value or b"").replace(b"-8", b"-9", 1)


COLLISION_PLANTED: dict[str, tuple[str, str, Change, list[tuple[int, str]], str]] = {
    # name: (on_collision, topic, change, offsets and rules, what the detail says)
    "a note is missing": ("rename", "duplicates", without(0), [(2, "receipt_missing")], "has no note"),
    "the last note is missing": ("pass", "duplicates", without(6), [(11, "receipt_missing")], "the end of"),
    "a note for what passed": (
        "rename",
        "duplicates",
        inserted(5, receipt_of(0, 8)),
        [(8, "receipt_forged")],
        "the note at receipts:0:5 is for source offset 8: that record's verdict is pass",
    ),
    "a note beside a receipt": (
        "rename",
        "duplicates",
        inserted(2, receipt_of(0, 3)),
        [(3, "receipt_forged")],
        "that record's verdict is duplicate",
    ),
    "a note for nothing": (
        "tag",
        "duplicates",
        inserted(7, receipt_of(0, 99)),
        [(7, "receipt_forged")],
        "no such",
    ),
    "a note stands twice": (
        "tag",
        "duplicates",
        inserted(1, lambda r: r[0]),
        [(2, "receipt_forged")],
        "already",
    ),
    "two notes change places": ("drop", "duplicates", moved(2, 3), [(4, "reordered")], "later"),
    "a receipt for a collision": (
        "pass",
        "duplicates",
        said(0, verdict="duplicate"),
        [(2, "receipt_wrong")],
        'verdict is "duplicate", must be "collision"',
    ),
    "a note for a duplicate": (
        "pass",
        "duplicates",
        said(1, verdict="collision"),
        [(3, "receipt_wrong")],
        "verdict",
    ),
    "a fingerprint": (
        "pass",
        "duplicates",
        said(0, fingerprint="0123456789abcdef"),
        [(2, "receipt_wrong")],
        'the note at receipts:0:0 is wrong: fingerprint is "0123456789abcdef", must be "',
    ),
    "the owner's fingerprint": (
        "drop",
        "duplicates",
        said(0, owner_fingerprint="0123456789abcdef"),
        [(2, "receipt_wrong")],
        "owner_fingerprint is",
    ),
    "an action": ("tag", "duplicates", said(3, action="pass"), [(6, "receipt_wrong")], 'must be "tag"'),
    "the new id of a note": (
        "rename",
        "duplicates",
        said(3, new_id="01234567-89ab-8def-8123-456789abcdef"),
        [(6, "receipt_wrong")],
        "new_id is",
    ),
    "a new id where there is none": (
        "tag",
        "duplicates",
        said(0, new_id="a"),
        [(2, "receipt_wrong")],
        "missing",
    ),
    "the owner of a collision": (
        "rename",
        "duplicates",
        owned(3, 2),
        [(6, "receipt_wrong")],
        'must be {"offset": 0',
    ),
    "the owner of a collision whose window was over": (
        "rename",
        "duplicates",
        owned(6, 0),
        [(11, "receipt_wrong")],
        'must be {"offset": 2',
    ),
    "the owner of a copy of a collision": (
        "pass",
        "duplicates",
        owned(2, 0),
        [(4, "receipt_wrong")],
        'must be {"offset": 2',
    ),
    "when a collision expires": (
        "pass",
        "duplicates",
        said(0, expires_at=WHEN + HOUR_MS),
        [(2, "receipt_wrong")],
        f"must be {WHEN + HOUR_MS + 20}",
    ),
    "an expiry of what is not remembered": (
        "drop",
        "duplicates",
        said(0, expires_at=WHEN + HOUR_MS),
        [(2, "receipt_wrong")],
        "must be missing",
    ),
    "a collision is dropped": (
        "rename",
        "sink",
        without(2),
        [(2, "lost")],
        "collides with an earlier record, goes on under a new id, and is not in the sink",
    ),
    "a collision that passes is dropped": ("pass", "sink", without(2), [(2, "lost")], "goes on as it came"),
    "a collision stands twice": (
        "rename",
        "sink",
        inserted(3, lambda r: r[2]),
        [(2, "duplicate_passed")],
        "once more",
    ),
    "another new id": (
        "rename",
        "sink",
        lambda records: at(2, value=_value(records))(records),
        [(2, "changed")],
        "goes on under a new id, and differs at clean:0:2 in: value",
    ),
    "another old id": (
        "rename",
        "sink",
        headed(2, "seqmark.original_id", b"z"),
        [(2, "changed")],
        "in: headers",
    ),
    "it went as it came and should have a new id": (
        "rename",
        "sink",
        at(2, value=_came(2).value, headers=_came(2).headers),
        [(2, "changed")],
        "goes on under a new id, and stands at clean:0:2 as it came",
    ),
    "it went as it came and should be tagged": (
        "tag",
        "sink",
        at(3, headers=_came(6).headers),
        [(6, "changed")],
        "goes on with a tag, and stands at clean:0:3 as it came",
    ),
    "it went as it came, too": (
        "tag",
        "sink",
        inserted(3, lambda _: _came(2)),
        [(2, "duplicate_passed")],
        "stands in the sink as it came, at clean:0:3",
    ),
    "a tag names another record": (
        "tag",
        "sink",
        headed(3, "seqmark.collision", b"s:0:2"),
        [(6, "changed")],
        "headers",
    ),
    "a tag on what passes": (
        "tag",
        "sink",
        at(4, headers=(*_came(8).headers, ("seqmark.collision", b"s:0:0"))),
        [(8, "changed")],
        "differs at clean:0:4 in: headers",
    ),
    "it passed and should be dropped": (
        "drop",
        "sink",
        inserted(2, lambda _: _came(2)),
        [(2, "duplicate_passed")],
        "collides with an earlier record, is dropped, and stands in the sink",
    ),
    "it passed and should be in quarantine": (
        "quarantine",
        "sink",
        inserted(2, lambda _: _came(2)),
        [(2, "not_quarantined")],
        "goes into quarantine, and stands in the sink",
    ),
    "it is not in quarantine": (
        "quarantine",
        "quarantine",
        without(0),
        [(2, "quarantine_missing")],
        "an earlier record (id_collision)",
    ),
    "a collision stands twice in quarantine": (
        "quarantine",
        "quarantine",
        inserted(1, lambda r: r[0]),
        [(2, "quarantine_forged")],
        "stands there already",
    ),
    "a code of a collision": (
        "quarantine",
        "quarantine",
        headed(0, "seqmark.error", b"field_type"),
        [(2, "quarantine_wrong")],
        "must be id_collision",
    ),
    "it is in quarantine and should pass": (
        "pass",
        "quarantine",
        inserted(0, lambda _: _came(2)._replace(headers=(*_came(2).headers, *ours(2, "id_collision")))),
        [(2, "quarantine_forged")],
        "verdict is collision",
    ),
}
