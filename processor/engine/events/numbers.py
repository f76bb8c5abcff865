"""Kernels that read numbers written in the usual way, and leave the others.

Each writes per row what it made of it: a value, or that there is none, or that `exact` has to read it. Of a row
whose state is not `VALUE` the number is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

VALUE, ABSENT, NULL, LEFT = 0, 1, 2, 3
"""States of a row: read; no such member; a JSON null; to be read exactly."""
_EXACT_DIGITS = 18
"""Digits that a signed 64-bit integer always has room for."""
_POWERS = 10.0 ** np.arange(23)
"""Those that a double holds exactly: a mantissa below 2^53 times or over one is rounded once (Clinger)."""
_MANTISSA = 2**53
_LOW32 = np.uint64(0xFFFFFFFF)


@inlined
def unread(kind):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the state of a row until it is read, by the kind of its value."""
    unread_state = LEFT
    if kind == 0:
        unread_state = ABSENT
    elif kind == 1:
        unread_state = NULL
    return unread_state


@kernel
def read_bools(kind: NDArray[np.uint8], out: NDArray[np.int64], state: NDArray[np.uint8]) -> None:
    """Read JSON's true and false as 1 and 0."""
    for row in range(kind.size):
        out[row] = 0
        state[row] = unread(kind[row])
        if kind[row] == 2 or kind[row] == 3:
            out[row] = np.int64(kind[row] == 3)
            state[row] = VALUE


@kernel
def read_ints(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    least: int,
    most: int,
    values: NDArray[np.int64],
    out: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> None:
    """Read integers between ``least`` and ``most``; with ``values`` only these."""
    for row in range(kind.size):
        out[row] = 0
        state[row] = unread(kind[row])
        if kind[row] == 4:
            at = start[row]
            stop = at + length[row]
            negative = data[np.uint64(at)] == 0x2D
            if negative:
                at += 1
            if stop - at <= _EXACT_DIGITS:
                number = np.int64(0)
                while at < stop:
                    number = number * 10 + np.int64(data[np.uint64(at)] - 0x30)
                    at += 1
                if negative:
                    number = -number
                known = values.size == 0
                for k in range(values.size):
                    known |= values[k] == number
                if known and least <= number <= most:
                    out[row] = number
                    state[row] = VALUE


@kernel
def read_floats(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    out: NDArray[np.float64],
    state: NDArray[np.uint8],
) -> None:
    """Read numbers without an exponent whose digits are below 2^53, as the nearest double."""
    for row in range(kind.size):
        out[row] = 0.0
        state[row] = unread(kind[row])
        if kind[row] == 4 or kind[row] == 5:
            at = start[row]
            stop = at + length[row]
            negative = data[np.uint64(at)] == 0x2D
            if negative:
                at += 1
            number = np.int64(0)
            places = -1
            plain = stop - at <= _EXACT_DIGITS
            while at < stop and plain:
                byte = data[np.uint64(at)]
                if byte == 0x2E:
                    places = 0
                elif 0x30 <= byte <= 0x39:
                    number = number * 10 + np.int64(byte - 0x30)
                    if places >= 0:
                        places += 1
                else:
                    plain = False
                at += 1
            if plain and number < _MANTISSA:
                found = np.float64(number)
                if places > 0:
                    found /= _POWERS[places]
                out[row] = -found if negative else found
                state[row] = VALUE


@inlined
def _times_ten(high, low, digit):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the 128-bit number times ten, and a digit more."""
    bottom = (low & _LOW32) * np.uint64(10) + digit
    middle = (low >> np.uint64(32)) * np.uint64(10) + (bottom >> np.uint64(32))
    times_low = (middle << np.uint64(32)) | (bottom & _LOW32)
    times_high = high * np.uint64(10) + (middle >> np.uint64(32))
    return times_high, times_low


@kernel
def read_decimals(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    precision: int,
    scale: int,
    out: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> None:
    """Read decimals, of strings or numbers, without an exponent and with at most ``scale`` places.

    ``out`` is int64[n, 2]: low and high word of the number times 10^scale, in two's complement.
    """
    for row in range(kind.size):
        out[row, 0] = 0
        out[row, 1] = 0
        state[row] = unread(kind[row])
        if 4 <= kind[row] <= 6:
            at = start[row]
            stop = at + length[row]
            negative = at < stop and data[np.uint64(at)] == 0x2D
            if negative:
                at += 1
            whole = 0  # digits before the point, those from the first that is not 0
            before = 0
            while at + before < stop and 0x30 <= data[np.uint64(at + before)] <= 0x39:
                before += 1
            lead = 0
            while lead < before and data[np.uint64(at + lead)] == 0x30:
                lead += 1
            whole = before - lead
            point = at + before
            behind = 0
            plain = before > 0 and whole <= precision - scale
            if plain and point < stop:
                behind = stop - point - 1
                plain = data[np.uint64(point)] == 0x2E and 1 <= behind <= scale
                for k in range(behind):
                    if data[np.uint64(point + 1 + k)] < 0x30 or data[np.uint64(point + 1 + k)] > 0x39:
                        plain = False
            if plain:
                high = np.uint64(0)
                low = np.uint64(0)
                if whole + scale <= _EXACT_DIGITS:
                    for k in range(lead, before):
                        low = low * np.uint64(10) + np.uint64(data[np.uint64(at + k)] - 0x30)
                    for k in range(behind):
                        low = low * np.uint64(10) + np.uint64(data[np.uint64(point + 1 + k)] - 0x30)
                    for _ in range(scale - behind):
                        low *= np.uint64(10)
                else:
                    for k in range(lead, before):
                        high, low = _times_ten(high, low, np.uint64(data[np.uint64(at + k)] - 0x30))
                    for k in range(behind):
                        high, low = _times_ten(high, low, np.uint64(data[np.uint64(point + 1 + k)] - 0x30))
                    for _ in range(scale - behind):
                        high, low = _times_ten(high, low, np.uint64(0))
                if negative:
                    low = ~low + np.uint64(1)
                    high = ~high
                    if low == np.uint64(0):
                        high += np.uint64(1)
                out[row, 0] = np.int64(low)
                out[row, 1] = np.int64(high)
                state[row] = VALUE
