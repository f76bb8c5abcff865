"""Reads the sequences of rows at rest, with the kernels that read those of records.

Faults are those of a JSON value, whatever the stream has: ``field_missing``, ``field_type``, ``out_of_range``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.sequence import SequenceFormat, header_sequence, sequence_of
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from processor.engine.extract.json_matches import JsonMatches
    from processor.engine.extract.sequence import Sequences
    from processor.engine.rest.columns import IdColumn
    from processor.engine.rest.json_rows import JsonRows


def sequences_of_json(
    rows: JsonRows, found: JsonMatches, which: int, *, texts: bool, numbers: bool
) -> Sequences:
    """Return sequence int64[n] (0 where faulty) and fault uint8[n] of what a pointer led to.

    Args:
        rows: Their text.
        found: What `JsonRows.look_up` returned.
        which: Which of its pointers.
        texts: Whether a string of the form ``-?[0-9]+`` is a sequence.
        numbers: Whether a JSON integer is one.
    """
    sequence, fault = sequence_of(rows.data, found, which, not numbers)
    if texts and numbers:
        as_text, of_text = sequence_of(rows.data, found, which, True)
        worded = (found.kind[which] == JsonKind.STRING) | (found.kind[which] == JsonKind.ESCAPED)
        np.copyto(sequence, as_text, where=worded)
        np.copyto(fault, of_text, where=worded)
    # Null is nothing, as it is in a column.
    fault[(found.fault == Fault.NONE) & (found.kind[which] == JsonKind.NULL)] = Fault.FIELD_MISSING
    return sequence, fault


def sequences_of_texts(column: IdColumn) -> Sequences:
    """Return sequence int64[n] (0 where faulty) and fault uint8[n] of texts of the form ``-?[0-9]+``."""
    fault = np.where(column.valid, np.uint8(Fault.NONE), np.uint8(Fault.FIELD_MISSING))
    begin, length = column.offsets[:-1].copy(), np.diff(column.offsets)
    sequence = header_sequence(column.data, begin, length, int(SequenceFormat.TEXT), fault)
    # It speaks of headers, and of a text in a column as `sequence_of` does of one in a value.
    fault[fault == Fault.HEADER_MALFORMED] = Fault.FIELD_TYPE
    return sequence, fault
