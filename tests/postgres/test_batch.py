"""Is a batch part of the table exactly once, whoever writes it how often, and whatever is cut in between?"""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors, pq
from pydantic import SecretStr

from processor.errors import StopError
from spark_sink.outputs.postgres.batch import Batch, write_batch
from spark_sink.outputs.postgres.server import Server
from spark_sink.outputs.postgres.table import Field, Target, ensure
from tests.support.kafka.topics import until
from tests.support.spark_sink.postgres import rows
from tests.support.worker.crash import seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_sink.outputs.postgres.server import Connection

pytestmark = pytest.mark.postgres

INSTANT = "timestamp with time zone"
FIELDS = (
    Field("window_start", INSTANT, nullable=False, in_key=True),
    Field("window_end", INSTANT, nullable=False, in_key=True),
    Field("campaign", "text", in_key=True),
    Field("events", "bigint", nullable=False),
    Field("revenue", "numeric(38,2)"),
)
HOUR_US = 3_600_000_000
ALL = "SELECT campaign, events, revenue FROM hourly ORDER BY 1 NULLS LAST"
PROGRESS = "SELECT query, batch_id, rows FROM seqmark_progress"


def row(campaign: str | None, events: int, revenue: str | None = "0.00", hour: int = 0) -> tuple[Any, ...]:
    start = hour * HOUR_US
    return (start, start + HOUR_US, campaign, events, None if revenue is None else Decimal(revenue))


class Table:
    """A table, and batches written to it as the output does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.server = Server(SecretStr(url), "hourly", lambda _: None, patience_s=30)
        self.target = self.server.transact("its table", lambda c: ensure(c, None, "hourly", FIELDS))

    def write(self, number: int, *written: tuple[Any, ...], query: str = "q") -> bool:
        batch = Batch("hourly", query, number)
        return self.server.transact("a batch", lambda c: write_batch(c, self.target, batch, written))

    def open(self, number: int, *written: tuple[Any, ...]) -> Connection:
        """Write a batch up to the commit, which the caller makes or not."""
        connection = psycopg.connect(self.url)
        assert write_batch(connection, self.target, Batch("hourly", "q", number), written)
        return connection


@pytest.fixture
def table(database: str) -> Table:
    return Table(database)


def cut(url: str, connection: Connection) -> None:
    """End a connection from the server's side, as a crash would, and wait until it is gone."""
    assert rows(url, "SELECT pg_terminate_backend(%s, 30000)", connection.info.backend_pid) == [(True,)]
    connection.close()


def test_a_later_batch_replaces_the_rows_it_brings_and_leaves_the_others(table: Table) -> None:
    assert table.write(0, row("a", 1, "1.50"), row("b", 2))
    assert table.write(1, row("a", 5, "7.25"), row("c", 1, None))
    assert rows(table.url, ALL) == [("a", 5, Decimal("7.25")), ("b", 2, Decimal("0.00")), ("c", 1, None)]
    assert rows(table.url, PROGRESS) == [("q", 1, 2)]


def test_a_null_in_a_group_is_one_group(table: Table) -> None:
    assert table.write(0, row(None, 1), row("", 2))
    assert table.write(1, row(None, 3))
    assert rows(table.url, ALL) == [("", 2, Decimal("0.00")), (None, 3, Decimal("0.00"))]


def test_a_batch_that_comes_again_changes_nothing(table: Table) -> None:
    table.write(0, row("a", 1))
    table.write(1, row("a", 2))
    before = rows(table.url, "SELECT xmin::text, h.* FROM hourly h")
    assert not table.write(1, row("a", 99))
    assert rows(table.url, "SELECT xmin::text, h.* FROM hourly h") == before


def test_an_empty_batch_counts_as_written(table: Table) -> None:
    assert table.write(0)
    assert table.write(1, row("a", 1))
    assert rows(table.url, PROGRESS) == [("q", 1, 1)]


@pytest.mark.parametrize(
    ("number", "query", "told"),
    [
        (1, "q", "it holds batch 2 already"),
        (4, "q", "it lacks the batches from 3 on"),
        (0, "other", "it holds 3 batches of another query"),
        (3, "other", "it holds 3 batches of another query"),
    ],
)
def test_a_batch_that_is_not_the_next_is_refused(table: Table, number: int, query: str, told: str) -> None:
    for each in range(3):
        table.write(each, row("a", each))
    before = rows(table.url, ALL), rows(table.url, PROGRESS)
    with pytest.raises(StopError, match=told):
        table.write(number, row("a", 99), query=query)
    assert (rows(table.url, ALL), rows(table.url, PROGRESS)) == before


def test_a_table_that_was_never_written_takes_no_later_batch_than_the_first(table: Table) -> None:
    with pytest.raises(StopError, match="it lacks the batches from 0 on"):
        table.write(3, row("a", 1))
    assert rows(table.url, PROGRESS) == []


def test_what_is_cut_before_the_commit_leaves_nothing_and_goes_in_whole_the_next_time(table: Table) -> None:
    table.write(0, row("a", 1))
    cut(table.url, table.open(1, row("a", 2), row("b", 2)))
    assert rows(table.url, ALL) == [("a", 1, Decimal("0.00"))]
    assert rows(table.url, PROGRESS) == [("q", 0, 1)]
    assert table.write(1, row("a", 2), row("b", 2))
    assert rows(table.url, ALL) == [("a", 2, Decimal("0.00")), ("b", 2, Decimal("0.00"))]


def test_a_commit_whose_answer_is_lost_is_not_done_twice(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks after COMMIT was sent and before it was answered: the work runs again."""
    commits = []

    def commit_and_break(connection: Connection) -> None:
        connection.execute("COMMIT")
        if connection.info.get_parameters().get("application_name") != "seqmark hourly":
            return
        commits.append(connection)
        if len(commits) == 1:
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", commit_and_break)
    assert not table.write(0, row("a", 1))
    assert len(commits) == 2
    assert rows(table.url, ALL) == [("a", 1, Decimal("0.00"))]


def test_a_connection_that_is_cut_in_the_middle_of_the_rows_is_made_again(table: Table) -> None:
    attempts = 0

    def some() -> Iterator[tuple[Any, ...]]:
        nonlocal attempts
        attempts += 1
        for number in range(20_000):
            if number == 10_000 and attempts == 1:
                cut_all(table.url)
            yield row(f"c{number:05}", number)

    batch = Batch("hourly", "q", 0)
    assert table.server.transact("a batch", lambda c: write_batch(c, table.target, batch, some()))
    assert attempts == 2
    assert rows(table.url, "SELECT count(*), sum(events) FROM hourly") == [(20_000, Decimal(199_990_000))]


def cut_all(url: str) -> None:
    """End every connection of the sink."""
    mine = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = %s"
    assert rows(url, mine, "seqmark hourly") == [(True,)]


def test_two_drivers_with_the_same_batch_write_it_once(table: Table) -> None:
    """A driver that was believed dead has written and not yet committed; its successor waits for it."""
    table.write(0, row("a", 1))
    zombie = table.open(1, row("a", 2))
    wrote: list[bool] = []
    successor = threading.Thread(target=lambda: wrote.append(table.write(1, row("a", 2))))
    successor.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    until(lambda: rows(table.url, waiting), "the successor waits")
    zombie.commit()
    zombie.close()
    successor.join()
    assert wrote == [False]
    assert rows(table.url, PROGRESS) == [("q", 1, 1)]


def test_a_zombie_with_an_older_batch_is_refused_although_it_had_begun_before(table: Table) -> None:
    table.write(0, row("a", 1))
    batch = Batch("hourly", "q", 1)
    with psycopg.connect(table.url) as zombie:
        begun = threading.Event()
        go_on = threading.Event()

        def slowly() -> Iterator[tuple[Any, ...]]:
            yield row("a", -1)
            begun.set()
            assert go_on.wait(60)

        refused: list[str] = []

        def write() -> None:
            try:
                write_batch(zombie, table.target, batch, slowly())
            except StopError as error:
                refused.append(str(error))

        thread = threading.Thread(target=write)
        thread.start()
        assert begun.wait(60)
        # It copies, and keeps nobody out: its successor writes its batch and the next.
        table.write(1, row("a", 2))
        table.write(2, row("a", 3))
        go_on.set()
        thread.join()
        zombie.rollback()
    assert "it holds batch 2 already" in refused[0]
    assert rows(table.url, ALL) == [("a", 3, Decimal("0.00"))]


def test_a_driver_that_halts_with_the_lock_is_ended_by_the_server(table: Table) -> None:
    """With the output's time-out, made shorter here: the successor gets in, the halted one cannot commit."""
    table.write(0, row("a", 1))
    halted = psycopg.connect(table.url)
    halted.execute("SELECT set_config('idle_in_transaction_session_timeout', '300ms', true)")
    write_batch(halted, table.target, Batch("hourly", "q", 1), [row("a", -1)])
    assert table.write(1, row("a", 2))
    with pytest.raises(errors.IdleInTransactionSessionTimeout):
        halted.commit()
    assert halted.info.transaction_status == pq.TransactionStatus.UNKNOWN
    halted.close()
    assert rows(table.url, ALL) == [("a", 2, Decimal("0.00"))]


def test_the_transaction_has_the_time_outs_that_keep_a_halted_driver_from_locking_for_ever(
    table: Table,
) -> None:
    asked = "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')"
    found = table.server.transact("a look", lambda connection: connection.execute(asked).fetchone())
    assert found == ("1min", "20s")


@pytest.mark.parametrize(
    ("micros", "expected"),
    [
        (0, "1970-01-01 00:00:00+00"),
        (-1, "1969-12-31 23:59:59.999999+00"),
        (1_767_596_889_123_457, "2026-01-05 07:08:09.123457+00"),
        (253_402_300_799_999_999, "9999-12-31 23:59:59.999999+00"),
        (253_402_300_800_000_000, "10000-01-01 00:00:00+00"),
        (-62_135_596_800_000_001, "0001-12-31 23:59:59.999999+00 BC"),
    ],
)
def test_instants_come_in_to_the_microsecond_in_any_year(table: Table, micros: int, expected: str) -> None:
    table.write(0, (micros, micros + HOUR_US, "a", 1, None))
    assert rows(table.url, "SELECT window_start::text FROM hourly") == [(expected,)]


def test_decimals_come_in_exactly(table: Table) -> None:
    largest = "9" * 36 + ".99"
    table.write(0, row("a", 2**63 - 1, largest), row("b", -(2**63), "-" + largest))
    assert rows(table.url, ALL) == [
        ("a", 2**63 - 1, Decimal(largest)),
        ("b", -(2**63), Decimal("-" + largest)),
    ]


def test_texts_that_look_like_sql_or_copys_own_signs_come_in_as_they_are(table: Table) -> None:
    texts = ["\\N", "\\.", "a\tb\nc\rd", "'; DROP TABLE hourly; --", "\\", "ü€😀", "%s {}", " "]
    table.write(0, *(row(text, number) for number, text in enumerate(texts)))
    assert dict(rows(table.url, "SELECT campaign, events FROM hourly")) == {
        text: number for number, text in enumerate(texts)
    }


def test_any_order_of_writes_replays_and_cuts_ends_in_the_last_state(table: Table) -> None:
    """Dice choose between a write, a replay of the last batch and a write that is cut before its commit."""
    dice = seeded()
    truth: dict[str, int] = {}
    last = -1
    ways: list[Callable[[], None]] = []

    def changes() -> dict[str, int]:
        return {f"c{dice.randrange(12)}": dice.randrange(1000) for _ in range(dice.randrange(6))}

    def written() -> None:
        nonlocal last
        new = changes()
        assert table.write(last + 1, *(row(name, events) for name, events in new.items()))
        truth.update(new)
        last += 1

    def replayed() -> None:
        if last >= 0:
            assert not table.write(last, *(row(name, events) for name, events in changes().items()))

    def abandoned() -> None:
        connection = table.open(last + 1, *(row(name, events) for name, events in changes().items()))
        if dice.random() < 0.5:
            connection.close()
        else:
            cut(table.url, connection)

    ways = [written, written, replayed, abandoned]
    for _ in range(60):
        dice.choice(ways)()
    written()
    assert dict(rows(table.url, "SELECT campaign, events FROM hourly")) == truth
    assert rows(table.url, "SELECT batch_id FROM seqmark_progress") == [(last,)]


def test_another_tables_progress_is_its_own(table: Table) -> None:
    other: Target = table.server.transact("a table", lambda c: ensure(c, None, "daily", FIELDS))
    table.write(0, row("a", 1))
    batch = Batch("daily", "q2", 0)
    table.server.transact("a batch", lambda c: write_batch(c, other, batch, [row("b", 1)]))
    table.write(1, row("a", 2))
    assert rows(table.url, "SELECT target, query, batch_id FROM seqmark_progress ORDER BY 1") == [
        ("daily", "q2", 0),
        ("hourly", "q", 1),
    ]
