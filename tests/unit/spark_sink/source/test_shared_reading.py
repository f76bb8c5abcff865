"""Members of a family leave each other rows, wait for each other within bounds, and never need what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from processor.engine.batch.columns import Columns
from processor.engine.events import FieldKind, FieldRule
from processor.errors import StopError
from processor.kafka.plain.topic_log import LogSpan
from spark_sink.source.partials import PartialCall, PartialPlan
from spark_sink.source.shared import store as store_module
from spark_sink.source.shared.plan import SharedRead
from spark_sink.source.shared.reading import FamilyReading
from spark_sink.source.shared.store import RowStretch, StretchStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = [FieldRule("at", FieldKind.TIMESTAMP), FieldRule("n", FieldKind.INT)]
COUNTS = PartialPlan(RULES, 0, 60_000, [], [PartialCall("count", 0)], None)
SUMS = COUNTS._replace(calls=[PartialCall("sum", 1)])
EARLY = COUNTS._replace(max_ahead_ms=0)
ROWS = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
NOW_MS = 1_700_000_000_000


class Log:
    """Partitions with a record per offset, read ten at a time; remembers what was fetched."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self.fetched: list[int] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def read(self, span: LogSpan) -> Iterator[Columns]:
        """Read some offsets; waits in the middle where the test has it so."""
        for at in range(span.start, span.stop, 10):
            numbers = self._numbers[at : min(at + 10, span.stop)]
            values = [f'{{"at":{NOW_MS},"n":{number}}}'.encode() for number in numbers]
            found = Columns.empty(len(values), np.frombuffer(b"".join(values), np.uint8).copy())
            found.value_length[:] = [len(value) for value in values]
            found.value[:] = np.cumsum(found.value_length) - found.value_length
            found.offset[:] = np.arange(at, at + len(values))
            found.timestamp[:] = NOW_MS - 1
            self.fetched += found.offset.tolist()
            yield found
            self.begun.set()
            assert self.go_on.wait(60)


def total(
    folder: Path, plans: list[PartialPlan], mine: int, log: Log, *spans: LogSpan, patience_s: float = 60
) -> tuple[int, int]:
    """Return what a member reads: its values added up, and how many records are no events."""
    reading = FamilyReading(
        SharedRead("run", str(folder), plans, mine), folder, log.read, patience_s=patience_s
    )
    rows = [row for batch in reading.batches(spans) for row in batch.to_pylist()]
    return sum(row["v0"] or 0 for row in rows), sum(row["bad"] for row in rows)


def test_what_one_member_reads_another_takes_by_its_own_plan(tmp_path: Path) -> None:
    plans, log = [COUNTS, SUMS, EARLY, COUNTS], Log([3] * 40)
    found = [total(tmp_path, plans, member, log, LogSpan(0, 0, 40)) for member in range(4)]

    # By the third plan each event is ahead of its record, and none is by the others.
    assert found == [(40, 0), (120, 0), (0, 40), (40, 0)]
    assert log.fetched == list(range(40))


def test_members_that_end_elsewhere_find_together_again(tmp_path: Path) -> None:
    log, plans = Log([1] * 60), [COUNTS, COUNTS]
    assert total(tmp_path, plans, 0, log, LogSpan(0, 0, 23)) == (23, 0)
    # What was left for it goes beyond its end.
    assert total(tmp_path, plans, 1, log, LogSpan(0, 0, 20)) == (20, 0)
    assert log.fetched == [*range(23), *range(20)]

    log.fetched.clear()
    assert total(tmp_path, plans, 1, log, LogSpan(0, 20, 43)) == (23, 0)
    assert total(tmp_path, plans, 0, log, LogSpan(0, 23, 50)) == (27, 0)
    assert total(tmp_path, plans, 1, log, LogSpan(0, 43, 50)) == (7, 0)
    assert log.fetched == list(range(20, 50))


def test_who_wants_a_partition_that_is_read_takes_the_rows_and_reads_another_meanwhile(tmp_path: Path) -> None:
    log, plans, found = Log([2] * 30), [SUMS, COUNTS], dict[int, tuple[int, int]]()
    log.go_on.clear()

    def run(member: int, *spans: LogSpan) -> threading.Thread:
        def read() -> None:
            found[member] = total(tmp_path, plans, member, log, *spans)

        thread = threading.Thread(target=read)
        thread.start()
        return thread

    first = run(0, LogSpan(0, 0, 30), LogSpan(1, 0, 30))
    assert log.begun.wait(60)
    second = run(1, LogSpan(0, 0, 30), LogSpan(1, 0, 30))
    deadline = time.monotonic() + 60
    while len(log.fetched) < 20:  # the first ten of either partition
        assert time.monotonic() < deadline
        time.sleep(0.01)
    log.go_on.set()
    for thread in (first, second):
        thread.join(60)

    assert found == {0: (120, 0), 1: (60, 0)}
    assert sorted(log.fetched) == sorted([*range(30)] * 2)


def test_who_holds_a_partition_and_does_nothing_is_not_waited_for(tmp_path: Path) -> None:
    log = Log([1] * 20)
    held = StretchStore(tmp_path, 0, 2).try_lock()
    assert held is not None
    with held:
        os.utime(tmp_path / "0" / "lock", (1, 1))
        found = total(tmp_path, [COUNTS, SUMS], 0, log, LogSpan(0, 0, 20), patience_s=0.05)
    assert found == (20, 0)
    assert not [*tmp_path.glob("0/1-*")]


def test_a_reader_that_is_killed_lets_go_of_the_partition_and_its_half_file_goes(tmp_path: Path) -> None:
    store = StretchStore(tmp_path, 0, 2)
    holds = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX); "
        "print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(tmp_path / "0" / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / "0" / "tmp-half").write_bytes(b"half")
        assert store.try_lock() is None
        process.send_signal(signal.SIGKILL)
        process.wait(60)

        log = Log([1] * 20)
        assert total(tmp_path, [COUNTS, SUMS], 0, log, LogSpan(0, 0, 20)) == (20, 0)
    assert sorted(each.name for each in (tmp_path / "0").iterdir()) == ["1-0-20", "lock", "want-0"]


def test_a_sum_of_another_member_that_overflows_is_that_members_own_error(tmp_path: Path) -> None:
    log, plans = Log([2**62] * 4), [COUNTS, SUMS]
    assert total(tmp_path, plans, 0, log, LogSpan(0, 0, 4)) == (4, 0)
    with pytest.raises(StopError, match="a sum of n"):
        total(tmp_path, plans, 1, log, LogSpan(0, 0, 4))


def test_without_a_folder_that_can_be_written_a_member_reads_by_itself(tmp_path: Path) -> None:
    log = Log([1] * 20)
    (tmp_path / "0").write_text("no folder")
    assert total(tmp_path, [COUNTS, SUMS], 0, log, LogSpan(0, 0, 20)) == (20, 0)
    assert SharedRead("run", str(tmp_path / "0"), [COUNTS, SUMS], 0).place("clicks", "id") is None


def test_a_familys_folder_is_its_runs_its_topics_and_its_plans_own(tmp_path: Path) -> None:
    one = SharedRead("run", str(tmp_path), [COUNTS, SUMS], 0)
    assert SharedRead.read(one.written()) == one
    place = one.place("clicks", "id")
    assert place is not None
    assert (place.parent.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o700, 0o700)
    assert one._replace(mine=1).place("clicks", "id") == place
    others = [
        one.place("clicks", "another"),
        one.place("other", "id"),
        one._replace(run="next").place("clicks", "id"),
        one._replace(plans=[COUNTS, EARLY]).place("clicks", "id"),
    ]
    assert len({place, *others}) == 5
    # Brokers without topic ids: nobody could tell one topic from the next.
    assert one.place("clicks", "") is None


def test_a_file_is_its_own_members_and_offsets_or_none(tmp_path: Path) -> None:
    store, wanted = StretchStore(tmp_path, 0, 2), RowStretch(0, 9)
    store.put(1, wanted, ROWS.schema, [ROWS], 10_000)
    assert store.take(1, wanted) == [ROWS]
    assert (tmp_path / "0" / "1-0-9").stat().st_mode & 0o777 == 0o600

    (tmp_path / "0" / "1-0-9").rename(tmp_path / "0" / "1-0-8")
    assert store.take(1, RowStretch(0, 8)) is None
    assert store.take(1, wanted) is None
    (tmp_path / "0" / "1-0-8").write_bytes(b"")
    assert store.take(1, RowStretch(0, 8)) is None


def test_what_is_left_has_bounds_and_the_first_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StretchStore(tmp_path, 0, 2)
    size = len(_put(store, 0).read_bytes())
    for at in range(1, 6):
        store.put(1, RowStretch(at, at + 1), ROWS.schema, [ROWS], 3 * size)
    assert store.stretches(1) == [RowStretch(at, at + 1) for at in (3, 4, 5)]
    store.put(1, RowStretch(6, 7), ROWS.schema, [ROWS], size // 2)
    assert len(store.stretches(1)) == 3

    monkeypatch.setattr(store_module, "MOST_STRETCHES", 2)
    _put(store, 7)
    assert store.stretches(1) == [RowStretch(5, 6), RowStretch(7, 8)]
    os.utime(tmp_path / "0" / "1-5-6", (1, 1))
    monkeypatch.setattr(store_module, "MOST_STRETCHES", 9)
    _put(store, 8)
    assert store.stretches(1) == [RowStretch(7, 8), RowStretch(8, 9)]
    store.want(1, RowStretch(8, 20))
    assert store.stretches(1) == [RowStretch(8, 9)]

    # Each partition and each member has a share of all there may be.
    assert store.most_bytes() == store_module.MOST_BYTES
    StretchStore(tmp_path, 1, 2)
    assert store.most_bytes() == store_module.MOST_BYTES // 2


def _put(store: StretchStore, at: int) -> Path:
    store.put(1, RowStretch(at, at + 1), ROWS.schema, [ROWS], 1 << 20)
    return store._folder / f"1-{at}-{at + 1}"


def test_for_a_member_that_never_comes_little_is_left(tmp_path: Path) -> None:
    log, plans = Log([1] * 1_000), [COUNTS, SUMS]
    for at in range(100):
        total(tmp_path, plans, 0, log, LogSpan(0, at * 10, at * 10 + 10))
    assert len(StretchStore(tmp_path, 0, 2).stretches(1)) == 64
