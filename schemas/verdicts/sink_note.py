"""What a position in the topic of verdicts says of the sink that was written up to it.

The metadata of an offset that `seqmark materialize` commits, text, in the transaction of the sink's records::

    1 <topic id of the sink> <end> <topic id of the verdicts> <seen> <source>

    1            version
    topic ids    32 hex digits (KIP-516); zeros where brokers give none
    end          the offset in the sink behind the last record that was written
    seen         the offset in the topic of verdicts up to which a run has looked, at least the position:
                 between the two are markers of transactions, and no verdict
    source       where the last range that was written ends in the source; -1: none was

Invariant: all that is committed in the sink lies below `end`, as long as nobody else writes there.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.verdicts.record import UNKNOWN_TOPIC

VERSION = "1"
_FIELDS = 6


class SinkNote(NamedTuple):
    """A sink beside a position, both topics by their ids; zeros: not known."""

    sink_id: bytes
    end: int
    verdicts_id: bytes
    seen: int = 0
    source: int = -1

    def text(self) -> str:
        """Write it."""
        return f"{VERSION} {self.sink_id.hex()} {self.end} {self.verdicts_id.hex()} {self.seen} {self.source}"

    @classmethod
    def read(cls, text: str) -> SinkNote | None:
        """Read it; None: it is none, or of a version that is not known."""
        fields = text.split(" ")
        if len(fields) != _FIELDS or fields[0] != VERSION:
            return None
        try:
            ids, numbers = fields[1:4:2], (int(fields[at]) for at in (2, 4, 5))
            (sink, verdicts), (end, seen, source) = map(bytes.fromhex, ids), numbers
            found = cls(sink, end, verdicts, seen, source)
        except ValueError:
            return None
        whole = len(found.sink_id) == len(found.verdicts_id) == len(UNKNOWN_TOPIC) and found.text() == text
        return found if whole else None

    def is_of(self, sink_id: bytes, verdicts_id: bytes) -> tuple[bool, bool]:
        """Whether the sink and the topic of verdicts are the same ones still, as far as ids tell."""
        return _same(self.sink_id, sink_id), _same(self.verdicts_id, verdicts_id)


def _same(known: bytes, now: bytes) -> bool:
    return known == now or UNKNOWN_TOPIC in {known, now}
