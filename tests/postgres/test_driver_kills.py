"""The table equals the truth, wherever the driver or the database is cut off.

A normal run draws one of the stories, since each starts several drivers; ``--tier all`` has them all.

For a kill the driver is halted as soon as the database has a new batch. Where Spark's commit log has it already
it goes on, and the next batch is waited for; where it has not, the driver is killed. So every kill is where it
is meant to be, and none depends on luck.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest

from tests.support.kafka.topics import environment, new, produce, until
from tests.support.spark_sink.growing import GrowingTopic
from tests.support.spark_sink.postgres import rows
from tests.support.spark_sink.spark import SHORT
from tests.support.suite.extent import everything
from tests.support.worker.crash import seeded

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.spark_sink.postgres import OwnPostgres, Server

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.crash, pytest.mark.postgres]

KILLS, ALL_KILLS = 2, 6
"""Or as many as SEQMARK_TEST_KILLS says: a driver costs some 20 CPU seconds until its first batch."""
AWAY_S = float(os.environ.get("SEQMARK_TEST_AWAY_S") or 0)
"""Seconds that the database stays away at least; it is away until the query has tried twice in any case."""
PARTITIONS = 3
CAMPAIGNS = ("spring", "summer", "autumn", "winter")
FIRST = datetime(2026, 1, 5, tzinfo=UTC)
WAIT_S = 300.0
"""For any condition: far above what it takes on a machine that does something else beside."""
CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"

[worker]
application_id = "{topic}"

[[aggregates]]
name = "hourly"
topic = "{topic}"
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1 hour"
watermark = "30 days"
group_by = ["campaign"]
aggregates = {{ events = "count", revenue = "sum:amount", least = "min:amount", last = "max:occurred_at" }}
output = {{ kind = "postgres", table = "hourly" }}
checkpoint = "{checkpoint}"
"""
Truth = dict[tuple[datetime, datetime, str], tuple[int, Decimal, Decimal, datetime]]


class Clicks(GrowingTopic):
    """A topic that grows, and the truth about it."""

    def __init__(self, bootstrap: str, dice: random.Random) -> None:
        super().__init__(bootstrap, dice, PARTITIONS)
        groups: defaultdict[tuple[datetime, str], list[tuple[datetime, Decimal]]] = defaultdict(list)
        self._groups = groups

    def send(self) -> None:
        """Send some events to one partition."""
        dice = self._dice
        values = []
        for _ in range(dice.randrange(5, 60)):
            occurred = FIRST + timedelta(milliseconds=dice.randrange(6 * 3_600_000))
            amount = Decimal(dice.randrange(10_000)) / 100
            campaign = dice.choice(CAMPAIGNS)
            self._groups[occurred.replace(minute=0, second=0, microsecond=0), campaign].append(
                (occurred, amount)
            )
            event = {
                "event_id": f"e{self._made}",
                "occurred_at": occurred.isoformat(),
                "campaign": campaign,
                "user_id": "u",
                "page": "/",
                "amount": f"{amount:.2f}",
            }
            stamped = int(occurred.timestamp() * 1000)
            values.append(new(self._made, value=json.dumps(event).encode(), timestamp=stamped))
            self._made += 1
        produce(self.bootstrap, self.topic, values, partition=dice.randrange(PARTITIONS))

    def truth(self) -> Truth:
        """Return the rows that the table should have."""
        return {
            (hour, hour + timedelta(hours=1), campaign): (
                len(events),
                sum((amount for _, amount in events), Decimal(0)),
                min(amount for _, amount in events),
                max(occurred for occurred, _ in events),
            )
            for (hour, campaign), events in self._groups.items()
        }


class Driver:
    """``seqmark aggregate`` in a group of processes of its own, JVM included."""

    def __init__(self, folder: Path, clicks: Clicks, url: str, *options: str) -> None:
        self.commits = folder / "checkpoint" / "commits"
        config = folder / "sink.toml"
        config.write_text(
            CONFIG.format(bootstrap=clicks.bootstrap, topic=clicks.topic, checkpoint=folder / "checkpoint")
        )
        self.log = folder / "log"
        extra = {"SEQMARK_AGGREGATES__0__OUTPUT__URL": url, "JAVA_TOOL_OPTIONS": SHORT}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "processor", "aggregate", "-c", str(config)),
                    *("--master", "local[2]", "--memory", "700m", *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(extra),
                process_group=0,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(WAIT_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to Python and JVM alike."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def said(self) -> str:
        """Return what it and those before it have told."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_committed(self, batch: int) -> bool:
        """Say whether Spark's commit log has the batch."""
        return (self.commits / str(batch)).exists()


class Look:
    """The last batch that the table has, asked for as fast as the database answers."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def last(self) -> int:
        """Return its number, -1 where there is none."""
        try:
            row = self._connection.execute("SELECT batch_id FROM seqmark_progress").fetchone()
        except psycopg.errors.UndefinedTable:
            return -1
        return int(row[0]) if row else -1

    def wait_beyond(self, batch: int, driver: Driver) -> int:
        """Wait until the table has a later batch than this one; returns its number."""
        end = time.monotonic() + WAIT_S
        while (last := self.last()) <= batch:
            assert driver.process.poll() is None, driver.said()
            assert time.monotonic() < end, driver.said()
        return last


def table(url: str) -> Truth:
    found: list[tuple[Any, ...]] = rows(url, "SELECT * FROM hourly")
    return {(row[0], row[1], row[2]): (row[3], row[4], row[5], row[6]) for row in found}


def run_to_the_end(folder: Path, clicks: Clicks, url: str) -> None:
    with Driver(folder, clicks, url, "--available-now") as driver:
        assert driver.process.wait(WAIT_S) == 0, driver.said()


def driver_is_killed(broker: Broker, own: Server, tmp_path: Path, kills: int) -> None:
    """Between its write and Spark's commit log."""
    dice, database = seeded(), own.url
    with Look(database) as look, Clicks(broker.bootstrap_servers, dice) as clicks:
        for _ in range(kills):
            with Driver(tmp_path, clicks, database) as driver:
                last = look.last()
                while True:
                    last = look.wait_beyond(last, driver)
                    driver.signal(signal.SIGSTOP)
                    if not driver.is_committed(last):
                        break
                    driver.signal(signal.SIGCONT)
                if dice.random() < 0.5:
                    # Python alone first: its JVM goes on for a moment, and may write the commit log.
                    driver.process.kill()
                    driver.signal(signal.SIGCONT)
                    driver.process.wait(WAIT_S)
    run_to_the_end(tmp_path, clicks, database)
    assert table(database) == clicks.truth()


def database_goes_and_comes(broker: Broker, own: Server, tmp_path: Path, _kills: int) -> None:
    """Ended in order and by a crash of the server, each in the middle of the work."""
    dice = seeded()
    with Clicks(broker.bootstrap_servers, dice) as clicks:
        with Driver(tmp_path, clicks, own.url) as driver:
            for how in (signal.SIGINT, signal.SIGQUIT):
                with Look(own.url) as look:
                    last = look.wait_beyond(look.last(), driver)
                waits = driver.said().count("waits for PostgreSQL")
                own.stop(how)
                back = time.monotonic() + AWAY_S
                until(lambda: driver.said().count("waits for PostgreSQL") > waits + 1, "it waits", WAIT_S)  # noqa: B023 - called at once
                until(lambda: time.monotonic() > back, "it is away for a while", AWAY_S + WAIT_S)  # noqa: B023 - likewise
                own.start()
                with Look(own.url) as look:
                    look.wait_beyond(last + 1, driver)
            driver.process.terminate()
            assert driver.process.wait(WAIT_S) == 0, driver.said()
        assert own.url not in driver.said()
        print(driver.said())  # noqa: T201 - shown with -s, or when it fails
    run_to_the_end(tmp_path, clicks, own.url)
    assert table(own.url) == clicks.truth()


def driver_is_ended_while_it_waits(broker: Broker, own: Server, tmp_path: Path, _kills: int) -> None:
    """For the database, before its first batch and in the middle of one."""
    dice = seeded()
    own.stop()
    with Clicks(broker.bootstrap_servers, dice) as clicks:
        for number in range(2):
            with Driver(tmp_path, clicks, own.url) as driver:
                if number:
                    with Look(own.url) as look:
                        look.wait_beyond(look.last(), driver)
                    own.stop()
                waits = driver.said().count("waits for PostgreSQL")
                until(lambda: driver.said().count("waits for PostgreSQL") > waits, "it waits", WAIT_S)  # noqa: B023 - called at once
                driver.process.terminate()
                assert driver.process.wait(WAIT_S) == 0, driver.said()
            own.start()
    run_to_the_end(tmp_path, clicks, own.url)
    assert table(own.url) == clicks.truth()


STORIES = {
    "driver-is-killed": driver_is_killed,
    "database-goes-and-comes": database_goes_and_comes,
    "driver-is-ended-while-it-waits": driver_is_ended_while_it_waits,
}


@pytest.mark.timeout(2400)
@pytest.mark.drawn("story")
@pytest.mark.parametrize("story", STORIES)
def test_the_table_equals_the_truth(
    story: str, request: pytest.FixtureRequest, broker: Broker, own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    kills = int(os.environ.get("SEQMARK_TEST_KILLS") or (ALL_KILLS if everything(request.config) else KILLS))
    STORIES[story](broker, own_postgres(), tmp_path, kills)
