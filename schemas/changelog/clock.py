r"""Bounds that a worker's clock has set to a partition's, byte for byte.

A partition's clock follows from its records' timestamps but where a worker's clock comes in: it bounds them
(``max_ahead``), or is read itself (``time = "arrival"``). Whoever judges the records again needs to know that;
so a commit says it of its own records, in the state of the ids (`schemas.changelog.ids`)::

    trace  | from i64 | before i64 | limits ... |
    limit  | source offset varint | limit varint |

Since the source offset ``from``, where the clock read ``before`` (ms), timestamps alone have moved it up to the
commit's end. A limit (ms) holds from its source offset on up to that of the next: no timestamp counts for more
than it, and by arrival it is what the clock reads. Offsets are written as what is added to the one before; a
limit as 0 where there is none from there on, else as 1 more than, as zigzag, what is added to the one before.
All varints are LEB128. A commit whose records nothing has bounded has no limits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

NO_LIMIT = 2**63 - 1
"""Timestamps alone."""
NOT_KNOWN = -1
"""In place of the source offset ``from``: what was before is not known."""
_HEAD = struct.Struct(">qq")
_MOST_BITS = 70


@dataclass(frozen=True, slots=True)
class ClockTrace:
    """What one commit says of the clock.

    Attributes:
        since: From this source offset up to the commit's end timestamps alone have moved the clock;
            `NOT_KNOWN` where that is not known.
        before_ms: What it read there.
        limits: Source offset and limit in ms, in order.
    """

    since: int = NOT_KNOWN
    before_ms: int = 0
    limits: tuple[tuple[int, int], ...] = ()

    def encode(self) -> bytes:
        """Return its bytes."""
        out = bytearray(_HEAD.pack(self.since, self.before_ms))
        at = last = 0
        for offset, limit in self.limits:
            _put(out, offset - at)
            at = offset
            if limit == NO_LIMIT:
                _put(out, 0)
                continue
            moved, last = limit - last, limit
            _put(out, 1 + _zigzag(moved))
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> ClockTrace:
        """Read it.

        Raises:
            ValueError: It is cut.
        """
        if len(data) < _HEAD.size:
            raise ValueError("a clock trace is cut")
        since, before = _HEAD.unpack_from(data)
        limits = []
        place, at, last = _HEAD.size, 0, 0
        while place < len(data):
            step, place = _get(data, place)
            code, place = _get(data, place)
            at += step
            if code:
                last += _unzigzag(code - 1)
            limits.append((at, last if code else NO_LIMIT))
        return cls(since, before, tuple(limits))


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unzigzag(code: int) -> int:
    return -(code + 1 >> 1) if code & 1 else code >> 1


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _get(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data) and shift < _MOST_BITS:
        number |= (data[place] & 0x7F) << shift
        place += 1
        if not data[place - 1] & 0x80:
            return number, place
        shift += 7
    raise ValueError("a clock trace is cut")
