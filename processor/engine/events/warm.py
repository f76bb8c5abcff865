"""Compiles the kernels of events by reading a made-up one.

A driver calls this once before its tasks begin: Python workers then load the kernels from the cache.
"""

from __future__ import annotations

import numpy as np

from processor.engine.batch.columns import Columns
from processor.engine.events.accumulators import Accumulator
from processor.engine.events.groups import GroupTable
from processor.engine.events.key_parts import KeyParts, number_part, text_part
from processor.engine.events.reader import EventReader
from processor.engine.events.registers import Registers
from processor.engine.events.rules import FieldKind, FieldRule
from processor.engine.jit import COMPILES, are_kept, note_kept

_VALUE = b'{"0": "a", "1": true, "2": 3, "3": 0.5, "4": "1.25", "5": "2026-01-05", "6": "2026-01-05T07:08:09Z"}'


_MARK = "events-are-warm"
"""File among the kernels, whose folder is named by the sources."""


def events_are_warm() -> bool:
    """Return whether the cache has all kernels of this version, or there is none to put them into."""
    return are_kept(_MARK)


def warm_events() -> None:
    """Compile or load all kernels; about 30 s where none is in the cache, a moment where they are."""
    if not COMPILES:
        return
    _work()
    note_kept(_MARK)


def _work() -> None:
    rules = [FieldRule(str(int(kind)), kind, scale=2) for kind in FieldKind]
    columns = Columns.empty(1, np.frombuffer(_VALUE, np.uint8).copy())
    columns.value[:], columns.value_length[:] = 0, len(_VALUE)
    events = EventReader(rules).read(columns)
    everything, one = np.zeros(1, np.int64), np.ones(1, np.bool_)
    events.gathered(0, everything)
    text, whole, double, wide = (events.fields[kind] for kind in (0, 2, 3, 4))
    texts = text_part(text.valid, text.numbers, text.length)  # type: ignore[arg-type]  # a text's are ints
    parts = KeyParts.of(events, [number_part(one, whole.numbers), texts])
    group = np.empty(1, np.int32)
    GroupTable(1).assign(parts, one, 0, group)
    for function in ("count", "sum", "min"):
        Accumulator(function).add(group, one, whole.numbers, 0, 1)
        Accumulator(function, wide=True).add(group, one, wide.numbers, 0, 1)
    for function in ("sum", "min"):
        Accumulator(function, floats=True).add(group, one, double.numbers, 0, 1)
    for at, rule in enumerate(rules):
        registers = Registers(rule, 1)
        registers.reserve(events.fields[at], one)
        registers.add(group, events, events.fields[at], 0, 1)
