"""The originals of one partition: keys, values and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

_CAMPAIGNS = ("spring-sale", "newsletter", "search-ads", "retargeting", "affiliates", "podcast")
_PAGES = ("shoes", "jackets", "bikes", "tents", "lamps", "books", "coffee", "plants")
MEMBERS = ("event_id", "campaign", "user_id", "page", "amount")
"""The members of a click's value, but for its time, which is the record's."""
_USERS_PER_PARTITION = 20_000
_BUYERS_SHARE = 0.03

# Events of one moment reach a producer in no strict order; their sequence is that of arrival.
_JITTER_MS = 1_500
_CURVE_POINTS = 512

Rendered = tuple[bytes, bytes, int]
"""Key, value and timestamp of a click, before it is marked."""


class Clicks:
    """Content of one partition's originals, as columns of about 30 bytes per record.

    Args:
        rng: Drawn from by columns: another count gives other records.
        count: Originals.
        place: The partition's number, and how many there are.
        span: ms since 1970 of the first event, and ms that they cover.
        users: int[count], who clicks, where the mode says it: numbers within the partition.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        count: int,
        place: tuple[int, int],
        span: tuple[int, int],
        users: NDArray[np.int32] | None = None,
    ) -> None:
        partition, partitions = place
        self.timestamp_ms = _event_times(rng, count, span)
        self._event = rng.integers(0, 2**63, count, np.int64)
        # Users of one partition meet no other: a topic keyed by user looks like this.
        user = np.minimum(rng.exponential(_USERS_PER_PARTITION / 8, count), _USERS_PER_PARTITION - 1)
        self._user = (user.astype(np.int32) if users is None else users) * partitions + partition
        self._campaign = rng.integers(0, len(_CAMPAIGNS), count, np.uint8)
        self._page = rng.integers(0, len(_PAGES) * 1_000, count, np.int32)
        spent = rng.gamma(2.0, 3_000, count) * (rng.random(count) < _BUYERS_SHARE)
        self._cents = spent.astype(np.int32)

    def share(self, members: Collection[str], rows: NDArray[np.int32], with_: NDArray[np.int32]) -> None:
        """Give some originals what others have of these `MEMBERS`; the rest stays theirs."""
        columns: tuple[NDArray[Any], ...] = self._event, self._campaign, self._user, self._page, self._cents
        for name, column in zip(MEMBERS, columns, strict=True):
            if name in members:
                column[rows] = column[with_]

    def render(self, rows: NDArray[np.int32]) -> list[Rendered]:
        """Return key, value and timestamp of these originals; a repeated row is repeated bytes."""
        times = self.timestamp_ms[rows]
        shown = np.datetime_as_string(times.astype("datetime64[ms]"))
        return [
            (
                b"u-%06d" % user,
                (
                    f'{{"event_id":"{event:016x}","occurred_at":"{when}Z",'
                    f'"campaign":"{_CAMPAIGNS[campaign]}","user_id":"u-{user:06d}",'
                    f'"page":"/{_PAGES[page // 1_000]}/{page % 1_000:03d}",'
                    f'"amount":"{cents // 100}.{cents % 100:02d}"}}'
                ).encode(),
                time,
            )
            for event, when, campaign, user, page, cents, time in zip(
                self._event[rows].tolist(),
                shown.tolist(),
                self._campaign[rows].tolist(),
                self._user[rows].tolist(),
                self._page[rows].tolist(),
                self._cents[rows].tolist(),
                times.tolist(),
                strict=True,
            )
        ]


def _event_times(rng: np.random.Generator, count: int, span: tuple[int, int]) -> NDArray[np.int64]:
    """Draw event times in order of arrival: a day's waves and one rush, a little jitter."""
    start_ms, span_ms = span
    x = np.linspace(0, 1, _CURVE_POINTS)
    # Not drawn: the partitions of one topic see the same waves.
    rate = 1 + 0.35 * np.sin(2 * np.pi * (x - 0.15)) + 0.12 * np.sin(14 * np.pi * x)
    rate += 0.8 * np.exp(-(((x - 0.68) / 0.03) ** 2))
    share = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2)])
    at = np.interp(np.sort(rng.random(count)), share / share[-1], x)
    late_ms = rng.integers(0, _JITTER_MS, count)
    times = np.maximum((at * span_ms).astype(np.int64) - late_ms, 0)
    # Within the span: an event at its very end would open an hour of its own.
    within: NDArray[np.int64] = np.minimum(times, max(span_ms - 1, 0))
    return start_ms + within
