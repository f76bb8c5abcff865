"""Says between which offsets of an output a worker wrote what became of a record, by marks and positions.

Entries there are read one by one, so it does not matter in which order they lie, nor who else has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.marks import MarkFrame
    from processor.kafka.client import TopicPartition

MOST_SPAN = 262_144
"""Offsets: what the 65,536 records between two marks make, and three times as much of others who write too."""


def entry_span(
    case: SourceCase, tp: TopicPartition, kind: str, frame: MarkFrame | None
) -> tuple[int, int] | None:
    """Return from where to before where the entry of a record that the run of now judged stands, if it has one.

    None: it is not known, or so much that it would take long.

    Args:
        case: Of the record.
        tp: The partition of the output.
        kind: What it is, as `schemas.changelog.position.OutputEnds` calls it.
        frame: The marks of the run of now around it.
    """
    limits, last = case.facts.bounds[tp], case.facts.last
    if case.pipeline.routed or case.elsewhere(tp.topic):
        return None
    begin, end = case.begin(tp.topic), -1
    if frame is not None and frame.before is not None and getattr(frame.before.ends, kind) >= 0:
        begin = getattr(frame.before.ends, kind)
    if frame is not None and frame.after is not None and frame.after.since_ms == frame.since_ms:
        end = getattr(frame.after.ends, kind)
    elif last is not None and last.next_offset > case.offset:
        end = getattr(last.ends, kind)
    begin = None if begin is None else max(begin, limits.start)
    end = limits.stable if end < 0 else min(end, limits.stable)
    if begin is None or end - begin > MOST_SPAN:
        return None
    return begin, end
