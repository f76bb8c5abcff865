"""Validates JSON values, and follows JSON pointers in them.

One walk over a value's bytes answers both, for any number of pointers at once. JSON is RFC 8259 with nothing
forgiven but what `processor.engine.extract.json_matches` says: no byte order mark, no NaN, no comments, strings
as `processor.engine.extract.json_text` has them; at most `MOST_DEPTH` nested arrays and objects. Pointers are
RFC 6901. Of equal keys in an object the last counts, and keys are equal by their unescaped text.

Invariant: no read outside ``[start, start + length)`` of the value, whatever its bytes; nothing is found in a
value that is not JSON as a whole; no recursion, and no allocation per value.

How the pointers are followed: a set of pointers is the bits of an int64. Beside each open container stands the
set of those that lead on inside it; a key or an index narrows that to the set that leads to the next value. A
key that matches forgets what an equal key before it had led to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes import siphash
from processor.engine.bytes.siphash import absorb_part
from processor.engine.extract.json_content import Content, content_hash, leaf_hash, repeated
from processor.engine.extract.json_matches import BARE, JsonMatches, JsonRules
from processor.engine.extract.json_text import PLAIN, not_finite, same_text, string_end, unescape
from processor.engine.jit import borrowed, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.pointers import Pointers

MOST_DEPTH = 128
"""Nested arrays and objects; the contract's bound. A value with more is not JSON to us."""


def look_up(
    data: NDArray[np.uint8],
    value: NDArray[np.int64],
    value_length: NDArray[np.int64],
    pointers: Pointers,
    content: Content | None = None,
    rules: JsonRules = BARE,
) -> JsonMatches:
    """Validate values and follow all pointers in each.

    Args:
        data: uint8[m], where the values are.
        value: int64[n], where each begins.
        value_length: int64[n], bytes; -1: a tombstone.
        pointers: Compiled.
        content: Written, in the same walk.
        rules: How the values are read.
    """
    shape = (pointers.first.size - 1, value.size)
    start, length = np.zeros((2, *shape), np.int64)
    found = JsonMatches(np.empty(value.size, np.uint8), np.zeros(shape, np.uint8), start, length)
    _find(data, value, value_length, pointers, found, content, rules)
    return found


# What stands between tokens, and what numbers are made of.
_SPACE = np.zeros(256, np.uint8)
_SPACE[[0x20, 0x09, 0x0A, 0x0D]] = 1
_DIGIT = np.zeros(256, np.uint8)
_DIGIT[0x30:0x3A] = 1


@kernel
def _find(
    data: NDArray[np.uint8],
    value: NDArray[np.int64],
    value_length: NDArray[np.int64],
    compiled: Pointers,
    found: JsonMatches,
    content: Content | None,
    rules: JsonRules,
) -> None:
    """Write into ``found``, which has zeros, what `look_up` returns; no code is for a ``content`` of None."""
    text, cut, first, index = compiled
    fault, kind, start, length = found
    lenient, framing = rules
    pointers = first.size - 1
    # Locals, and no helper that takes the data: numba would count references on every turn, which made the
    # whole three times slower. What is hashed is borrowed.
    plain, space, digit, lent = PLAIN, _SPACE, _DIGIT, borrowed(data)
    everything = (np.int64(1) << pointers) - 1
    # Of the open containers, by depth; row 0 stands for the outside.
    inside = np.zeros(MOST_DEPTH + 1, np.int64)  # the pointers that lead on inside
    ending = np.zeros(MOST_DEPTH + 1, np.int64)  # the pointers that lead to the container itself
    place = np.zeros(MOST_DEPTH + 1, np.int64)  # the present element's index; -1: an object
    path = np.zeros((MOST_DEPTH + 1, 4), np.uint64)  # the hash's state behind the path that leads here
    members = np.zeros(MOST_DEPTH + 1, np.int64)  # where an object's members begin in `seen`
    longest = np.int64(0)
    if content is not None:
        for row in range(value.size):
            longest = max(longest, value_length[row])
    # Room for the longest, and not more where it is needed: an array in the place of another is counted, too.
    # Of each member of the open objects, which has 4 bytes at least: its name's hash, and the sum before it.
    seen = np.empty((longest // 4 + 1, 3), np.uint64)
    scratch = np.empty(longest, np.uint8)
    unescaped = borrowed(scratch)
    b0 = b1 = b2 = b3 = np.uint64(0)
    if content is not None:
        b0, b1, b2, b3 = siphash.begin(content.key)

    for row in range(value.size):
        if value_length[row] < 0:
            fault[row] = 5
            continue
        # Positions are never negative; as uint64 they spare numba's look for a negative index.
        at = value[row]
        stop = at + value_length[row]
        if framing != 0:
            if stop - at >= 5 and data[np.uint64(at)] == 0:
                at += 5
            elif framing == 2:
                fault[row] = 12
                continue
        if (
            lenient
            and stop - at >= 3
            and data[np.uint64(at)] == 0xEF
            and data[np.uint64(at + 1)] == 0xBB
            and data[np.uint64(at + 2)] == 0xBF
        ):
            at += 3
        depth = 0
        element = np.int64(0)
        on = np.int64(0)  # inside[depth]
        mask = everything  # the pointers that lead to the value that comes next, or into it
        valid = False
        unclear = False  # something counts that is not UTF-8
        sum0 = sum1 = p0 = p1 = p2 = p3 = np.uint64(0)
        count = np.int64(0)  # in `seen`
        hidden = np.int64(0)  # inside a container at this depth nothing counts; 0: everything does
        if content is not None:
            p0, p1, p2, p3 = b0, b1, b2, b3

        # Each turn reads one scalar, or opens one container; then closes all that end there.
        while True:
            # 1. In an object a key and a colon stand before the value.
            if depth > 0 and element < 0:
                while at < stop and space[data[np.uint64(at)]] != 0:
                    at += 1
                if at >= stop or data[np.uint64(at)] != 0x22:
                    break
                begin = at + 1
                at = begin
                while at < stop and plain[data[np.uint64(at)]] != 0:
                    at += 1
                if at >= stop:
                    break
                what = 6
                if data[np.uint64(at)] != 0x22:
                    at, what = string_end(data, at, stop, lenient)
                    if at < 0:
                        break
                size = at - begin
                mask = np.int64(0)
                if on != 0:
                    for p in range(pointers):
                        if (on >> p) & 1 != 0:
                            token = first[p] + depth - 1
                            low = cut[token]
                            same = False
                            if what != 6:
                                same = same_text(data, begin, size, text, low, cut[token + 1])
                            elif size == cut[token + 1] - low:
                                same = True
                                for j in range(size):
                                    if data[np.uint64(begin + j)] != text[low + j]:
                                        same = False
                                        break
                            if same:
                                mask |= np.int64(1) << p
                                # What an equal key before led to counts no more.
                                kind[p, row] = 0
                                start[p, row] = 0
                                length[p, row] = 0
                if content is not None and hidden == 0:
                    p0, p1, p2, p3 = path[depth, 0], path[depth, 1], path[depth, 2], path[depth, 3]
                    unclear |= what == 11
                    if what != 6:
                        size = np.int64(unescape(data, begin, size, scratch))
                        p0, p1, p2, p3 = absorb_part(p0, p1, p2, p3, unescaped, np.int64(0), size, 1)
                    else:
                        p0, p1, p2, p3 = absorb_part(p0, p1, p2, p3, lent, begin, size, 1)
                    seen[count, 0], seen[count, 1], seen[count, 2] = p0 ^ p1 ^ p2 ^ p3, sum0, sum1
                    count += 1
                at += 1
                while at < stop and space[data[np.uint64(at)]] != 0:
                    at += 1
                if at >= stop or data[np.uint64(at)] != 0x3A:
                    break
                at += 1
            elif depth > 0:
                mask = np.int64(0)
                if on != 0:
                    for p in range(pointers):
                        if (on >> p) & 1 != 0 and index[first[p] + depth - 1] == element:
                            mask |= np.int64(1) << p
                if content is not None and hidden == 0:
                    p0, p1, p2, p3 = path[depth, 0], path[depth, 1], path[depth, 2], path[depth, 3]
                    word = np.uint64(2) | (np.uint64(element) << np.uint64(8))
                    p0, p1, p2, p3 = siphash.absorb(p0, p1, p2, p3, word)

            # 2. The value.
            while at < stop and space[data[np.uint64(at)]] != 0:
                at += 1
            if at >= stop:
                break
            byte = data[np.uint64(at)]
            begin = at
            size = np.int64(0)
            if byte == 0x22:
                what = 6
                begin = at + 1
                at = begin
                while at < stop and plain[data[np.uint64(at)]] != 0:
                    at += 1
                if at >= stop:
                    break
                if data[np.uint64(at)] != 0x22:
                    at, what = string_end(data, at, stop, lenient)
                    if at < 0:
                        break
                size = at - begin
                at += 1
            elif 0x30 <= byte <= 0x39 or (
                # With an I behind it the minus is that of -Infinity.
                byte == 0x2D and not (lenient and stop - at > 1 and data[np.uint64(at + 1)] == 0x49)
            ):
                what = 4
                if byte == 0x2D:
                    at += 1
                digits = at
                while at < stop and digit[data[np.uint64(at)]] != 0:
                    at += 1
                # At least one digit, and a zero stands alone.
                if at == digits or (at - digits > 1 and data[np.uint64(digits)] == 0x30):
                    break
                if at < stop and data[np.uint64(at)] == 0x2E:
                    what = 5
                    at += 1
                    digits = at
                    while at < stop and digit[data[np.uint64(at)]] != 0:
                        at += 1
                    if at == digits:
                        break
                if at < stop and (data[np.uint64(at)] == 0x65 or data[np.uint64(at)] == 0x45):
                    what = 5
                    at += 1
                    if at < stop and (data[np.uint64(at)] == 0x2B or data[np.uint64(at)] == 0x2D):
                        at += 1
                    digits = at
                    while at < stop and digit[data[np.uint64(at)]] != 0:
                        at += 1
                    if at == digits:
                        break
                size = at - begin
            elif (byte | 0x20) == 0x7B:  # { or [
                what = 8 if byte == 0x7B else 9
                if depth == MOST_DEPTH:
                    break
                place[depth] = element
                # How many tokens a pointer has says whether it ends here.
                here = np.int64(0)
                if mask != 0:
                    for p in range(pointers):
                        if (mask >> p) & 1 != 0 and first[p + 1] - first[p] == depth:
                            here |= np.int64(1) << p
                            kind[p, row] = what
                            start[p, row] = begin
                depth += 1
                if content is not None:
                    members[depth] = count
                    path[depth, 0], path[depth, 1], path[depth, 2], path[depth, 3] = p0, p1, p2, p3
                    if hidden == 0:
                        if here >> content.looked_up != 0:
                            hidden = np.int64(depth)
                        else:
                            # Once for each container: one with nothing in it has content, too.
                            h0, h1 = leaf_hash(p0, p1, p2, p3, lent, begin, np.int64(0), what)
                            sum0 += h0
                            sum1 += h1
                on = mask & ~here
                inside[depth] = on
                ending[depth] = here
                element = np.int64(-1) if byte == 0x7B else np.int64(0)
                at += 1
                while at < stop and space[data[np.uint64(at)]] != 0:
                    at += 1
                if at >= stop:
                    break
                # The closing bracket is two above the opening one in ASCII, of both kinds.
                if data[np.uint64(at)] != byte + 2:
                    continue
                mask = np.int64(0)
            elif byte == 0x74:  # true
                what = 3
                size = np.int64(4)
                if (
                    stop - at < 4
                    or data[np.uint64(at + 1)] != 0x72
                    or data[np.uint64(at + 2)] != 0x75
                    or data[np.uint64(at + 3)] != 0x65
                ):
                    break
                at += 4
            elif byte == 0x66:  # false
                what = 2
                size = np.int64(5)
                if (
                    stop - at < 5
                    or data[np.uint64(at + 1)] != 0x61
                    or data[np.uint64(at + 2)] != 0x6C
                    or data[np.uint64(at + 3)] != 0x73
                    or data[np.uint64(at + 4)] != 0x65
                ):
                    break
                at += 5
            elif byte == 0x6E:  # null
                what = 1
                size = np.int64(4)
                if (
                    stop - at < 4
                    or data[np.uint64(at + 1)] != 0x75
                    or data[np.uint64(at + 2)] != 0x6C
                    or data[np.uint64(at + 3)] != 0x6C
                ):
                    break
                at += 4
            else:
                if not lenient:
                    break
                # Told by where it ends, and not by its size: that costs the others 15 %.
                at, what = not_finite(data, at, stop), 10
                size = at - begin
                if size <= 0:
                    break
            out = False
            if mask != 0:
                # A pointer that has tokens left leads nowhere: this is no container.
                for p in range(pointers):
                    if (mask >> p) & 1 != 0 and first[p + 1] - first[p] == depth:
                        kind[p, row] = what
                        start[p, row] = begin
                        length[p, row] = size
                        if content is not None:
                            out |= p >= content.looked_up
            if content is not None and hidden == 0 and (what < 8 or what > 9) and not out:
                unclear |= what == 11
                if what == 7:
                    size = np.int64(unescape(data, begin, size, scratch))
                    h0, h1 = leaf_hash(p0, p1, p2, p3, unescaped, np.int64(0), size, 6)
                else:
                    # A number as it was written, whatever it is.
                    what = 4 if what == 5 or what == 10 else what  # noqa: PLR1714 - numba makes sets
                    h0, h1 = leaf_hash(p0, p1, p2, p3, lent, begin, size, what)
                sum0 += h0
                sum1 += h1

            # 3. What follows a value: a comma and the next, or the container's end, which ends a value too.
            more = False
            while depth > 0:
                while at < stop and space[data[np.uint64(at)]] != 0:
                    at += 1
                if at >= stop:
                    break
                if data[np.uint64(at)] == 0x2C:
                    at += 1
                    more = True
                    if element >= 0:
                        element += 1
                    break
                if data[np.uint64(at)] != (0x7D if element < 0 else 0x5D):
                    break
                at += 1
                if ending[depth] != 0:
                    for p in range(pointers):
                        if (ending[depth] >> p) & 1 != 0:
                            length[p, row] = at - start[p, row]
                if content is not None:
                    if element < 0 and count - members[depth] > 1:
                        h0, h1 = repeated(seen, members[depth], count)
                        sum0 -= h0
                        sum1 -= h1
                    count = members[depth]
                    if hidden == depth:
                        hidden = np.int64(0)
                depth -= 1
                element = place[depth]
                on = inside[depth]
            if not more:
                if depth == 0:
                    while at < stop and (
                        space[data[np.uint64(at)]] != 0 or (lenient and data[np.uint64(at)] == 0)
                    ):
                        at += 1
                    valid = at == stop and not unclear
                break

        fault[row] = 0 if valid else 6
        if content is not None and valid:
            content.hash[row, 0], content.hash[row, 1] = content_hash(b0, b1, b2, b3, sum0, sum1)
        if not valid:
            for p in range(pointers):
                kind[p, row] = 0
                start[p, row] = 0
                length[p, row] = 0
