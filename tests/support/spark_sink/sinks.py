"""What goes into a sink, and what must come out: clicks with known times, and the aggregate in plain Python."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.support.kafka.topics import New, produce

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

START = datetime(2026, 1, 5, tzinfo=UTC)
"""Monday: hours, days and half hours begin here."""
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Click:
    """One event, or what stands in its place."""

    at: datetime
    campaign: str
    user: str
    amount: Decimal
    number: int
    raw: bytes | None = None
    """Of a record that is no event."""
    bad: bool = False
    ahead: timedelta = timedelta(0)
    """Of its record's timestamp."""

    @property
    def timestamp(self) -> int:
        """Of its record, ms."""
        return int((self.at - self.ahead).timestamp() * 1000)

    @property
    def value(self) -> bytes | None:
        """As it stands in the topic."""
        if self.bad:
            return self.raw
        return json.dumps(
            {
                "event_id": f"e{self.number}",
                "occurred_at": self.at.isoformat(),
                "campaign": self.campaign,
                "user_id": self.user,
                "page": "/",
                "amount": str(self.amount),
            }
        ).encode()


def click(dice: random.Random, number: int, first: datetime, span: timedelta) -> Click:
    """Return a click at a random time of ``span``, to the millisecond."""
    at = first + timedelta(milliseconds=dice.randrange(int(span.total_seconds() * 1000)))
    return Click(
        at,
        dice.choice("abc"),
        f"u{dice.randrange(40)}",
        Decimal(dice.randrange(10_000)).scaleb(-2),
        number,
    )


def send(bootstrap: str, topic: str, clicks: Sequence[Click], partitions: int) -> None:
    """Produce the clicks, each into the partition of its number."""
    for partition in range(partitions):
        mine = [each for each in clicks if each.number % partitions == partition]
        if mine:
            records = [New(str(each.number).encode(), each.value, (), each.timestamp) for each in mine]
            produce(bootstrap, topic, records, partition=partition)


Window = tuple[datetime, datetime]
Row = dict[str, Any]


def tumbling(width: timedelta) -> Callable[[datetime], list[Window]]:
    """Return what gives an event's windows."""
    return sliding(width, width)


def sliding(width: timedelta, slide: timedelta) -> Callable[[datetime], list[Window]]:
    """Return what gives an event's windows, the earliest first."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def windows(at: datetime) -> list[Window]:
        last = epoch + (at - epoch) // slide * slide
        starts = [last - slide * back for back in range(int(width / slide) + 1)]
        return sorted((start, start + width) for start in starts if start <= at < start + width)

    return windows


def by_window(
    clicks: Iterable[Click],
    windows: Callable[[datetime], list[Window]],
    group: Callable[[Click], Any],
    closed: Callable[[Click, Window], bool] = lambda _click, _window: False,
) -> dict[tuple[Window, Any], list[Click]]:
    """Return the clicks of each window and group, without those that came when it was ``closed``."""
    found: dict[tuple[Window, Any], list[Click]] = defaultdict(list)
    for each in clicks:
        for window in windows(each.at):
            if not closed(each, window):
                found[window, group(each)].append(each)
    return dict(found)


def sessions(
    clicks: Iterable[Click], gap: timedelta, group: Callable[[Click], Any]
) -> dict[tuple[Window, Any], list[Click]]:
    """Return the clicks of each session: those of a group that follow one another within ``gap``."""
    groups: dict[Any, list[Click]] = defaultdict(list)
    for each in clicks:
        groups[group(each)].append(each)
    found: dict[tuple[Window, Any], list[Click]] = {}
    for key, mine in groups.items():
        for part in _parts(sorted(mine, key=lambda each: each.at), gap):
            found[(part[0].at, part[-1].at + gap), key] = part
    return found


def _parts(clicks: Sequence[Click], gap: timedelta) -> Iterator[list[Click]]:
    part: list[Click] = []
    for each in clicks:
        # A session ends at its last event + gap; an event at that very moment still belongs to it.
        if part and each.at > part[-1].at + gap:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def written_aside(folder: Path, what: str) -> list[Row]:
    """Return what stands in ``late`` or ``bad``, every line of every batch."""
    files = sorted((folder / what).glob("batch=*/part-*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def numbers(rows: Iterable[Row]) -> list[int]:
    """Return the numbers of the clicks in rows written aside, in order: their keys."""
    return sorted(int(row["key"]) for row in rows)
