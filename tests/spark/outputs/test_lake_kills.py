"""Delta and Iceberg tables equal the plain computation, wherever a driver is killed.

Before the table's commit there are files that nobody knows; after it the table has a batch that Spark's
commit log lacks. The driver is halted at such a moment, looked at, and killed only if it is the right one: no
kill depends on luck. A normal run draws one of the moments, since each starts two drivers; ``--tier all`` has
them all.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import until
from tests.support.spark_sink.growing import GrowingTopic
from tests.support.spark_sink.job import Process, process, run, settings, sink, tables
from tests.support.spark_sink.sinks import HOUR, START, Click, send
from tests.support.worker.crash import seeded

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
KINDS = ("delta", "iceberg")
PARTITIONS = 3
WAIT_S = 300.0
"""For any condition: far above what it takes on a machine that does something else beside."""
Truth = dict[tuple[int, str], tuple[int, Decimal]]


class Feed(GrowingTopic):
    """A topic that grows in the order of time, and the truth about it."""

    def __init__(self, bootstrap: str, dice: random.Random) -> None:
        super().__init__(bootstrap, dice, PARTITIONS)
        self._at = START
        self._groups: defaultdict[tuple[int, str], list[Decimal]] = defaultdict(list)

    def __exit__(self, *what: object) -> None:
        super().__exit__(*what)
        # It closes all windows but its own, which no table gets.
        send(self.bootstrap, self.topic, [Click(self._at + 9 * HOUR, "end", "u", Decimal(1), 0)], PARTITIONS)

    def send(self) -> None:
        """Send events of about an hour."""
        clicks = []
        for _ in range(self._dice.randrange(5, 40)):
            self._at += timedelta(seconds=self._dice.randrange(200))
            amount, campaign = Decimal(self._dice.randrange(10_000)) / 100, self._dice.choice("abc")
            hour = int(self._at.timestamp()) // 3600 * 3600
            self._groups[hour, campaign].append(amount)
            clicks.append(Click(self._at, campaign, "u", amount, self._made))
            self._made += 1
        send(self.bootstrap, self.topic, clicks, PARTITIONS)

    def truth(self) -> Truth:
        """Return the rows that a table should have."""
        return {key: (len(amounts), sum(amounts, Decimal(0))) for key, amounts in self._groups.items()}


class TableWatch:
    """What a table's log says, read again and again; what is read once is kept."""

    def __init__(self, kind: str, table: Path) -> None:
        self._kind, self._table = kind, table
        self._log: dict[str, str] = {}

    def last(self) -> int:
        """Return the last batch that the table has, -1 for none."""
        if self._kind == "delta":
            self._read_log()
            found = [line for text in self._log.values() for line in text.splitlines() if '"txn"' in line]
            return max((json.loads(line)["txn"]["version"] for line in found), default=-1)
        folder = self._table / "metadata"
        versions = [int(each.name.split(".")[0][1:]) for each in folder.glob("v*.metadata.json")]
        if not versions:
            return -1
        newest = json.loads((folder / f"v{max(versions)}.metadata.json").read_text())
        return int(newest["properties"].get("seqmark.batch", -1))

    def has_unknown_files(self) -> bool:
        """Say whether there are files of rows that the log does not know."""
        if self._kind == "iceberg":
            numbers = [int(each.name) for each in self._table.glob("data/seqmark/*/*")]
            return max(numbers, default=-1) > self.last()
        # Files first: what is committed in between is in the log by then.
        files = [each.name for each in self._table.glob("window_date=*/*.parquet")]
        self._read_log()
        log = "".join(self._log.values())
        return any(each not in log for each in files)

    def _read_log(self) -> None:
        for file in (self._table / "_delta_log").glob("[0-9]*.json"):
            if file.name not in self._log:
                self._log[file.name] = file.read_text()


def kill_at(moment: str, kind: str, folder: Path, driver: Process) -> None:
    """Halt the driver again and again until it stands where it is to be killed."""
    watch, commits = TableWatch(kind, folder / kind), folder / f"checkpoint-{kind}" / "commits"

    def committed_by_the_table_only() -> bool:
        last = watch.last()
        return last >= 0 and not (commits / str(last)).exists()

    is_there = {"before-commit": watch.has_unknown_files, "after-commit": committed_by_the_table_only}[moment]
    until(lambda: driver.code is not None or watch.last() >= 0, "the table has a batch", WAIT_S)
    end = time.monotonic() + WAIT_S
    while True:
        assert driver.code is None, driver.stderr
        assert time.monotonic() < end, driver.stderr
        if not is_there():
            continue
        driver.halt()
        if is_there():
            driver.kill()
            return
        driver.go_on()


@pytest.mark.drawn("place")
@pytest.mark.parametrize(
    "place", [f"{kind}:{moment}" for kind in KINDS for moment in ("before-commit", "after-commit")]
)
def test_a_driver_that_is_killed_leaves_nothing_twice_and_loses_nothing(
    place: str, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    kind, moment = place.split(":")
    with Feed(broker.bootstrap_servers, seeded()) as feed:
        sinks = [
            sink(tmp_path, feed.topic, each, {"kind": each, "path": str(tmp_path / each)}, window="1 hour")
            for each in KINDS
        ]
        with process(tmp_path, tables(feed.bootstrap, *sinks)) as driver:
            kill_at(moment, kind, tmp_path, driver)

    run(settings(feed.bootstrap, *sinks))

    for each in KINDS:
        rows = spark.read.format(each).load(str(tmp_path / each))
        found = rows.selectExpr("unix_seconds(window_start)", "campaign", "events", "revenue").collect()
        assert len(found) == len(feed.truth())
        assert {(row[0], row[1]): (row[2], row[3]) for row in found} == feed.truth()
