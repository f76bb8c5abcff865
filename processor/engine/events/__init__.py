"""Reads typed fields of events out of JSON values, into columns, and sums them up by window and group.

What Spark's side uses stands here. A field's rule says what a value has to be; the kernels read what is written
in the usual way, and `exact` reads, one by one, all that they leave: it is the definition.
"""

from __future__ import annotations

from processor.engine.batch.columns import Columns
from processor.engine.events.accumulators import Accumulator
from processor.engine.events.groups import GroupTable
from processor.engine.events.key_parts import KeyParts, number_part, text_part, wide_parts
from processor.engine.events.reader import EventColumns, EventReader, FieldColumn
from processor.engine.events.registers import KeptValues, Registers
from processor.engine.events.rules import FieldKind, FieldRule
from processor.engine.events.texts import gathered_spans
from processor.engine.events.warm import events_are_warm, warm_events

__all__ = [
    "Accumulator",
    "Columns",
    "EventColumns",
    "EventReader",
    "FieldColumn",
    "FieldKind",
    "FieldRule",
    "GroupTable",
    "KeptValues",
    "KeyParts",
    "Registers",
    "events_are_warm",
    "gathered_spans",
    "number_part",
    "text_part",
    "warm_events",
    "wide_parts",
]
