"""Sums an output up where it lies, in SQL that Spark and PostgreSQL both speak.

Nothing that grows with the output comes to this process: counts, a few groups, and the rows of those in the
newest windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas.config.aggregates import aggregate_call, output_column
from spark_sink.reading.summary import MOST_GROUPS, MOST_WINDOWS, Group, SinkSummary, SummaryRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.config import Sink
    from spark_sink.reading.summary import Value


class Dialect(NamedTuple):
    """What differs between the two."""

    quote: str
    """Around a name; doubled inside it."""
    milliseconds: str
    """Of a timestamp ``{}``, since 1970."""
    mark: str
    """Where a value goes."""

    def name(self, name: str) -> str:
        """Return a name as SQL has it."""
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def time(self, name: str) -> str:
        """Return a timestamp column in milliseconds."""
        return self.milliseconds.format(self.name(name))


SPARK = Dialect("`", "unix_millis({})", "?")
POSTGRES = Dialect('"', "floor(extract(epoch from {}) * 1000)::bigint", "%s")


class Summarising:
    """Sums one output up.

    Args:
        sink: What made it.
        table: It, as SQL has it.
        dialect: How SQL is written there.
        query: Runs one statement with its values, and returns its rows.
    """

    def __init__(
        self,
        sink: Sink,
        table: str,
        dialect: Dialect,
        query: Callable[[str, Sequence[Value]], list[tuple[Value, ...]]],
    ) -> None:
        self._table = table
        self._dialect = dialect
        self._query = query
        self._group_by = tuple(output_column(path) for path in sink.group_by)
        self._aggregates = tuple(sink.aggregates)
        calls = [aggregate_call(text).function for text in sink.aggregates.values()]
        # Windows that overlap count an event several times: their sum is no count of anything.
        apart = sink.slide is None
        self._summed = [apart and function in {"count", "sum"} for function in calls]
        self._rank = next((place for place, function in enumerate(calls) if function in {"count", "sum"}), None)

    def summary(self) -> SinkSummary:
        """Return it; each statement reads the output once."""
        rows, windows, first, last = self._query(
            f"SELECT count(*), count(DISTINCT {self._dialect.name('window_start')}), "  # noqa: S608 - names are quoted
            f"min({self._dialect.time('window_start')}), max({self._dialect.time('window_end')}) "
            f"FROM {self._table}",
            (),
        )[0]
        if not rows:
            return SinkSummary(self._group_by, self._aggregates)
        largest = self._groups()
        everything = self._group(self._query(self._totals([]), ())[0], 0)
        return SinkSummary(
            self._group_by,
            self._aggregates,
            rows=_whole(rows),
            windows=_whole(windows),
            groups=self._count_groups(),
            first_ms=_whole(first),
            last_ms=_whole(last),
            everything=everything,
            largest=largest,
            shown=self._rows(largest),
        )

    def _totals(self, keys: list[str]) -> str:
        columns = [*keys, "count(*)"]
        for place, name in enumerate(self._aggregates):
            if self._summed[place] or place == self._rank:
                columns.append(f"sum({self._dialect.name(name)})")
        return f"SELECT {', '.join(columns)} FROM {self._table}"  # noqa: S608 - names are quoted

    def _groups(self) -> tuple[Group, ...]:
        keys = [self._dialect.name(name) for name in self._group_by]
        if not keys:
            return (self._group(self._query(self._totals([]), ())[0], 0),)
        rank = "count(*)" if self._rank is None else f"sum({self._dialect.name(self._aggregates[self._rank])})"
        order = ", ".join([f"{rank} DESC NULLS LAST", *keys])
        found = self._query(
            f"{self._totals(keys)} GROUP BY {', '.join(keys)} ORDER BY {order} LIMIT {MOST_GROUPS}", ()
        )
        return tuple(self._group(row, len(keys)) for row in found)

    def _group(self, row: tuple[Value, ...], keys: int) -> Group:
        sums = iter(row[keys + 1 :])
        totals: list[Value] = []
        for place in range(len(self._aggregates)):
            found = next(sums) if self._summed[place] or place == self._rank else None
            totals.append(found if self._summed[place] else None)
        return Group(row[:keys], _whole(row[keys]), tuple(totals))

    def _count_groups(self) -> int:
        if not self._group_by:
            return 1
        keys = ", ".join(map(self._dialect.name, self._group_by))
        inner = f"SELECT DISTINCT {keys} FROM {self._table}"  # noqa: S608 - names are quoted
        return _whole(self._query(f"SELECT count(*) FROM ({inner}) AS found", ())[0][0])  # noqa: S608 - likewise

    def _rows(self, largest: Sequence[Group]) -> tuple[SummaryRow, ...]:
        start = self._dialect.time("window_start")
        newest = self._query(
            f"SELECT DISTINCT {start} AS began FROM {self._table} ORDER BY began DESC LIMIT {MOST_WINDOWS}",  # noqa: S608 - likewise
            (),
        )
        columns = [start, self._dialect.time("window_end")]
        columns += [self._dialect.name(name) for name in (*self._group_by, *self._aggregates)]
        values: list[Value] = [newest[-1][0]]
        where = f"{start} >= {self._dialect.mark}"
        if self._group_by:
            each = []
            for group in largest:
                same = [
                    self._same(name, value, values)
                    for name, value in zip(self._group_by, group.group, strict=True)
                ]
                each.append(f"({' AND '.join(same)})")
            where += f" AND ({' OR '.join(each)})"
        order = ", ".join(str(place + 1) for place in range(2 + len(self._group_by)))
        # A window with a group is one row, but a session's window has any start: so it is limited.
        most = MOST_WINDOWS * max(len(largest), 1)
        found = self._query(
            f"SELECT {', '.join(columns)} FROM {self._table} WHERE {where} ORDER BY {order} LIMIT {most}",  # noqa: S608 - likewise
            values,
        )
        middle = 2 + len(self._group_by)
        return tuple(SummaryRow(_whole(row[0]), _whole(row[1]), row[2:middle], row[middle:]) for row in found)

    def _same(self, name: str, value: Value, values: list[Value]) -> str:
        quoted = self._dialect.name(name)
        if value is None:
            return f"{quoted} IS NULL"
        values.append(value)
        return f"{quoted} = {self._dialect.mark}"


def _whole(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a count: {value!r}")
    return value
