"""Tells by where copies and their originals stand what may have made them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.inspection.report.markup import shown_time
from processor.ops.status_text import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.inspection.audit.rows import Copies, RecordRows

RUN = 10
"""Copies that come in the order of their originals, from which on a producer has gone back."""
_SLACK = 8
"""Offsets between two of a run: other producers' records, transaction markers."""
_AT_ONCE_MS = 2_000
"""Between a record and what a client sends again without waiting for an answer for long."""
_WHOLE = 0.8
"""Share of the contents that came twice, from which on all of it did."""


class Cause(NamedTuple):
    """What may have made some copies.

    Attributes:
        kind: ``whole``, ``replay``, ``partition``, ``retry`` or ``later``.
        copies: How many it made.
        text: What is said of it.
        example: A copy, as ``partition:offset``.
        original: What that is a copy of.
    """

    kind: str
    copies: int
    text: str
    example: str
    original: str


def causes(copies: Copies, distinct: int) -> list[Cause]:
    """Return what made copies, the most first; each copy has one cause.

    Args:
        copies: What was found.
        distinct: How many different contents there are.
    """
    at = copies.places
    if not at.size:
        return []
    copy, original = copies.rows.at(at), copies.rows.at(copies.owner[at])
    order = np.lexsort((copy.offset, copy.partition))
    copy, original = copy.at(order), original.at(order)
    crossing = copy.partition != original.partition
    length = _runs(copy, original, round(_SLACK / copies.rate))
    twice = np.unique(copies.owner[at]).size / copies.rate
    if twice >= _WHOLE * distinct and (crossing.mean() >= _WHOLE or (length >= RUN).mean() >= _WHOLE):
        text = "nearly every record came again: a whole topic was written twice, as by a mirror or a replay"
        return [_cause("whole", copies, (copy, original), np.ones(at.size, np.bool_), text)]
    replayed = length >= max(2, RUN * copies.rate)
    at_once = (copy.reading_ms - original.reading_ms <= _AT_ONCE_MS) & ~crossing
    kinds = (
        ("replay", replayed, _of_runs(copies, copy, length, replayed)),
        (
            "partition",
            crossing & ~replayed,
            "came in another partition than the first: the key or the partitioner differs",
        ),
        (
            "retry",
            at_once & ~replayed,
            f"came within {_AT_ONCE_MS // 1000} s of the first: a client's retry that was not idempotent",
        ),
        (
            "later",
            ~(replayed | crossing | at_once),
            "came one by one, later: an outbox, an HTTP client or a job that tries again",
        ),
    )
    found = [_cause(kind, copies, (copy, original), which, text) for kind, which, text in kinds if which.any()]
    return sorted(found, key=lambda each: -each.copies)


def _runs(copy: RecordRows, original: RecordRows, slack: int) -> NDArray[np.int64]:
    """Return int64[k], how long the run is that each copy is in: they and their originals rise together."""
    ahead, behind = np.diff(copy.offset), np.diff(original.offset)
    goes_on = (np.diff(copy.partition) == 0) & (np.diff(original.partition) == 0)
    goes_on &= (ahead <= slack) & (behind > 0) & (behind <= slack)
    number = np.concatenate(([0], np.cumsum(~goes_on)))
    length: NDArray[np.int64] = np.bincount(number)[number]
    return length


def _of_runs(copies: Copies, copy: RecordRows, length: NDArray[np.int64], replayed: NDArray[np.bool_]) -> str:
    """Say of copies in runs how long they are; the longest when."""
    if not replayed.any():
        return ""
    longest = int(np.argmax(length))
    number = round(int(length[longest]) / copies.rate)
    when = shown_time(int(copy.reading_ms[longest]))
    return (
        "came in the order of their originals: a producer or connector went back, the furthest "
        f"{count(number, 'record')} at {when} UTC"
    )


def _cause(
    kind: str, copies: Copies, both: tuple[RecordRows, RecordRows], which: NDArray[np.bool_], text: str
) -> Cause:
    first = int(np.argmax(which))
    example, original = (f"{int(each.partition[first])}:{int(each.offset[first])}" for each in both)
    return Cause(kind, round(int(which.sum()) / copies.rate), text, example, original)
