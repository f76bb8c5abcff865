"""Reaches the database, and says what a failure of it asks for.

The one door to psycopg's failures. Invariant: nothing that leaves it carries the URL or the password, neither
in its message nor as its cause: libpq repeats a connection string that it cannot read.

    reaction    when
    wait        nobody answers, the server starts, ends, is full, is locked, lost us: the same work again
    stop        the server answers and will never do this: a missing right, another type, a wrong password

Between a request of COMMIT and its answer the outcome is unknown. The work is then done again, and has to find
out by itself what stands (`spark_sink.outputs.postgres.batch`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, quote_plus

import psycopg
from psycopg import IsolationLevel, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from processor.errors import ConfigError, Problem, StopError
from spark_sink.outputs.output import PATIENCE_S, StoppedError, Stopping, pause_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

# What the user's URL says goes before these.
_DEFAULTS: dict[str, str] = {
    "connect_timeout": "10",
    # A host that is gone does not say so: found after 10 + 3 * 5 s when idle, 30 s with data on the way.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_TRANSACTION = {
    # A driver that is halted (a paused machine) must not keep the progress row from the one that took over.
    "idle_in_transaction_session_timeout": "60s",
    # Someone else's lock is waited for in turns, so that a line says so.
    "lock_timeout": "20s",
}

# https://www.postgresql.org/docs/current/errcodes-appendix.html; two letters are a class.
_PASSING = (
    "08",  # connection
    "40",  # serialisation, deadlock
    "53",  # resources: disk full, memory, too many connections
    "57",  # an operator's doing: shutdown, crash, cancelled
    "58",  # the server's own system: I/O
    "25P03",  # idle in transaction for too long
    "25P04",  # a transaction for too long
    "25006",  # read only: a standby, just before or after a failover
    "55P03",  # lock not available
)


_WRONG_URL = (
    "must be a PostgreSQL URL, postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with @ : / % and other such "
    "characters of user and password written as %40 %3A %2F %25"
)

_HINTS = {
    "54000": "; a group's text is too long for the unique key: its limit is about 2,700 bytes",
    "42501": "; grant this user SELECT, INSERT and UPDATE on table and seqmark_progress, and TEMPORARY on the "
    "database",
}


class Failure(NamedTuple):
    """What a failure asks for, and what may be said of it."""

    reaction: Literal["wait", "stop"]
    text: str


class Server:
    """A database that may be away for a while.

    Args:
        url: What libpq takes: a URL or ``key=value`` words.
        sink: Name of the aggregate, for messages and for ``pg_stat_activity``.
        say: Called with what takes long, for a person to read.
        stopping: Ends a wait for the database when the process is to end.
        patience_s: How long a database that is away is waited for.

    Raises:
        ConfigError: The URL cannot be read.
    """

    def __init__(
        self,
        url: SecretStr,
        sink: str,
        say: Callable[[str], None],
        *,
        stopping: Stopping | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._sink = sink
        self._say = say
        self._patience_s = patience_s
        self._stopping = stopping or Stopping()
        given = _parsed(url.get_secret_value())
        if given is None:
            # Not the reason: libpq quotes the part that it cannot read, which may be the password.
            raise ConfigError([Problem(f"aggregates.{sink}.output.url", _WRONG_URL)])
        self._secrets = _forms(url.get_secret_value(), given.get("password"))
        self._conninfo = make_conninfo(
            "", **{"application_name": f"seqmark {sink}", **_DEFAULTS, **given, "client_encoding": "UTF8"}
        )

    def transact(self, what: str, work: Callable[[Connection], Result], *, at_start: bool = False) -> Result:
        """Do work in one transaction, again from its beginning for as long as the database is away.

        Args:
            what: What waits meanwhile, such as ``batch 7``; for messages.
            work: Is given a connection of its own, in a transaction that commits when it returns. May run
                again after a COMMIT whose outcome is unknown. What it raises of its own goes through.
            at_start: A person is looking: stop where the server answers and refuses this connection, instead
                of hoping that somebody mends it.

        Raises:
            StopError: The database refuses, or was away for too long.
            StoppedError: The process is to end, and the database is away.
        """
        began = time.monotonic()
        waits = 0
        while True:
            outcome = self._attempt(work, at_start=at_start)
            if not isinstance(outcome, Failure):
                if waits:
                    away_s = time.monotonic() - began
                    self._say(f"aggregate {self._sink}: PostgreSQL took {what} after {away_s:.0f} s")
                return outcome
            # Raised here, not where it was caught: the cause would carry what libpq said.
            if outcome.reaction == "stop":
                raise StopError(f"aggregate {self._sink}: PostgreSQL refuses {what}: {outcome.text}")
            if time.monotonic() - began > self._patience_s:
                raise StopError(
                    f"aggregate {self._sink}: PostgreSQL has not taken {what} for {self._patience_s:.0f} s: "
                    f"{outcome.text}; nothing of it was written, it comes again at the next start"
                )
            wait_s = pause_s(waits)
            waits += 1
            self._say(
                f"aggregate {self._sink}: {what} waits for PostgreSQL, next try in {wait_s:g} s: {outcome.text}"
            )
            if self._stopping.within(wait_s):
                raise StoppedError(
                    f"aggregate {self._sink}: ended while {what} waited for PostgreSQL; it comes again"
                )

    def _attempt(self, work: Callable[[Connection], Result], *, at_start: bool) -> Result | Failure:
        try:
            connection = psycopg.connect(self._conninfo, prepare_threshold=None)
        except psycopg.Error as error:
            return self._unconnected(error, at_start=at_start)
        try:
            with connection:
                # What a role's settings say otherwise would change what a second look at a row sees.
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                for name, value in _TRANSACTION.items():
                    connection.execute("SELECT set_config(%s, %s, true)", (name, value))
                # An answered COMMIT that the server may still lose is no COMMIT.
                connection.execute(
                    "SELECT set_config('synchronous_commit', 'on', true)"
                    " WHERE current_setting('synchronous_commit') = 'off'"
                )
                return work(connection)
        except psycopg.Error as error:
            return self._failed(error, lost=connection.broken)
        finally:
            # A COMMIT that fails leaves it open.
            connection.close()

    def _unconnected(self, error: psycopg.Error, *, at_start: bool) -> Failure:
        # A failed connect has no code, only words in the server's language. The ping tells the two apart.
        answers = pq.PGconn.ping(self._conninfo.encode()) == pq.Ping.OK
        return Failure("stop" if at_start and answers else "wait", self._tellable(error))

    def _failed(self, error: psycopg.Error, *, lost: bool) -> Failure:
        code = error.sqlstate
        # Without a code it did not come from the server: libpq or psycopg has lost it.
        waits = code.startswith(_PASSING) if code else lost or isinstance(error, psycopg.OperationalError)
        told = self._tellable(error)
        hint = _HINTS.get(code or "", "")
        return Failure("wait" if waits else "stop", f"{told} ({code}){hint}" if code else told)

    def _tellable(self, error: psycopg.Error) -> str:
        """Return the message in one line and without secrets; row contents (DETAIL) are left out."""
        text = " ".join((error.diag.message_primary or str(error)).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _parsed(url: str) -> dict[str, Any] | None:
    """Return the URL taken apart, or None where it is none, or where a part of a password has strayed.

    An unquoted @ or / in a password makes the rest of it a host, a port or a database: names that libpq
    repeats in what it says.
    """
    try:
        found: dict[str, Any] = dict(conninfo_to_dict(url))
    except (psycopg.Error, ValueError):
        return None
    strayed = "@" in f"{found.get('host', '')}{found.get('dbname', '')}"
    ports = str(found.get("port", "0")).split(",")
    return None if strayed or not all(not port or port.isdecimal() for port in ports) else found


def _forms(url: str, password: str | None) -> tuple[str, ...]:
    """Return every text that must not be said, the longest first."""
    forms = {url, *((password, quote(password, safe=""), quote_plus(password)) if password else ())}
    return tuple(sorted(filter(None, forms), key=len, reverse=True))
