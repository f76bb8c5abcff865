"""Compares numbers that begin again: which of two is the later one (RFC 1982, for any N).

With ``wraps`` N the numbers go from 0 to N - 1 and begin again. Of two, the one that the shorter way up leads
to is the later one. Exactly half of an even N apart, which RFC 1982 leaves open, each is later than the other:
doubt between losing a record and passing a copy is decided for the record.

Invariant: nothing overflows, up to N = 2^63 - 1.
"""

from __future__ import annotations

from processor.engine.jit import inlined


@inlined
def is_later(number, mark, wraps):  # type: ignore[no-untyped-def]  # inlined kernel
    """Whether ``number`` is above ``mark``; with ``wraps`` > 0 both are below it, and not negative."""
    if wraps == 0:
        later = number > mark
    else:
        ahead = number - mark
        if ahead < 0:
            ahead += wraps
        later = ahead > 0 and ahead <= wraps - ahead
    return later


def ahead(number: int, mark: int, wraps: int) -> int:
    """Return how far a number lies above another one: 0, it is the same one; below 0, it does not."""
    if not wraps:
        return number - mark
    above = (number - mark) % wraps
    return above if 2 * above <= wraps else above - wraps
