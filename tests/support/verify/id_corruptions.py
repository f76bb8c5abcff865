"""What can be planted into topics of mode insert-id, and what a certificate must say of it.

`ID_STREAM` is the source, judged by `ID_RULES`. One thing is changed in one of its outputs; each entry of
`ID_PLANTED` says what, and which rule must be found broken at which offset.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

from schemas.config import Pipeline
from tests.support.judges.id_rules import IdModel, IdRules, IdSaid
from tests.support.judges.outcomes import receipt_value
from tests.support.kafka.topics import New, Record
from tests.support.verify.compared import Topics, ours, renumber
from tests.support.verify.corruptions import WHEN, Change, at, foreign, headed, inserted, moved, said, without

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOUR_MS = 3_600_000
ID_RULES = IdRules(window="1h")


def of(name: bytes, after_ms: int = 0, value: bytes = b"value") -> New:
    """Return a record with an id in a header."""
    headers = (("id", name), ("producer", b"one"), ("none", None))
    return New(b"key", value + b" of %b at %d" % (name, after_ms), headers, WHEN + after_ms)


BAD_ID = New(b"key", b"no id", (("id", None),), WHEN)
ID_STREAM = [
    [of(b"a"), of(b"b", 10), of(b"a", 20), BAD_ID, of("ü".encode(), 30), of(b"c", 40)],
    [of(b"b", HOUR_MS + 9), of(b"d", HOUR_MS + 9), of(b"a", 50), of(b"e", HOUR_MS + 9), BAD_ID],
    [of(b"b", HOUR_MS + 10), of(b"a", HOUR_MS + 11), of(b"b", HOUR_MS + 12), of(b"f", HOUR_MS + 13)],
    [of(b"\xff", HOUR_MS + 14), of(b"\xff", HOUR_MS + 15), of(b"g", HOUR_MS + 16)],
]
"""Offsets 2, 6, 13 and 16 are duplicates, 3 and 10 cannot be judged. At 8 ``a`` is expired, by the clock though
not by its timestamp, at 11 ``b`` just so; at 12 ``a`` is a duplicate of 8. The sink has 11 records."""


def id_pipeline(rules: IdRules = ID_RULES) -> Pipeline:
    """Return the pipeline that `processor.verify.partition` is given."""
    names = {"name": "p", "source": "s", "sink": "clean", "duplicates": "receipts", "quarantine": "bad"}
    return Pipeline.model_validate({**names, "dedup": rules.dedup})


def id_topics(
    stream: Sequence[New], rules: IdRules = ID_RULES, now_ms: Callable[[], int] | None = None
) -> Topics:
    """Return a stream and what must become of it, by the naive model."""
    made = Topics()
    model = IdModel(rules, now_ms)
    for offset, each in enumerate(stream):
        came = Record(0, offset, *each, True)
        made.source.append(came)
        judged = model.judge(came)
        if judged.verdict == "pass":
            made.sink.append(came)
        elif judged.verdict == "duplicate":
            made.duplicates.append(id_receipt(came, judged, rules))
        else:
            headers = (*each.headers, *ours(offset, judged.verdict))
            made.quarantine.append(came._replace(headers=headers))
    for topic in (made.sink, made.duplicates, made.quarantine):
        renumber(topic)
    return made


def id_receipt(came: Record, judged: IdSaid, rules: IdRules, **more: Any) -> Record:
    """Return the receipt of a record, or its note, which says ``more``."""
    fields = {**receipt_value(rules, "p", "s", came, judged), **more}
    return came._replace(headers=(), value=json.dumps(fields).encode())


def id_stream() -> list[New]:
    """Return `ID_STREAM` as one list."""
    return list(chain(*ID_STREAM))


def owned(place: int, offset: int) -> Change:
    """Change the owner that a receipt names."""

    def change(records: list[Record]) -> list[Record]:
        owner = json.loads(records[place].value or b"")["owner"] | {"offset": offset}
        return said(place, owner=owner)(records)

    return change


def receipt_of(place: int, offset: int) -> Callable[[list[Record]], Record]:
    """Return what makes a receipt for another record out of one that is there."""
    return lambda records: said(place, offset=offset)(records)[place]


ID_PLANTED: dict[str, tuple[str, Change, list[tuple[int, str]], str]] = {
    # name: (topic, change, offsets and rules, what the detail says)
    "a record is lost": ("sink", without(2), [(4, "lost")], ":2"),
    "one that passes again is lost": ("sink", without(5), [(8, "lost")], ""),
    "one that passes again at the boundary is lost": ("sink", without(7), [(11, "lost")], ""),
    "the last is lost": ("sink", without(10), [(17, "lost")], "the end of"),
    "a duplicate passed": (
        "sink",
        inserted(2, lambda r: r[0]._replace(value=b"value of a at 20", timestamp=WHEN + 20)),
        [(2, "duplicate_passed")],
        "is duplicate",
    ),
    "one passed a millisecond early": (
        "sink",
        inserted(
            4,
            lambda r: r[1]._replace(value=b"value of b at %d" % (HOUR_MS + 9), timestamp=WHEN + HOUR_MS + 9),
        ),
        [(6, "duplicate_passed")],
        "is duplicate",
    ),
    "one stands twice": ("sink", inserted(11, lambda r: r[10]), [(17, "duplicate_passed")], "once more"),
    "two neighbours change places": ("sink", moved(2, 3), [(4, "reordered")], "later"),
    "a byte of a value": ("sink", at(2, value=b"Value"), [(4, "changed")], "value"),
    "an id": ("sink", headed(2, "id", b"z"), [(4, "changed")], "headers"),
    "a record of nowhere": ("sink", inserted(3, foreign), [(3, "extra")], "nothing"),
    "a receipt is missing": ("duplicates", without(1), [(6, "receipt_missing")], "duplicate"),
    "a receipt for what passed": (
        "duplicates",
        inserted(1, receipt_of(0, 5)),
        [(5, "receipt_forged")],
        "verdict is pass",
    ),
    "a receipt for what passed again": (
        "duplicates",
        inserted(2, receipt_of(1, 8)),
        [(8, "receipt_forged")],
        "verdict is pass",
    ),
    "a receipt for nothing": ("duplicates", inserted(5, receipt_of(4, 99)), [(5, "receipt_forged")], "no such"),
    "a receipt stands twice": ("duplicates", inserted(1, lambda r: r[0]), [(2, "receipt_forged")], "already"),
    "two receipts change places": ("duplicates", moved(0, 1), [(2, "reordered")], "later"),
    "an owner that passed another id": (
        "duplicates",
        owned(0, 1),
        [(2, "receipt_wrong")],
        'owner is {"offset": 1',
    ),
    "an owner whose window was over": (
        "duplicates",
        owned(2, 0),
        [(12, "receipt_wrong")],
        'must be {"offset": 8',
    ),
    "an owner in another partition": (
        "duplicates",
        said(0, owner={"topic": "s", "partition": 1, "offset": 0}),
        [(2, "receipt_wrong")],
        "owner",
    ),
    "no owner": ("duplicates", said(0, owner=None), [(2, "receipt_wrong")], "owner is null"),
    "an expiry a millisecond late": (
        "duplicates",
        said(1, expires_at=WHEN + 10 + HOUR_MS + 1),
        [(6, "receipt_wrong")],
        f"must be {WHEN + 10 + HOUR_MS}",
    ),
    "a receipt's id": ("duplicates", said(0, id=["b"]), [(2, "receipt_wrong")], 'id is ["b"], must be ["a"]'),
    "bytes for text": (
        "duplicates",
        said(4, id=["\udcff"]),
        [(16, "receipt_wrong")],
        'must be [{"base64": "/w=="}]',
    ),
    "a receipt says late": ("duplicates", said(1, verdict="late"), [(6, "receipt_wrong")], "verdict"),
    "a receipt's mode": ("duplicates", said(0, mode="watermark"), [(2, "receipt_wrong")], "mode"),
    "a quarantined one is missing": ("quarantine", without(0), [(3, "quarantine_missing")], "header_malformed"),
    "a code": (
        "quarantine",
        headed(1, "seqmark.error", b"header_missing"),
        [(10, "quarantine_wrong")],
        "must be header_malformed",
    ),
}
