"""Writes what a mode judges by into clicks, and makes some of them impossible to judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from processor.generator.content import Rendered
    from processor.generator.pointers import Fields

FAULTS = (
    "",
    "header_missing",
    "header_malformed",
    "key_missing",
    "value_missing",
    "value_not_json",
    "field_missing",
    "field_type",
    "out_of_range",
    "id_collision",
)
"""The contract's quarantine codes, as far as `generate` makes such records."""


class Record(NamedTuple):
    """What a producer hands over."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Break(NamedTuple):
    """A way in which a record cannot be judged: one part of it is at fault.

    Attributes:
        code: Code in quarantine.
        header: The header at fault, where it is one.
        slot: Which of the value's further fields is at fault, where it is one of these.
        member: Which of the click's own, likewise.
        wrong: What stands there instead, None where nothing: JSON, or a header's bytes with a digit for `#`.
        passes: Whether the rules let such a record pass without judging it.
    """

    code: str
    header: str | None = None
    slot: int = 0
    member: str | None = None
    wrong: bytes | None = None
    passes: bool = False


class MarkColumns(NamedTuple):
    """What the originals carry by a definition; columns with a row per original.

    Attributes:
        headers: By name, in the order in which they stand in a record.
        fields: The value's further fields, as JSON.
        keys: In place of the clicks' own.
    """

    headers: Mapping[str, Sequence[bytes]]
    fields: Sequence[Sequence[bytes]] = ()
    keys: Sequence[bytes] | None = None


class Marks(ABC):
    """What a mode judges the originals of one partition by.

    Args:
        count: Originals.
        fields: Where the value's further fields stand.
        breaks: How records can be made impossible to judge.
        broken: Which originals are, by each of ``breaks`` in turn.

    Attributes:
        faults: uint8[originals], index into `FAULTS`: why an original cannot be judged, 0 if it can.
        unjudged: bool[originals], which ones pass although they cannot be judged.
    """

    def __init__(self, count: int, fields: Fields, breaks: Sequence[Break], broken: NDArray[np.int64]) -> None:
        self._fields = fields
        self._breaks = breaks
        # Index into the breaks, from 1.
        self._broken = np.zeros(count, np.uint16)
        self._broken[broken] = 1 + np.arange(broken.size) % len(breaks)
        codes = [0, *(0 if each.passes else FAULTS.index(each.code) for each in breaks)]
        self.faults: NDArray[np.uint8] = np.array(codes, np.uint8)[self._broken]
        self.unjudged: NDArray[np.bool_] = (self._broken > 0) & (self.faults == 0)

    @abstractmethod
    def _written(self, rows: NDArray[np.int32]) -> MarkColumns:
        """Return what these originals carry where nothing is at fault."""

    def records(self, rows: NDArray[np.int32], rendered: Sequence[Rendered]) -> list[Record]:
        """Return the records of these originals, out of what `Clicks.render` gave for them."""
        headers, fields, own_keys = self._written(rows)
        keys, values, times = zip(*rendered, strict=True) if rendered else ((), (), ())
        if fields:
            values = tuple(map(self._fields.put, values, zip(*fields, strict=True)))
        pairs = (zip(repeat(name), column, strict=False) for name, column in headers.items())
        named = zip(*pairs, strict=True)
        records = list(map(Record, own_keys or keys, values, named if headers else repeat(()), times))
        for at in np.flatnonzero(self._broken[rows]).tolist():
            which = self._breaks[self._broken[rows[at]] - 1]
            shown = self._beside(fields, at)
            records[at] = self._spoilt(records[at], which, int(rows[at]), rendered[at][1], shown)
        return records

    def _beside(self, fields: Sequence[Sequence[bytes]], at: int) -> list[bytes]:
        """Return what the value's fields hold where one of them is to be wrong."""
        return [column[at] for column in fields]

    def _spoilt(self, record: Record, which: Break, original: int, click: bytes, shown: list[bytes]) -> Record:
        """Return the record with one part at fault; ``click`` is its value without fields, ``shown`` these."""
        if which.header is not None:
            headers = tuple(header for header in record.headers if header[0] != which.header)
            if which.code != "header_missing":
                wrong = which.wrong and which.wrong.replace(b"#", b"%d" % (original % 10))
                headers += ((which.header, wrong),)
            return record._replace(headers=headers)
        if which.code == "key_missing":
            return record._replace(key=None)
        if which.code == "value_missing":
            return record._replace(value=None)
        value = record.value or b""
        if which.code == "value_not_json":
            value = value[:-1]
        elif which.member is not None:
            members = orjson.loads(value)
            if which.wrong is None:
                del members[which.member]
            else:
                members[which.member] = orjson.loads(which.wrong)
            value = orjson.dumps(members)
        elif which.wrong is None:
            value = click
        else:
            shown[which.slot] = which.wrong
            value = self._fields.put(click, shown)
        return record._replace(value=value)
