"""Notes in a quarantine of which of its records were judged again, and have left it.

`seqmark redrive` writes one with each of its commits, in the same transaction, into the partition in which the
records stand. It has no key, two headers, and as its value JSON::

    seqmark.redriven   1, the version
    seqmark.source     topic:partition:position, as the last header of a quarantined record names its own

    {"redriven": {"position": 120, "limit_ms": 1700000000000, "passed": 3, "dropped": 1,
                  "offsets": [[7, 9], [12, 12]]}}

    position   the first source offset that the pipeline had not taken in: what passed stands in the sink
               behind what came before it, and before what came from there on
    limit_ms   how far the records could move the partition's clock, in mode insert-id; ms
    passed     how many are in the sink
    dropped    how many are not: they have receipts, where the pipeline writes any
    offsets    in this partition of the quarantine: first and last of each run of them. Between two that are
               named there may be markers of transactions, and records of other pipelines

A quarantined record has three headers of Seqmark's at least, so none can be taken for a note.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

REDRIVEN, SOURCE = b"seqmark.redriven", b"seqmark.source"
PREFIX = b'{"redriven":'
"""What the value of each begins with."""
_VERSION = b"1"
_NUMBERS = "position", "limit_ms", "passed", "dropped"


class UnknownNoteError(Exception):
    """A note cannot be read: a later version has written it, or it is not whole."""


@dataclass(frozen=True, slots=True)
class RedriveNote:
    """One note.

    Attributes:
        topic: The source.
        partition: Of the source.
        position: The first source offset that was not taken in.
        limit_ms: How far the records could move the partition's clock.
        passed: How many are in the sink.
        dropped: How many are not.
        offsets: First and last of each run of them in the quarantine, rising.
    """

    topic: str
    partition: int
    position: int
    limit_ms: int
    passed: int
    dropped: int
    offsets: tuple[tuple[int, int], ...]

    @property
    def records(self) -> int:
        """How many records it names."""
        return self.passed + self.dropped

    def names(self, offset: int) -> bool:
        """Whether it names what stands at an offset of the quarantine."""
        run = bisect_right(self.offsets, (offset, 2**63)) - 1
        return run >= 0 and offset <= self.offsets[run][1]

    def value(self) -> bytes:
        """Write it."""
        fields = {name: getattr(self, name) for name in (*_NUMBERS, "offsets")}
        return orjson.dumps({"redriven": fields})

    def headers(self) -> list[tuple[str | bytes, bytes | None]]:
        """Return the headers that it stands with."""
        where = f"{self.topic}:{self.partition}:{self.position}".encode()
        return [(REDRIVEN, _VERSION), (SOURCE, where)]

    @classmethod
    def read(
        cls, value: bytes | None, headers: Sequence[tuple[str | bytes, bytes | None]]
    ) -> RedriveNote | None:
        """Read a record of a quarantine; None: it is no note.

        Raises:
            UnknownNoteError: It is one, and says nothing that is known here.
        """
        if not is_note(headers):
            return None
        version, where = (content or b"" for _, content in headers)
        if version != _VERSION:
            raise UnknownNoteError(f"its version is {version.decode(errors='replace')}, which is a later one")
        try:
            topic, number, _ = where.decode().rsplit(":", 2)
            said: dict[str, Any] = orjson.loads(value or b"")["redriven"]
            position, limit_ms, *counts = (int(said[name]) for name in _NUMBERS)
            runs = tuple((int(first), int(last)) for first, last in said["offsets"])
            passed, dropped = counts
            return cls(topic, int(number), position, limit_ms, passed, dropped, runs)
        except (ValueError, KeyError, TypeError) as error:
            raise UnknownNoteError("it is not whole") from error


def is_note(headers: Sequence[tuple[str | bytes, bytes | None]]) -> bool:
    """Whether a record of a quarantine with these headers is a note."""
    return [name for name, _ in headers] == [REDRIVEN, SOURCE]


def runs_of(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return first and last of each run of consecutive offsets, which rise."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return tuple(runs)
