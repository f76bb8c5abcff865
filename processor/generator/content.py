"""The originals of one partition: keys, values and times, and what they are judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from processor.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from processor.generator.pointers import Fields
    from schemas.config import HeaderSource

CAMPAIGNS = ("spring-sale", "newsletter", "search-ads", "retargeting", "affiliates", "podcast")
PAGES = ("shoes", "jackets", "bikes", "tents", "lamps", "books", "coffee", "plants")
_USERS_PER_PARTITION = 20_000
_BUYERS_SHARE = 0.03

# Events of one moment reach a producer in no strict order; their sequence is that of arrival.
_JITTER_MS = 1_500
_CURVE_POINTS = 512

# Sequences may have gaps (records that the producer gave up): one record in fifty skips up to 40 numbers.
_GAP_SHARE = 0.02
_GAP_MOST = 40
_INT32_END = 2**31

FAULTS = (
    "",
    "header_missing",
    "header_malformed",
    "key_missing",
    "value_missing",
    "value_not_json",
    "field_missing",
    "field_type",
    "out_of_range",
)
"""The contract's quarantine codes, as far as `generate` makes such records."""
_PLAIN_FAULTS = 2  # a sequence in a header can lack the header or have it malformed: the first two codes


class Record(NamedTuple):
    """What a producer hands over."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


Rendered = tuple[bytes, bytes, int]
"""Key, value and timestamp of a click, before it is marked."""


class Marks(Protocol):
    """What a mode judges the originals of one partition by."""

    @property
    def faults(self) -> NDArray[np.uint8]:
        """uint8[originals], index into `FAULTS`: why an original cannot be judged, 0 if it can."""
        ...

    def records(self, rows: NDArray[np.int32], rendered: Sequence[Rendered]) -> list[Record]:
        """Return the records of these originals, out of what `Clicks.render` gave for them."""
        ...


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
        self.campaign = rng.integers(0, len(CAMPAIGNS), count, np.uint8)
        self._page = rng.integers(0, len(PAGES) * 1_000, count, np.int32)
        spent = rng.gamma(2.0, 3_000, count) * (rng.random(count) < _BUYERS_SHARE)
        self.cents = spent.astype(np.int32)

    def render(self, rows: NDArray[np.int32]) -> list[Rendered]:
        """Return key, value and timestamp of these originals; a repeated row is repeated bytes."""
        times = self.timestamp_ms[rows]
        shown = np.datetime_as_string(times.astype("datetime64[ms]"))
        return [
            (
                b"u-%06d" % user,
                (
                    f'{{"event_id":"{event:016x}","occurred_at":"{when}Z",'
                    f'"campaign":"{CAMPAIGNS[campaign]}","user_id":"u-{user:06d}",'
                    f'"page":"/{PAGES[page // 1_000]}/{page % 1_000:03d}",'
                    f'"amount":"{cents // 100}.{cents % 100:02d}"}}'
                ).encode(),
                time,
            )
            for event, when, campaign, user, page, cents, time in zip(
                self._event[rows].tolist(),
                shown.tolist(),
                self.campaign[rows].tolist(),
                self._user[rows].tolist(),
                self._page[rows].tolist(),
                self.cents[rows].tolist(),
                times.tolist(),
                strict=True,
            )
        ]


def with_parts(
    rendered: Sequence[Rendered],
    headers: Mapping[str, Sequence[bytes]],
    fields: Fields,
    slots: Sequence[Sequence[bytes]],
) -> list[Record]:
    """Return clicks as records with what a definition asks for; columns have a row per click.

    Args:
        rendered: The clicks.
        headers: A column each, in the order in which they stand in a record.
        fields: Where the value's further fields stand.
        slots: A column each of them, as JSON.
    """
    values = [value for _, value, _ in rendered]
    if slots:
        values = [
            fields.put(value, shown) for value, shown in zip(values, zip(*slots, strict=True), strict=True)
        ]
    columns = zip(*headers.values(), strict=True) if headers else ((),) * len(values)
    return [
        Record(key, value, tuple(zip(headers, shown, strict=True)), time)
        for (key, _, time), value, shown in zip(rendered, values, columns, strict=True)
    ]


class SequenceHeaders:
    """Mode ``watermark``, scope ``partition``: a rising number in a header, no epoch, no reorder window.

    The plain case is apart from `processor.generator.scoped`, because it is what benchmarks make millions of.

    Args:
        rng: Drawn from by columns.
        count: Originals.
        source: Where the sequence belongs.
        broken: Which originals cannot be judged.
    """

    def __init__(
        self, rng: np.random.Generator, count: int, source: HeaderSource, broken: NDArray[np.int64]
    ) -> None:
        steps = np.where(rng.random(count) < _GAP_SHARE, rng.integers(2, _GAP_MOST + 1, count), 1)
        self.sequence = np.cumsum(steps) + int(rng.integers(0, 1_000))
        self.faults = np.zeros(count, np.uint8)
        self.faults[broken] = 1 + np.arange(broken.size) % _PLAIN_FAULTS
        self._name = source.name
        if source.format == "int32":
            require_int32(self.sequence)
        if source.format == "text":
            self._values = [b"%d" % number for number in self.sequence.tolist()]
            self._width = 0
        else:
            self._width = 8 if source.format == "int64" else 4
            self._bytes = self.sequence.astype(f">i{self._width}").tobytes()

    @property
    def passes(self) -> NDArray[np.bool_]:
        """bool[originals]: sequences rise, so all pass that can be judged."""
        passes: NDArray[np.bool_] = self.faults == 0
        return passes

    def records(self, rows: NDArray[np.int32], rendered: Sequence[Rendered]) -> list[Record]:
        """Return the records of these originals, each with its sequence in the header."""
        headers = self._headers
        return [
            Record(key, value, headers(original), time)
            for original, (key, value, time) in zip(rows.tolist(), rendered, strict=True)
        ]

    def _headers(self, original: int) -> tuple[tuple[str, bytes | None], ...]:
        match self.faults[original]:
            case 0 if self._width:
                at = original * self._width
                return ((self._name, self._bytes[at : at + self._width]),)
            case 0:
                return ((self._name, self._values[original]),)
            case 1:
                return ()
            case _:
                # The wrong width for an integer, the wrong form for a text.
                return ((self._name, b"?%d" % (original % 10)),)


def require_int32(sequence: NDArray[np.int64]) -> None:
    """Refuse sequences that do not fit.

    Raises:
        ConfigError: One does not.
    """
    if sequence.size and sequence.max() >= _INT32_END:
        message = f"{sequence.size:,} records in one partition do not fit int32: use int64 or text"
        raise ConfigError([Problem("records", message)])


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
