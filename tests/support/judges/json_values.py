"""Scans values made by hand, and gives what pointers find in them as plain Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from processor.engine.batch.columns import Columns
from processor.engine.extract.json_matches import JsonKind, JsonMatches
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.json_text import unescape
from processor.engine.extract.pointers import Pointers
from processor.engine.extract.sequence import ValueSequence
from processor.engine.verdict import Fault


class Finding(NamedTuple):
    """What one pointer led to: a string's unescaped text, else the bytes as written."""

    kind: JsonKind
    content: bytes = b""


MISSING = Finding(JsonKind.MISSING)


def columns(values: list[bytes | None], between: list[bytes] | None = None) -> Columns:
    """Lay values out one after the other, with some bytes that belong to none after each."""
    gaps = between or [b'"}]0'] * len(values)
    data = b"".join((value or b"") + gap for value, gap in zip(values, gaps, strict=True))
    made = Columns.empty(len(values), np.frombuffer(data, np.uint8).copy())
    at = 0
    for row, (value, gap) in enumerate(zip(values, gaps, strict=True)):
        made.value[row] = at
        made.value_length[row] = -1 if value is None else len(value)
        at += len(value or b"") + len(gap)
    return made


def finding(cols: Columns, found: JsonMatches, which: int, row: int) -> Finding:
    """Return what pointer ``which`` found in a row."""
    kind = JsonKind(int(found.kind[which, row]))
    start, length = int(found.start[which, row]), int(found.length[which, row])
    content = cols.data[start : start + length]
    if kind is JsonKind.ESCAPED:
        out = np.empty(length, np.uint8)
        content = out[: unescape(cols.data, start, length, out)]
    return Finding(kind, content.tobytes())


def found_in(value: bytes, *pointers: str) -> list[Finding]:
    """Return what each pointer finds in a value, which has to be JSON."""
    cols = columns([value])
    found = look_up(cols.data, cols.value, cols.value_length, Pointers.of(pointers))
    assert found.fault[0] == Fault.NONE, value
    return [finding(cols, found, which, 0) for which in range(len(pointers))]


def is_json(value: bytes) -> bool:
    """Whether the kernel takes the value for JSON; nothing is found in one that is not."""
    cols = columns([value])
    found = look_up(cols.data, cols.value, cols.value_length, Pointers.of(["", "/a"]))
    fault = Fault(int(found.fault[0]))
    assert fault in {Fault.NONE, Fault.VALUE_NOT_JSON}
    assert fault is Fault.NONE or not (found.kind.any() or found.start.any() or found.length.any())
    return fault is Fault.NONE


def sequence(value: bytes | None, pointer: str = "/seq", *, text: bool = False) -> int | Fault:
    """Return a value's sequence, or why there is none."""
    numbers, faults = ValueSequence(pointer, text=text).extract(columns([value]))
    fault = Fault(int(faults[0]))
    assert fault is Fault.NONE or numbers[0] == 0
    return fault or int(numbers[0])
