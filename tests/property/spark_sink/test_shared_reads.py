"""Does each member of a family get the rows that it would have made alone, in whatever batches they read?"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.kafka.plain.topic_log import LogSpan
from spark_sink.source.partials import PartialCall, PartialPlan
from spark_sink.source.shared import reading
from spark_sink.source.shared.plan import SharedRead
from spark_sink.source.shared.reading import FamilyReading, read_alone
from tests.property.spark_sink.test_partials import AHEAD_MS, EVENTS, RULES, Event, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from processor.engine.batch.columns import Columns

CALLS = [PartialCall("count", 0), PartialCall("sum", 2), PartialCall("min", 2), PartialCall("max", 3)]
PLANS = st.builds(
    PartialPlan,
    st.just(RULES),
    st.just(0),
    st.sampled_from([60_000, 120_000]),
    st.sampled_from([[], [1], [1, 2]]),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=3),
    st.sampled_from([None, AHEAD_MS]),
)


class Log:
    """A partition that remembers what was fetched of it."""

    def __init__(self, events: list[Event], offsets: list[int], chunk: int) -> None:
        self._events, self._chunk = events, chunk
        self.offsets = np.array(offsets, np.int64)
        self.fetched: list[int] = []

    def read(self, span: LogSpan) -> Iterator[Columns]:
        """Read as `processor.kafka.plain.topic_log` does: a chunk is good until the next one."""
        begin, end = self.offsets.searchsorted([span.start, span.stop]).tolist()
        for at in range(begin, end, self._chunk):
            stop = min(at + self._chunk, end)
            found = columns(self._events[at:stop])
            found.offset[:] = self.offsets[at:stop]
            self.fetched += found.offset.tolist()
            yield found
            found.data[:] = 0


class Act(NamedTuple):
    """A member reads on, after something has happened to what was left for it."""

    member: int
    offsets: int
    harm: str


ACTS = st.lists(
    st.builds(
        Act,
        st.integers(0, 3),
        st.integers(0, 40),
        st.sampled_from(["", "", "", "removed", "cut", "changed", "mark"]),
    ),
    max_size=8,
)


def merged(plan: PartialPlan, batches: Iterable[pa.RecordBatch]) -> dict[Any, tuple[Any, ...]]:
    """Return what Spark makes of partial rows: one per pane and group, and the bad ones."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in (row for batch in batches for row in batch.to_pylist()):
        key: Any = "bad"
        if row["time"] is not None:
            pane = int(row["time"].timestamp() * 1000) // plan.pane_ms
            key = (pane, *(row[f"g{number}"] for number in range(len(plan.groups))))
        found[key].append(row)
    sums = {"count": sum, "sum": sum, "min": min, "max": max}

    def column(rows: list[dict[str, Any]], name: str, function: Any) -> Any:
        values = [row[name] for row in rows if row[name] is not None]
        return function(values) if values else None

    def row_of(rows: list[dict[str, Any]]) -> tuple[Any, ...]:
        values = [column(rows, f"v{at}", sums[call.function]) for at, call in enumerate(plan.calls)]
        counts = [column(rows, f"c{at}", sum) for at in range(len(plan.calls))]
        more = [column(rows, "time", max), column(rows, "events", sum), column(rows, "bad", sum)]
        return (*values, *counts, *more, *told([row["part"] for row in rows if row["part"]]))

    return {key: row_of(rows) for key, rows in found.items()}


def told(parts: list[dict[str, Any]]) -> tuple[Any, ...]:
    """Return what parts tell together, of which none may overlap another."""
    parts.sort(key=itemgetter("first"))
    assert all(one["last"] < after["first"] for one, after in pairwise(parts))
    oldest = min((each["oldest"] for each in parts if each["oldest"] is not None), default=None)
    ends = [(parts[0]["first"], parts[-1]["last"])] if parts else []
    return *ends, oldest, *(sum(each[name] for each in parts) for name in ("bad", "events"))


def harm(folder: Path, act: Act) -> None:
    """Do to a file of the member what disks, other programs and kills do."""
    files = sorted(folder.glob(f"0/{act.member}-*"))
    for file in files[:2]:
        raw = bytearray(file.read_bytes())
        if act.harm == "removed":
            file.unlink()
        elif act.harm == "cut":
            file.write_bytes(raw[:-1])
        elif act.harm == "changed":
            raw[len(raw) // 2] ^= 1
            file.write_bytes(raw)
    if act.harm == "mark" and (folder / "0").exists():
        (folder / "0" / f"want-{act.member}").write_text("7 x")
        (folder / "0" / "tmp-1").write_text("half")


@given(
    st.lists(EVENTS, max_size=40),
    st.lists(st.integers(1, 3), min_size=40, max_size=40),
    st.lists(PLANS, min_size=2, max_size=3),
    ACTS,
    st.integers(1, 20),
    st.integers(1, 30),
)
def test_rows_through_the_store_are_those_that_a_member_makes_alone(
    events: list[Event], gaps: list[int], plans: list[PartialPlan], acts: list[Act], chunk: int, cell: int
) -> None:
    log = Log(events, np.cumsum(gaps)[: len(events)].tolist(), chunk)
    end = int(log.offsets[-1]) + 1 if events else 0
    stands = dict.fromkeys(range(len(plans)), 0)
    rest = [Act(member, end, "") for member in stands]
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CELL_RECORDS", cell)
        patch.setattr(reading, "RECORDS_PER_ROW", 1)
        for act in [*acts, *rest]:
            member = act.member % len(plans)
            start = stands[member]
            stop = stands[member] = min(start + act.offsets, end)
            span, shared = LogSpan(0, start, stop), SharedRead("run", made, plans, member)
            harm(Path(made), act)

            found = merged(plans[member], FamilyReading(shared, Path(made), log.read).batches([span]))

            assert found == merged(plans[member], read_alone(shared, span, log.read))


@given(st.lists(EVENTS, min_size=1, max_size=40), st.lists(PLANS, min_size=2, max_size=3), st.data())
def test_members_that_read_one_after_the_other_fetch_each_record_once(
    events: list[Event], plans: list[PartialPlan], data: st.DataObject
) -> None:
    log = Log(events, list(range(len(events))), 7)
    steps = data.draw(st.lists(st.integers(1, 30), max_size=5))
    ends = [*np.minimum(np.cumsum(steps), len(events)).tolist(), len(events)]
    with tempfile.TemporaryDirectory() as made:
        start = 0
        for end in ends:
            # The first one ends first: the others take what it has left, and leave it nothing to read twice.
            for member in range(len(plans)):
                shared = SharedRead("run", made, plans, member)
                for _ in FamilyReading(shared, Path(made), log.read).batches([LogSpan(0, start, end)]):
                    pass
            start = end
        assert log.fetched == list(range(len(events)))
        assert not [*Path(made).glob("0/*-*-*")]
