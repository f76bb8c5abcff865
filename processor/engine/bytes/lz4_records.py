"""Compresses records of a batch into LZ4 blocks: each is compared with the one before it, without a table.

Records of a topic are of one form: members of the same names in the same order, numbers of about the same
width. So what repeats stands in the record before, at the same distance from its beginning, and where widths
differ, at the same quotation mark. 64 bytes are compared at once, and the runs that are equal are found in the
word of bits that this makes. For the records of the benchmark that takes a third of the library's time, for an
output a tenth larger; free text it hardly compresses at all (`processor.wire.encode` says when it is used).

The form of a block is drawn in `processor.engine.bytes.lz4_block`. Its end, as lz4_Block_format.md has it: the
last 5 bytes are literals, and no match begins in the last 12.

Invariants: a match begins in its own block and is no further back than 65,535 bytes. Whatever the lengths of
the records say, what is written inflates to what was given: they are a hint of where to look, and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.vectors import SLACK, copy_16, is_32, same_32, trailing_zeros
from processor.engine.jit import Int, borrowed, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FURTHEST = 65_535
_LEAST_RUN = 4
_LAST_MATCH = 12
_LAST_LITERALS = 5
_QUOTE = ord('"')
_GAP = 12
"""Bytes without a run from which on the two records may be out of step."""
_STEP = 60
"""Of the 64 bytes that are compared: a run that begins in the last few is found from there."""
_BEFORE_MARK = 4
"""Bytes before such a mark from which on they are compared again."""


def block_bound(size: int) -> int:
    """Return how many bytes have to be there for what ``size`` bytes make, `SLACK` included."""
    return size + size // 255 + 16 + SLACK


@inlined
def _same_64(data, i, j):  # type: ignore[no-untyped-def]  # inlined kernel
    return same_32(data, i, j) | (same_32(data, i + np.uint64(32), j + np.uint64(32)) << np.uint64(32))


@inlined
def _quotes(data, i):  # type: ignore[no-untyped-def]  # inlined kernel
    quote = np.uint64(_QUOTE)
    return is_32(data, i, quote) | (is_32(data, i + np.uint64(32), quote) << np.uint64(32))


@inlined
def _put_more(out, at, more):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write what of a length is beyond the token's 15; return where it ends."""
    put_at = at
    put_left = more
    while put_left >= np.uint64(255):
        out[put_at] = np.uint8(255)
        put_at += np.uint64(1)
        put_left -= np.uint64(255)
    out[put_at] = np.uint8(put_left)
    return put_at + np.uint64(1)


@inlined
def _put_literals(data, out, at, begin, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write a token with its literals; return where they end. The token's low half is 0."""
    lit_at = at + np.uint64(1)
    if size < np.uint64(15):
        out[at] = np.uint8(size << np.uint64(4))
        copy_16(out, lit_at, data, begin)
    else:
        out[at] = np.uint8(0xF0)
        lit_at = _put_more(out, lit_at, size - np.uint64(15))
        lit_done = np.uint64(0)
        while lit_done < size:
            copy_16(out, lit_at + lit_done, data, begin + lit_done)
            lit_done += np.uint64(16)
    return lit_at + size


@inlined
def _put_match(out, token, at, distance, run):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write a match behind its literals; return where it ends."""
    out[at] = np.uint8(distance & np.uint64(255))
    out[at + np.uint64(1)] = np.uint8(distance >> np.uint64(8))
    match_at = at + np.uint64(2)
    match_more = run - np.uint64(_LEAST_RUN)
    if match_more < np.uint64(15):
        out[token] |= np.uint8(match_more)
    else:
        out[token] |= np.uint8(15)
        match_at = _put_more(out, match_at, match_more - np.uint64(15))
    return match_at


@inlined
def _record_end(data, at, stop):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return where the record at ``at`` ends by its length, a zigzag varint; at most ``stop``."""
    end_at = at
    end_size = np.uint64(0)
    end_shift = np.uint64(0)
    while end_at < stop and end_shift < np.uint64(35):
        end_byte = np.uint64(data[end_at])
        end_at += np.uint64(1)
        end_size |= (end_byte & np.uint64(127)) << end_shift
        end_shift += np.uint64(7)
        if end_byte < np.uint64(128):
            break
    end_at += end_size >> np.uint64(1)
    return min(end_at, stop)


@kernel
def deflate_block(
    data: NDArray[np.uint8], begin: Int, end: Int, record: Int, out: NDArray[np.uint8], at: Int
) -> tuple[Int, Int]:
    """Compress ``data[begin:end]`` into ``out`` from ``at`` on, as one block.

    Args:
        data: uint8[n], records as a batch holds them; `SLACK` bytes follow ``end``.
        begin: Where the block begins.
        end: Where it ends, perhaps within a record.
        record: Where the first record begins that begins in it.
        out: uint8[m]; room for `block_bound` of ``end - begin`` from ``at`` on.
        at: Where to write.

    Returns:
        Where the block ends in ``out``, and where the first record behind ``end`` begins.
    """
    source, target = borrowed(data), borrowed(out)
    room = np.uint64(data.size)
    zero, one = np.uint64(0), np.uint64(1)
    first, stop = np.uint64(begin), np.uint64(end)
    write = np.uint64(at)
    anchor = first  # literals from here on are not written yet
    before, here = np.uint64(record), np.uint64(record)
    follows = False
    long_enough = stop - first > np.uint64(_LAST_MATCH)
    while here < stop:
        after = _record_end(source, here, room)
        distance = here - before
        p = max(here, anchor)
        if follows and long_enough and distance <= np.uint64(_FURTHEST):
            last_match, last_end = stop - np.uint64(_LAST_MATCH), stop - np.uint64(_LAST_LITERALS)
            while p < after and p <= last_match:
                equal = _same_64(source, p, p - distance)
                runs = equal & (equal >> one)
                runs &= runs >> np.uint64(2)
                onward = p + np.uint64(_STEP)
                lost = zero
                while lost < np.uint64(64):
                    place = trailing_zeros(runs)
                    if place - lost >= np.uint64(_GAP):
                        # Perhaps out of step: bring the next quotation marks of both together.
                        ours, theirs = _quotes(source, p + lost), _quotes(source, p + lost - distance)
                        mine, its = trailing_zeros(ours), trailing_zeros(theirs)
                        moved = distance + mine - its
                        # What stands before the mark may be the same, too: a comma, a blank, a digit.
                        there = p + lost + mine - min(mine, its, np.uint64(_BEFORE_MARK))
                        found = max(mine, its) < np.uint64(64)
                        if (
                            found
                            and mine != its
                            and zero < moved <= np.uint64(_FURTHEST)
                            and there - first >= moved
                        ):
                            distance, onward = moved, there
                            break
                    q = p + place
                    if runs == zero or q > last_match:
                        break
                    run = trailing_zeros(~(equal >> place))
                    lost = place + run
                    if lost >= np.uint64(64):
                        lost = np.uint64(64)
                        run = np.uint64(64) - place
                        more = np.uint64(64)
                        while more == np.uint64(64) and q + run < last_end:
                            more = trailing_zeros(~_same_64(source, q + run, q + run - distance))
                            run += more
                    else:
                        runs &= ~zero << lost
                    run = min(run, last_end - q)
                    token = write
                    write = _put_literals(source, target, write, anchor, q - anchor)
                    write = _put_match(target, token, write, distance, run)
                    anchor = q + run
                p = max(onward, anchor)
        follows = True
        before = here
        here = after
    write = _put_literals(source, target, write, anchor, stop - anchor)
    return np.int64(write), np.int64(here)
