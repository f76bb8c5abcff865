"""Gives the tests a real PostgreSQL, of this machine's packages, in a folder of its own.

`postgres` is one server for the whole run, `database` a fresh database in it for each test, `own_postgres`
a server that a test may stop and start. SEQMARK_TEST_POSTGRES, a URL whose user may create databases, names
one to use in place of the first; without it and without PostgreSQL's programs the tests are skipped.

initdb and postgres refuse to run as root: run by root, they run as `nobody`, or as `postgres`.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.support.kafka.topics import until

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 60.0
"""For a start or an end: far above what it takes on a machine that does something else beside."""
_USER = "seqmark"
_PR_SET_PDEATHSIG = 1
_SETTINGS = {
    "fsync": "off",  # what is tested are processes that die, not a loss of power
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "40",
    # No machine's zone, and no whole hour: nothing may depend on it.
    "timezone": "America/St_Johns",
}


class Server:
    """A PostgreSQL server of the test's own; a context manager that starts and ends it.

    Args:
        programs: Folder of ``initdb`` and ``postgres``.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        # Not pytest's folder: only its owner may enter that.
        self._folder = Path(tempfile.mkdtemp(prefix="seqmark-postgres-"))
        self._password = secrets.token_hex(8)
        self._port = _free_port()

    @property
    def url(self) -> str:
        """Where it is, with the password, database ``postgres``."""
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, on the same port as before; returns when it serves."""
        options = [word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair))]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", self._folder / "data", "-p", str(self._port), "-k", self._folder),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                # A group of its own: Ctrl-C in the terminal ends the tests, which then end the server.
                process_group=0,
                # Tests that are killed end nothing any more.
                preexec_fn=_end_with_the_tests,  # noqa: PLW1509 - one system call, no lock is needed for it
                **_owner(),
            )
        until(self._serves, "PostgreSQL serves", WAIT_S)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it and wait.

        Args:
            how: SIGINT rolls open transactions back and ends in order, SIGQUIT ends at once, so that the
                next start recovers from the log.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(WAIT_S)
        self._process = None

    def give(self, folder: Path) -> None:
        """Make a folder whose owner is who the server runs as."""
        folder.mkdir(mode=0o700)
        owner = _owner()
        if owner:
            os.chown(folder, owner["user"], owner["group"])

    def _initialise(self) -> None:
        owner = _owner()
        if owner:
            os.chown(self._folder, owner["user"], owner["group"])
        words = self._folder / "password"
        words.write_text(self._password, encoding="ascii")
        words.chmod(0o644)
        made = subprocess.run(
            [
                *(str(self._programs / "initdb"), "-D", str(self._folder / "data")),
                *("-U", _USER, "--pwfile", str(words), "--auth", "scram-sha-256"),
                *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            timeout=WAIT_S,
            **owner,
        )
        assert made.returncode == 0, made.stderr

    def _serves(self) -> bool:
        assert self._process is not None
        log = self._folder / "log"
        assert self._process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


class OwnPostgres(Protocol):
    """Makes servers; each is started, and ended when the test ends."""

    def __call__(self) -> Server: ...


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Give the URL of the server of the whole run."""
    given = os.environ.get("SEQMARK_TEST_POSTGRES")
    if given:
        yield given
        return
    with Server(_programs()) as server:
        yield server.url


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Give the URL of a database that is empty, and gone after the test."""
    with new_database(postgres) as url:
        yield url


@pytest.fixture
def own_postgres() -> Iterator[OwnPostgres]:
    """Give a maker of servers that the test may stop and start again."""
    with ExitStack() as started:
        yield lambda: started.enter_context(Server(_programs()))


@contextmanager
def new_database(server: str, encoding: str = "UTF8") -> Iterator[str]:
    """Make a database on a server, and drop it, whoever is still connected."""
    name = f"seqmark_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        # The locale C goes with every encoding; only the first template may be given another one.
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'")
        connection.execute(create.format(sql.Identifier(name), encoding))
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def rows(url: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return what a query of the test's own gives; times in UTC."""
    with psycopg.connect(url, options="-c timezone=UTC") as connection:
        return connection.execute(query.encode(), values or None).fetchall()


def _programs() -> Path:
    """Return the folder of the newest PostgreSQL of this machine; skips the test where there is none."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(versions, key=lambda path: int(path.parts[-3]), reverse=True)
    on_path = shutil.which("pg_ctl")
    found = newest[0] if newest else Path(on_path).resolve() if on_path else None
    if found is None:
        pytest.skip(
            "PostgreSQL is not installed (Debian: apt-get install postgresql) and SEQMARK_TEST_POSTGRES not set"
        )
    return found.parent


def _end_with_the_tests() -> None:
    """In the child, after it has become somebody else, which would undo this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _owner() -> dict[str, Any]:
    """Return whom the server's programs run as, in the words of `subprocess`."""
    if os.geteuid() != 0:
        return {}
    known = {each.pw_name: each for each in pwd.getpwall()}
    entry = known.get("nobody") or known["postgres"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
