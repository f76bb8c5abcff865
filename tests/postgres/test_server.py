"""Is a database that is away waited for, one that refuses told at once, and its password told to nobody?"""

from __future__ import annotations

import logging
import threading
import traceback
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors
from pydantic import SecretStr

from processor.errors import ConfigError, SeqmarkError, StopError
from spark_sink.outputs import output as module
from spark_sink.outputs.output import StoppedError, Stopping
from spark_sink.outputs.postgres.server import Server
from tests.support.kafka.topics import until
from tests.support.spark_sink.postgres import rows

if TYPE_CHECKING:
    from spark_sink.outputs.postgres.server import Connection
    from tests.support.spark_sink.postgres import OwnPostgres

pytestmark = pytest.mark.postgres

NOBODY = "postgresql://me:geheim@127.0.0.1:1/db"
"""Nothing listens on port 1."""


def server(url: str, told: list[str], stopping: Stopping | None = None, patience_s: float = 60) -> Server:
    return Server(SecretStr(url), "hourly", told.append, stopping=stopping, patience_s=patience_s)


def one(connection: Connection) -> object:
    return connection.execute("SELECT 1").fetchone()


def everything_of(error: BaseException) -> str:
    """What any log of an error could show: with its causes, and whatever hangs on them."""
    seen = "".join(traceback.format_exception(error)) + repr(error)
    for inner in (error.__cause__, error.__context__):
        if inner is not None:
            seen += everything_of(inner)
    return seen


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back off by milliseconds, so that patience ends soon."""
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.05)


def test_a_database_that_is_stopped_and_started_again_is_waited_for_and_told(own_postgres: OwnPostgres) -> None:
    own = own_postgres()
    told: list[str] = []
    reached = server(own.url, told)
    assert reached.transact("batch 1", one) == (1,)
    own.stop()
    done: list[object] = []
    waiting = threading.Thread(target=lambda: done.append(reached.transact("batch 2", one)))
    waiting.start()
    until(lambda: len(told) >= 2, "it has tried twice")
    own.start()
    waiting.join(60)
    assert done == [(1,)]
    assert "batch 2 waits for PostgreSQL, next try in 0.5 s" in told[0]
    assert "next try in 1 s" in told[1]
    assert "PostgreSQL took batch 2 after" in told[-1]


@pytest.mark.usefixtures("quick")
def test_a_database_that_stays_away_ends_the_query_when_patience_ends() -> None:
    told: list[str] = []
    with pytest.raises(StopError, match=r"has not taken batch 3 for 0 s: .* it comes again at the next start"):
        server(NOBODY, told, patience_s=0.2).transact("batch 3", one)
    assert len(told) >= 2


def test_who_is_asked_to_end_waits_no_longer() -> None:
    told: list[str] = []
    stopping = Stopping()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            server(NOBODY, told, stopping).transact("batch 3", one)
        except StoppedError as error:
            ended.append(error)

    waiting = [threading.Thread(target=wait) for _ in range(2)]
    for each in waiting:
        each.start()
    until(lambda: len(told) >= 2, "both wait")
    stopping.ask()
    for each in waiting:
        each.join(60)
    assert len(ended) == 2


@pytest.mark.parametrize("part", ["password", "username", "path"])
def test_at_the_start_a_refused_connection_is_told_at_once(database: str, part: str) -> None:
    parts = urlsplit(database)
    wrong = {
        "password": database.replace(f":{parts.password}@", ":geheim@"),
        "username": database.replace(f"//{parts.username}:", "//nobody_such:"),
        "path": parts._replace(path="/no_such").geturl(),
    }[part]
    told: list[str] = []
    with pytest.raises(StopError, match="PostgreSQL refuses its table"):
        server(wrong, told).transact("its table", one, at_start=True)
    assert told == []


@pytest.mark.usefixtures("quick")
def test_later_a_refused_connection_is_waited_for(database: str) -> None:
    """A server that is full, or whose password is just being changed, refuses too."""
    with psycopg.connect(database, autocommit=True) as owner:
        name = owner.info.dbname
        told: list[str] = []
        owner.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0".encode())
        owner.execute(b"CREATE ROLE plain LOGIN PASSWORD 'plain'")
        try:
            parts = urlsplit(database)
            plain = database.replace(f"{parts.username}:{parts.password}@", "plain:plain@")
            reached = server(plain, told, patience_s=60)
            done: list[object] = []
            waiting = threading.Thread(target=lambda: done.append(reached.transact("batch 1", one)))
            waiting.start()
            until(lambda: len(told) >= 2, "it is refused")
            owner.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1".encode())
            waiting.join(60)
        finally:
            owner.execute(b"DROP ROLE plain")
    assert done == [(1,)]
    assert "too many connections" in told[0]


@pytest.mark.parametrize(
    "failure",
    [
        errors.SerializationFailure,
        errors.DeadlockDetected,
        errors.LockNotAvailable,
        errors.DiskFull,
        errors.OutOfMemory,
        errors.TooManyConnections,
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.QueryCanceled,
        errors.IoError,
        errors.ReadOnlySqlTransaction,
        errors.IdleInTransactionSessionTimeout,
        errors.ConnectionFailure,
        psycopg.OperationalError,
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_passes_by_itself_is_tried_again(database: str, failure: type[psycopg.Error]) -> None:
    told: list[str] = []
    tries: list[int] = []

    def work(connection: Connection) -> object:
        tries.append(1)
        if len(tries) < 3:
            raise failure("as it happens")
        return one(connection)

    assert server(database, told).transact("batch 1", work) == (1,)
    assert len(tries) == 3
    assert "as it happens" in told[0]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT * FROM no_such", r"refuses batch 1: relation \"no_such\" does not exist \(42P01\)"),
        ("SELECT 1 / 0", r"division by zero \(22012\)"),
        ("SELECT 'x'::numeric", r"invalid input syntax .* \(22P02\)"),
    ],
)
def test_what_never_passes_ends_the_query_at_once(database: str, statement: str, told: str) -> None:
    said: list[str] = []
    with pytest.raises(StopError, match=told):
        server(database, said).transact("batch 1", lambda connection: connection.execute(statement.encode()))
    assert said == []


@pytest.mark.usefixtures("quick")
def test_a_full_disk_is_waited_for(database: str) -> None:
    """The nearest to it that needs no disk of its own: a limit on files, of the same class of failures."""
    told: list[str] = []
    tries: list[int] = []

    def work(connection: Connection) -> object:
        tries.append(1)
        if len(tries) == 1:
            connection.execute("SET LOCAL temp_file_limit = '64kB'; SET LOCAL work_mem = '64kB'")
            connection.execute("SELECT * FROM generate_series(1, 200000) AS n ORDER BY -n")
        return one(connection)

    assert server(database, told).transact("batch 1", work) == (1,)
    assert "(53400)" in told[0]


def test_a_failure_of_the_works_own_goes_through_and_leaves_nothing(database: str) -> None:
    def work(connection: Connection) -> None:
        connection.execute("CREATE TABLE made (one int)")
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        server(database, []).transact("batch 1", work)
    assert rows(database, "SELECT to_regclass('made')") == [(None,)]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:geheim@127.0.0.1:port/db",
        "postgresql://me:ab@geheim@host/db",
        "postgresql://me:ab/geheim@host/db",
        "postgresql://me:ab%geheim@host/db",
        "postgresql://me:ab%00geheim@host/db",
        "postgres:/me:geheim@host",
        "host=h password=geheim nonsense=1",
        "host=h password=geheim x",
        "geheim",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_being_told(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server(url, [])
    assert refused.value.problems[0].key == "aggregates.hourly.output.url"
    assert "geheim" not in everything_of(refused.value)


@pytest.mark.usefixtures("quick")
def test_the_password_is_nowhere_in_what_is_told(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not in messages, nor in the cause of an error, nor in psycopg's log, as written or as it is meant."""
    caplog.set_level(logging.DEBUG)
    parts = urlsplit(database)
    secret, written = "ge heim/€", "ge%20heim%2F%E2%82%AC"
    told: list[str] = []
    raised: list[SeqmarkError] = []
    refused = database.replace(f":{parts.password}@", f":{written}@")
    away = NOBODY.replace("geheim", written)
    for url, at_start in ((refused, True), (away, False)):
        reached = server(url, told, patience_s=0.1)
        with pytest.raises(StopError) as error:
            reached.transact("batch 1", one, at_start=at_start)
        raised.append(error.value)
        assert written not in repr(reached)
    repeated = server(database, told, patience_s=0.1)

    def shows(connection: Connection) -> None:
        raise psycopg.OperationalError(f"connecting with {connection.info.password} and {database} fails")

    with pytest.raises(StopError) as error:
        repeated.transact("batch 1", shows)
    raised.append(error.value)
    seen = "".join([*map(everything_of, raised), *told, caplog.text])
    assert "connecting with *** and *** fails" in seen
    for each in (secret, written, parts.password or "", database):
        assert each not in seen
