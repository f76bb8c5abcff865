"""Makes files of clicks, and a topic behind them, whose copies are known; compares what became of the files.

Pure, but for writing the files: one a day, in the order of sending. A click is sent again within its day, or
days later; and about one in a hundred has the id of another and other content. What becomes of each row is
known as it is made. On the last day prices are a hundred times too high; its file comes again with right ones.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from processor.demo.truth import COLLISION, DROPPED, FATES, FIRST, KEPT, NOTED, DemoResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

DAYS = ("2026-03-02", "2026-03-03", "2026-03-04")
COPY, COPY_ACROSS, BAD = "copy within a run", "copy of a row of an earlier run", "cannot be judged"
COPIES = {COPY: "copy within the topic", COPY_ACROSS: "copy of a row of the files"}
"""What they are called on the topic."""
_START_MS = 1_772_409_600_000  # 2026-03-02T00:00:00Z, a Monday
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_WRONG = 100
_CAMPAIGNS = ("affiliates", "brand", "newsletter", "search", "spring")
# Of the rows of a day; of those of earlier days from the second on.
_SHARES = ((COPY, 0.03, 0), (COLLISION, 0.005, 0), (COPY_ACROSS, 0.02, 1), (COLLISION, 0.005, 1))
_LATE, _BAD = 0.005, 25 / 475_000
_FATES = {FIRST: (KEPT,), COLLISION: (KEPT, NOTED)}


@dataclass(slots=True, eq=False)
class Row:
    """One row: what it is, the day it is sent on, when, and the event that it has."""

    kind: str
    day: int
    sent_ms: int
    time_ms: int
    id: str
    user: int
    price: int
    number: int = -1

    @property
    def place(self) -> str:
        """Its file's base name, and its number there."""
        return f"{(*DAYS, 'topic')[self.day]}.jsonl:{self.number}"

    @property
    def date(self) -> int:
        """The number of its event's day."""
        return (self.time_ms - _START_MS) // _DAY_MS

    @property
    def fates(self) -> tuple[str, ...]:
        """What becomes of it."""
        return (f"quarantined as {self.code}",) if self.kind == BAD else _FATES.get(self.kind, (DROPPED,))

    @property
    def code(self) -> str:
        """Why it cannot be judged, where it cannot: half of these are no JSON, as are all on the topic."""
        return "value_not_json" if self.user % 2 or self.day == len(DAYS) else "field_missing"

    def content(self, *, corrected: bool) -> dict[str, Any]:
        """Return what it says, before or after the last day's prices are right."""
        wrong = self.date == len(DAYS) - 1 and not corrected
        return {
            "event_id": self.id,
            "occurred_at": None if self.kind == BAD else _text(self.time_ms),
            "campaign": _CAMPAIGNS[self.user % len(_CAMPAIGNS)],
            "user_id": self.user,
            "price": self.price * (_WRONG if wrong else 1),
            "sent_at": _text(self.sent_ms),
        }

    def value(self, *, corrected: bool) -> bytes:
        """Return it as JSON, or as what is none."""
        if self.kind == BAD and self.code == "value_not_json":
            return b'{"event_id": "cut off'
        return orjson.dumps(self.content(corrected=corrected))

    def line(self, offset: int) -> dict[str, Any]:
        """Return its line of the truth about the topic."""
        kind = FIRST if self.kind == BAD else COPIES.get(self.kind, self.kind)
        line = {"partition": 0, "offset": offset, "passes": KEPT in self.fates, "kind": kind}
        return line | ({"quarantine": self.code} if self.kind == BAD else {})


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


class Archive:
    """The rows of all days, about so many in the files; the same seed makes the same.

    Attributes:
        days: Rows by day; the last are those of the topic.
        corrected: Whether the last day's prices are right.
    """

    COLUMNS: Mapping[str, tuple[str, ...]] = {
        "clean_table": (
            *("event_id", "occurred_at", "campaign", "user_id", "price", "sent_at"),
            *("seqmark_original_id", "seqmark_file", "seqmark_row"),
        ),
        "receipts": ("file", "row", "verdict"),
        "bad_rows": ("seqmark_source", "seqmark_error"),
    }
    """What `compare` has to be given of table, receipts and quarantine."""

    def __init__(self, records: int, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - made-up data, the same for the same seed
        self.days: list[list[Row]] = []
        self.corrected = False
        for day in range(len(DAYS) + 1):
            rows = sorted(self._day(day, records // len(DAYS)), key=lambda each: each.sent_ms)
            for number, row in enumerate(rows):
                row.number = number
            self.days.append(rows)

    def write(self, day: int, folder: Path) -> Path:
        """Write the file of a day."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{DAYS[day]}.jsonl"
        path.write_bytes(b"".join(b"%b\n" % row.value(corrected=self.corrected) for row in self.days[day]))
        return path

    def compare(
        self,
        result: DemoResult,
        when: str,
        days: int,
        tables: Iterable[Iterable[Mapping[str, Any]]],
        label: str | None = None,
    ) -> bool:
        """Compare all that counts with what it must be where the first ``days`` have been made clean.

        Args:
            result: Gets what differs.
            when: Said before a difference.
            days: How many.
            tables: Table, receipts and quarantine, with `COLUMNS`.
            label: Said before each count; None: nothing is counted.
        """
        before = len(result.differences)
        rows = {row.place: row for day in self.days[:days] for row in day}
        table, receipts, quarantine = tables
        found = Counter((f"{each['file']}:{each['row']}", FATES.get(each["verdict"], "?")) for each in receipts)
        for each in quarantine:
            found[each["seqmark_source"], f"quarantined as {each['seqmark_error']}"] += 1
        ids, wrong = Counter[str](), list[str]()
        for each in table:
            place = f"{each['seqmark_file']}:{each['seqmark_row']}"
            found[place, KEPT] += 1
            ids[each["event_id"]] += 1
            if place in rows and not self._same(rows[place], each):
                wrong.append(f"{place} is not what was written: {dict(each)}")
        wrong += [f"the id {id_} is in the table {times} times" for id_, times in ids.items() if times > 1]
        result.differ(when, wrong)
        result.compare(when, {place: (row.kind, row.fates) for place, row in rows.items()}, found, label)
        return len(result.differences) == before

    def _same(self, row: Row, found: Mapping[str, Any]) -> bool:
        """Whether a row of the table is the one it was; what collided has its old id beside it."""
        must = row.content(corrected=self.corrected)
        is_, old = {name: found[name] for name in must}, found["seqmark_original_id"]
        if row.kind == COLLISION and is_["event_id"] != row.id:
            is_["event_id"], old = old, None
        return is_ == must and old is None

    def _day(self, day: int, count: int) -> list[Row]:
        """Return the rows of a day, in no order."""
        counts = [(kind, round(count * share), across) for kind, share, across in _SHARES if day or not across]
        bad = max(round(count * _BAD), 2)
        firsts = [self._first(FIRST, day) for _ in range(count - bad - sum(each for _, each, _ in counts))]
        earlier = [row for rows in self.days for row in rows if row.kind == FIRST]
        rows = [*firsts, *(self._first(BAD, day, user=number) for number in range(bad))]
        # None is copied or collides twice, but by rows of several days.
        pools = [self._chance.sample(each, min(len(each), count // 10)) for each in (firsts, earlier)]
        for kind, number, across in counts:
            some, pools[across] = pools[across][:number], pools[across][number:]
            rows += [
                self._copy(kind, day, each) if kind != COLLISION else self._collision(day, each)
                for each in some
            ]
        return rows

    def _first(self, kind: str, day: int, user: int | None = None) -> Row:
        chance = self._chance
        of_day = day - (day > 0 and chance.random() < _LATE)
        # More clicks in the afternoon than at night.
        time_ms = _START_MS + of_day * _DAY_MS + int(chance.triangular(0, _DAY_MS - 2, 0.65 * _DAY_MS))
        sent_ms = time_ms + chance.randrange(20, 2_000) + (day - of_day) * _DAY_MS
        user = chance.randrange(20_000) if user is None else user
        return Row(
            kind, day, sent_ms, time_ms, f"{chance.getrandbits(64):016x}", user, chance.randrange(1, 500)
        )

    def _copy(self, kind: str, day: int, of: Row) -> Row:
        """Return a row that is sent again, later."""
        sent_ms = of.sent_ms + self._chance.randrange(1_000, _HOUR_MS) + (day - of.day) * _DAY_MS
        return Row(kind, day, sent_ms, of.time_ms, of.id, of.user, of.price)

    def _collision(self, day: int, of: Row) -> Row:
        """Return another click under the id of one that was before it."""
        row = self._first(COLLISION, day)
        row.id = of.id
        if row.time_ms <= of.time_ms:
            # Within the owner's date, which has at least this millisecond left.
            row.time_ms = of.time_ms + self._chance.randrange(
                1, _START_MS + (of.date + 1) * _DAY_MS - of.time_ms
            )
        row.sent_ms = max(row.sent_ms, row.time_ms + 20, of.sent_ms + 1)
        return row
