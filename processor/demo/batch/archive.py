"""Makes three days of files of clicks whose copies are known. Pure, but for writing them.

A click is sent again within its day (a resend), or days later (a connector that begins again); and about one in
a hundred has the id of another click and other content. Two collectors write a file per day each, in the order
of sending. What becomes of each row is known as it is made, without asking Seqmark.

On the last day both collectors write prices that are a hundred times too high; later they deliver its files
once more, with the right ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAYS = ("2026-03-02", "2026-03-03", "2026-03-04")
WRONG = 100
"""So many times too high are the prices of the last day at first."""
_START_MS = 1_772_409_600_000  # 2026-03-02T00:00:00Z, a Monday
DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_CAMPAIGNS = ("affiliates", "brand", "newsletter", "search", "spring")
CONTENT = ("event_id", "occurred_at", "campaign", "user_id", "price", "sent_at")
_COLLECTORS = ("a", "b")

# Of the rows of a day. With one click in twenty that is sent again, as in the demo of streams.
_COPIES, _ACROSS, _COLLISIONS, _COLLISIONS_ACROSS, _LATE = 0.03, 0.02, 0.005, 0.005, 0.005
_BAD = 25 / 475_000


class RowKind(Enum):
    """What a row is, and what becomes of it."""

    FIRST = "sent for the first time"
    COPY = "copy within a run"
    COPY_ACROSS = "copy of a row of an earlier run"
    COLLISION = "same id, other content, within a run"
    COLLISION_ACROSS = "same id, other content, of an earlier run"
    BAD = "cannot be judged"


COPIES_AT_REST = (RowKind.COPY, RowKind.COPY_ACROSS)
COLLISIONS_AT_REST = (RowKind.COLLISION, RowKind.COLLISION_ACROSS)


@dataclass(slots=True, eq=False)
class ArchiveRow:
    """One row of a file.

    Attributes:
        kind: What it is.
        day: Number of the day whose file it is in.
        collector: Number of the collector that wrote it.
        sent_ms: When.
        time_ms: Of the event; -1: it has none that can be read.
        id: The event's.
        user: Who clicked.
        price: In cents.
        owner: The row that it is a copy of, or collides with.
        row: Its number in its file, from 0 on.
    """

    kind: RowKind
    day: int
    collector: int
    sent_ms: int
    time_ms: int
    id: str
    user: int
    price: int
    owner: ArchiveRow | None = None
    row: int = -1

    @property
    def file(self) -> str:
        """The base name of its file."""
        return f"{DAYS[self.day]}-{_COLLECTORS[self.collector]}.jsonl"

    @property
    def date(self) -> int:
        """The number of its event's day."""
        return (self.time_ms - _START_MS) // DAY_MS

    def content(self, *, corrected: bool) -> dict[str, Any]:
        """Return the row as it is written, before or after the last day's prices are right."""
        wrong = self.date == len(DAYS) - 1 and not corrected
        return {
            "event_id": self.id,
            "occurred_at": _text(self.time_ms),
            "campaign": _CAMPAIGNS[self.user % len(_CAMPAIGNS)],
            "user_id": self.user,
            "price": self.price * (WRONG if wrong else 1),
            "sent_at": _text(self.sent_ms),
        }

    def line(self, *, corrected: bool) -> bytes:
        """Return its line."""
        if self.kind is not RowKind.BAD:
            return orjson.dumps(self.content(corrected=corrected))
        return (b'{"event_id": "cut off', orjson.dumps(self._without_time()))[self.user % 2]

    @property
    def fault(self) -> str:
        """The code by which a row that cannot be judged is in quarantine."""
        return ("value_not_json", "field_missing")[self.user % 2]

    def _without_time(self) -> dict[str, Any]:
        return {"event_id": self.id, "occurred_at": None, "price": self.price}


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def make_archive(records: int, seed: int) -> list[list[ArchiveRow]]:
    """Return the rows of each day, by file and number; the same seed makes the same rows."""
    chance = random.Random(seed)  # noqa: S311 - made-up data, the same for the same seed
    firsts: list[ArchiveRow] = []
    days = []
    for day in range(len(DAYS)):
        rows = _day(chance, day, records // len(DAYS), firsts)
        firsts += [each for each in rows if each.kind is RowKind.FIRST]
        rows.sort(key=lambda each: (each.collector, each.sent_ms))
        for collector in range(len(_COLLECTORS)):
            for number, each in enumerate(row for row in rows if row.collector == collector):
                each.row = number
        days.append(rows)
    return days


def make_stream(days: list[list[ArchiveRow]], seed: int) -> list[ArchiveRow]:
    """Return the clicks of the day after the files, in the order of sending; the same seed makes the same.

    Their numbers are their offsets in a topic of one partition.
    """
    chance = random.Random(seed + 1)  # noqa: S311 - as above
    firsts = [each for each in all_rows(days) if each.kind is RowKind.FIRST]
    rows = _day(chance, len(days), len(days[0]), firsts)
    for each in rows:
        if each.kind is RowKind.BAD:
            each.user = 0  # no JSON: a stream needs no time of the event
        elif each.owner is not None:
            each.sent_ms = max(each.sent_ms, each.owner.sent_ms + 1)
    rows.sort(key=lambda each: each.sent_ms)
    for number, each in enumerate(rows):
        each.row = number
    return rows


def _day(chance: random.Random, day: int, count: int, earlier: list[ArchiveRow]) -> list[ArchiveRow]:
    """Return the rows of a day, in no order."""
    shares = {
        RowKind.COPY: _COPIES,
        RowKind.COLLISION: _COLLISIONS,
        RowKind.COPY_ACROSS: _ACROSS if day else 0,
        RowKind.COLLISION_ACROSS: _COLLISIONS_ACROSS if day else 0,
    }
    counts = {kind: round(count * share) for kind, share in shares.items()}
    bad = max(round(count * _BAD), 2)
    late = round(count * _LATE) if day else 0
    mine = [_first(chance, day, day) for _ in range(count - sum(counts.values()) - bad - late)]
    mine += [_first(chance, day, day - 1) for _ in range(late)]
    rows = list(mine)
    # Of the rows of a day none is copied twice, and none collides twice: who owns each copy is plain.
    ours = chance.sample(mine, counts[RowKind.COPY] + counts[RowKind.COLLISION])
    theirs = chance.sample(earlier, counts[RowKind.COPY_ACROSS] + counts[RowKind.COLLISION_ACROSS])
    rows += [_copy(chance, RowKind.COPY, day, each) for each in ours[: counts[RowKind.COPY]]]
    rows += [_copy(chance, RowKind.COPY_ACROSS, day, each) for each in theirs[: counts[RowKind.COPY_ACROSS]]]
    collided = [_collision(chance, RowKind.COLLISION, day, each) for each in ours[counts[RowKind.COPY] :]]
    collided += [
        _collision(chance, RowKind.COLLISION_ACROSS, day, each)
        for each in theirs[counts[RowKind.COPY_ACROSS] :]
    ]
    rows += collided
    rows += [_bad(chance, day, number) for number in range(bad)]
    return rows


def _first(chance: random.Random, day: int, of_day: int) -> ArchiveRow:
    # More clicks in the afternoon than at night.
    time_ms = _START_MS + of_day * DAY_MS + int(chance.triangular(0, DAY_MS - 2, 0.65 * DAY_MS))
    sent_ms = time_ms + chance.randrange(20, 2_000) + (day - of_day) * DAY_MS
    return ArchiveRow(RowKind.FIRST, day, chance.randrange(2), sent_ms, time_ms, *_values(chance))


def _values(chance: random.Random) -> tuple[str, int, int]:
    return f"{chance.getrandbits(64):016x}", chance.randrange(20_000), chance.randrange(1, 500)


def _copy(chance: random.Random, kind: RowKind, day: int, of: ArchiveRow) -> ArchiveRow:
    """Return a row that is sent again, later and by a collector whose file comes no earlier."""
    sent_ms = of.sent_ms + chance.randrange(1_000, _HOUR_MS) + (day - of.day) * DAY_MS
    collector = chance.randrange(of.collector, len(_COLLECTORS)) if day == of.day else chance.randrange(2)
    return ArchiveRow(kind, day, collector, sent_ms, of.time_ms, of.id, of.user, of.price, of)


def _collision(chance: random.Random, kind: RowKind, day: int, of: ArchiveRow) -> ArchiveRow:
    """Return another click under the id of one that was before it."""
    row = _first(chance, day, day)
    row.kind, row.id, row.owner = kind, of.id, of
    if row.time_ms <= of.time_ms:
        # Within the owner's date, which has at least this millisecond left.
        left = _START_MS + (of.date + 1) * DAY_MS - of.time_ms
        row.time_ms = of.time_ms + chance.randrange(1, left)
        row.sent_ms = max(row.sent_ms, row.time_ms + 20)
    return row


def _bad(chance: random.Random, day: int, number: int) -> ArchiveRow:
    row = _first(chance, day, day)
    row.kind, row.time_ms, row.user = RowKind.BAD, -1, number
    return row


def write_day(rows: list[ArchiveRow], folder: Path, *, corrected: bool = False) -> list[Path]:
    """Write the files of a day; return them."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[bytes]] = {}
    for each in rows:
        found.setdefault(each.file, []).append(each.line(corrected=corrected))
    for name, lines in found.items():
        (folder / name).write_bytes(b"\n".join([*lines, b""]))
    return [folder / name for name in sorted(found)]


def all_rows(days: list[list[ArchiveRow]]) -> Iterator[ArchiveRow]:
    """Yield the rows of all days."""
    for rows in days:
        yield from rows
