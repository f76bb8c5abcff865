"""What can be planted into topics that are right, and what a certificate must say of it.

`STREAM` is the source. One thing is changed in one of its outputs; each entry of `PLANTED` says what, and which
rule must be found broken at which offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.kafka.topics import New, int64, new

if TYPE_CHECKING:
    from tests.support.kafka.topics import Record

WHEN = 1_700_000_000_000
BAD = New(b"key", b"bad", (("seq", b"short"),), WHEN)


def numbered(number: int, value: bytes = b"value", key: bytes = b"key", epoch: int = 0) -> New:
    """Return a record that every rule here can judge; each has content of its own."""
    headers = [("epoch", int64(epoch)), ("producer", key), ("none", None)]
    return new(number, key, value + b" %d" % number, headers=headers, timestamp=WHEN + number)


STREAM = [
    [numbered(0), numbered(1), numbered(2), numbered(2), BAD],
    [numbered(3), numbered(1), numbered(4), numbered(5), numbered(5), BAD._replace(value=b"bad too")],
    [numbered(6), numbered(7), numbered(8), numbered(9)],
]
"""Offsets 3 and 9 are duplicates, 6 is late, 4 and 10 cannot be judged; the sink has 10 records."""

Change = Callable[["list[Record]"], "list[Record]"]


def without(*places: int) -> Change:
    return lambda records: [each for place, each in enumerate(records) if place not in places]


def at(place: int, **changed: Any) -> Change:
    return lambda records: [
        each._replace(**changed) if number == place else each for number, each in enumerate(records)
    ]


def moved(place: int, to: int) -> Change:
    def change(records: list[Record]) -> list[Record]:
        left = [*records[:place], *records[place + 1 :]]
        return [*left[:to], records[place], *left[to:]]

    return change


def inserted(place: int, made: Callable[[list[Record]], Record]) -> Change:
    return lambda records: [*records[:place], made(records), *records[place:]]


def said(place: int, **fields: Any) -> Change:
    """Change fields of a receipt."""

    def change(records: list[Record]) -> list[Record]:
        value = json.loads(records[place].value or b"") | fields
        return at(place, value=json.dumps(value).encode())(records)

    return change


def headed(place: int, name: str, value: bytes) -> Change:
    """Change a header of a record."""

    def change(records: list[Record]) -> list[Record]:
        headers = tuple((each, value if each == name else old) for each, old in records[place].headers)
        return at(place, headers=headers)(records)

    return change


NOTHING = New(b"key", b"of nowhere", (("seq", int64(50)),), WHEN)


def foreign(records: list[Record]) -> Record:
    return records[0]._replace(key=NOTHING.key, value=NOTHING.value, headers=NOTHING.headers)


PLANTED: dict[str, tuple[str, Change, list[tuple[int, str]], str]] = {
    # name: (topic, change, offsets and rules, what the detail says)
    "a record is lost": ("sink", without(4), [(7, "lost")], ":4"),
    "the first is lost": ("sink", without(0), [(0, "lost")], ""),
    "the last is lost": ("sink", without(9), [(14, "lost")], "the end of"),
    "three are lost": ("sink", without(3, 4, 5), [(5, "lost"), (7, "lost"), (8, "lost")], ""),
    "a duplicate passed": ("sink", inserted(3, lambda r: r[2]), [(3, "duplicate_passed")], "duplicate"),
    "a late one passed": ("sink", inserted(4, lambda r: r[1]), [(6, "duplicate_passed")], "late"),
    "a duplicate at the end": ("sink", inserted(10, lambda r: r[5]), [(9, "duplicate_passed")], ""),
    "the last stands twice": ("sink", inserted(10, lambda r: r[9]), [(14, "duplicate_passed")], "once more"),
    "two neighbours change places": ("sink", moved(4, 5), [(7, "reordered")], "later"),
    "one is too late": ("sink", moved(1, 8), [(1, "reordered")], "later"),
    "one is too early": ("sink", moved(9, 2), [(14, "reordered")], "earlier"),
    "a byte of a value": ("sink", at(4, value=b"Value 4"), [(7, "changed")], "value"),
    "a value became null": ("sink", at(9, value=None), [(14, "changed")], "value"),
    "a byte of a key": ("sink", at(4, key=b"kez"), [(7, "changed")], "key"),
    "an empty key for none": ("sink", at(0, key=b""), [(0, "changed")], "key"),
    "a header's value": ("sink", headed(4, "producer", b"kez"), [(7, "changed")], "headers"),
    "a header is null no more": ("sink", headed(4, "none", b""), [(7, "changed")], "headers"),
    "a timestamp": ("sink", at(4, timestamp=WHEN + 5), [(7, "changed")], "timestamp"),
    "a record of nowhere": ("sink", inserted(5, foreign), [(5, "extra")], "nothing"),
    "a receipt is missing": ("duplicates", without(1), [(6, "receipt_missing")], "late"),
    "all receipts are missing": (
        "duplicates",
        lambda records: [records[0]._replace(partition=0, value=b"none")],
        [(3, "receipt_wrong"), (6, "receipt_missing"), (9, "receipt_missing")],
        "not valid JSON",
    ),
    "a receipt for what passed": (
        "duplicates",
        lambda records: [*records[:1], said(0, offset=5, sequence=3)(records)[0], *records[1:]],
        [(5, "receipt_forged")],
        "pass",
    ),
    "a receipt for nothing": (
        "duplicates",
        lambda records: [*records, said(2, offset=99)(records)[2]],
        [(3, "receipt_forged")],
        "no such record",
    ),
    "a receipt stands twice": (
        "duplicates",
        inserted(2, lambda r: r[1]),
        [(6, "receipt_forged")],
        "already",
    ),
    "two receipts change places": ("duplicates", moved(0, 1), [(3, "reordered")], "later"),
    "a receipt's watermark": (
        "duplicates",
        said(1, watermark=4),
        [(6, "receipt_wrong")],
        "watermark is 4, must be 3",
    ),
    "a receipt's sequence": (
        "duplicates",
        said(0, sequence="2"),
        [(3, "receipt_wrong")],
        'sequence is "2", must be 2',
    ),
    "a receipt's verdict": ("duplicates", said(1, verdict="duplicate"), [(6, "receipt_wrong")], "verdict"),
    "a receipt's partition": ("duplicates", said(2, partition=1), [(9, "receipt_wrong")], "partition is 1"),
    "a receipt's offset": ("duplicates", said(1, offset=77), [(6, "receipt_wrong")], "offset is 77, must be 6"),
    "an owner is claimed": ("duplicates", said(2, owner={"offset": 1}), [(9, "receipt_wrong")], "owner"),
    "a receipt's key": ("duplicates", at(0, key=b"kez"), [(3, "receipt_wrong")], "key"),
    "a receipt's timestamp": ("duplicates", at(0, timestamp=5), [(3, "receipt_wrong")], "timestamp"),
    "a receipt that is no JSON": ("duplicates", at(0, value=b"{"), [(3, "receipt_wrong")], "not valid JSON"),
    "a quarantined one is missing": ("quarantine", without(0), [(4, "quarantine_missing")], "header_malformed"),
    "the last quarantined one is missing": (
        "quarantine",
        without(1),
        [(10, "quarantine_missing")],
        "the end of",
    ),
    "a quarantined value": ("quarantine", at(0, value=b"Bad"), [(4, "quarantine_wrong")], "value"),
    "a quarantined header": ("quarantine", headed(0, "seq", b"shorT"), [(4, "quarantine_wrong")], "headers"),
    "a code": (
        "quarantine",
        headed(1, "seqmark.error", b"header_missing"),
        [(10, "quarantine_wrong")],
        "must be header_malformed",
    ),
    "a quarantined record's source": (
        "quarantine",
        headed(1, "seqmark.source", b"elsewhere:0:10"),
        [(10, "quarantine_wrong")],
        "elsewhere",
    ),
    "a quarantined one stands twice": (
        "quarantine",
        inserted(1, lambda r: r[0]),
        [(4, "quarantine_forged")],
        "already",
    ),
}
