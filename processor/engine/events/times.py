"""Kernels that read days and points in time written in the usual way, and leave the others.

ISO 8601 with ``T``, colons and a point: ``2026-01-05T07:08:09.123+01:00``; or a whole number of seconds or
milliseconds since 1970. States are those of `processor.engine.events.numbers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.events.exact import FIRST_MICROS, LAST_MICROS
from processor.engine.events.numbers import VALUE, unread
from processor.engine.jit import inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_ZONE, MAYBE_ZONE, ZONE = 0, 1, 2
"""Whether a text must not, may or has to say its zone."""
_SHORTEST = 19
"""``2026-01-05T07:08:09``."""
_MOST_OFFSET_MINUTES = 18 * 60
_MOST_SECONDS = 20_000_000_000
_INT_DIGITS = 18
_BAD = np.int64(-(2**62))
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


@inlined
def _two(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return two digits as a number; at least 1,000 where they are none."""
    tens = np.int64(data[np.uint64(at)]) - 0x30
    ones = np.int64(data[np.uint64(at + 1)]) - 0x30
    two = tens * 10 + ones
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        two = np.int64(1000)
    return two


@inlined
def _day(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the days since 1970 of ``2026-01-05``; `_BAD` where ten bytes are no day.

    By Howard Hinnant's days_from_civil: years begin in March, so that a leap day is a year's last.
    """
    century = _two(data, at)
    rest = _two(data, at + 2)
    month = _two(data, at + 5)
    day = _two(data, at + 8)
    year = century * 100 + rest
    days = _BAD
    if (
        data[np.uint64(at + 4)] == 0x2D
        and data[np.uint64(at + 7)] == 0x2D
        and century < 100
        and rest < 100
        and year > 0
        and 1 <= month <= 12
        and day > 0
        and day <= _MONTH_DAYS[month]
        and (day < 29 or month != 2 or (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)))
    ):
        shifted = year - 1 if month <= 2 else year
        era = shifted // 400
        of_era = shifted - era * 400
        turned = month - 3 if month > 2 else month + 9
        of_year = (153 * turned + 2) // 5 + day - 1
        days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


@kernel
def read_dates(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    out: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> None:
    """Read days, as days since 1970."""
    for row in range(kind.size):
        out[row] = 0
        state[row] = unread(kind[row])
        if kind[row] == 6 and length[row] == 10:
            days = _day(data, start[row])
            if days != _BAD:
                out[row] = days
                state[row] = VALUE


@kernel
def read_timestamps(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    zone: int,
    out: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> None:
    """Read points in time, as microseconds since 1970."""
    for row in range(kind.size):
        out[row] = 0
        state[row] = unread(kind[row])
        at = start[row]
        stop = at + length[row]
        if kind[row] == 6 and length[row] >= _SHORTEST:
            days = _day(data, at)
            hour = _two(data, at + 11)
            minute = _two(data, at + 14)
            second = _two(data, at + 17)
            good = (
                days != _BAD
                and data[np.uint64(at + 10)] == 0x54
                and data[np.uint64(at + 13)] == 0x3A
                and data[np.uint64(at + 16)] == 0x3A
                and hour < 24
                and minute < 60
                and second < 60
            )
            at += _SHORTEST
            micros = np.int64(0)
            if good and at < stop and data[np.uint64(at)] == 0x2E:
                at += 1
                digits = 0
                while at < stop and 0x30 <= data[np.uint64(at)] <= 0x39:
                    if digits < 6:
                        micros = micros * 10 + np.int64(data[np.uint64(at)] - 0x30)
                    digits += 1
                    at += 1
                for _ in range(6 - digits):
                    micros *= 10
                good = 1 <= digits <= 9
            offset = np.int64(0)
            if good and at == stop:
                good = zone != ZONE
            elif good and zone == NO_ZONE:
                good = False
            elif good and data[np.uint64(at)] == 0x5A:
                good = at + 1 == stop
            elif good and stop - at == 6 and data[np.uint64(at + 3)] == 0x3A:
                hours = _two(data, at + 1)
                minutes = _two(data, at + 4)
                offset = hours * 60 + minutes
                sign = data[np.uint64(at)]
                good = sign in (0x2B, 0x2D) and minutes < 60 and offset <= _MOST_OFFSET_MINUTES
                if sign == 0x2D:
                    offset = -offset
            else:
                good = False
            if good:
                seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
                out[row] = seconds * 1_000_000 + micros
                state[row] = VALUE
        elif kind[row] == 4 and zone != NO_ZONE:
            negative = data[np.uint64(at)] == 0x2D
            if negative:
                at += 1
            if stop - at <= _INT_DIGITS:
                number = np.int64(0)
                while at < stop:
                    number = number * 10 + np.int64(data[np.uint64(at)] - 0x30)
                    at += 1
                if number <= _MOST_SECONDS:
                    number *= 1000
                # In milliseconds: they have room in 64 bits times a thousand as far as they are in range.
                if number <= LAST_MICROS // 1000:
                    found = -number * 1000 if negative else number * 1000
                    if found >= FIRST_MICROS:
                        out[row] = found
                        state[row] = VALUE
