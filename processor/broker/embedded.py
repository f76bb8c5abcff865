"""Runs a real Kafka where there is none at hand.

Apache Kafka in KRaft combined mode (broker and controller in one process) on the local JVM, for the
demo, the tests and a first try; bound to 127.0.0.1. Its JVM never outlives the process that started
it: ``guard.py`` stands between.

A data folder holds ``server.properties``, ``broker.log``, ``logs/`` (Kafka's own) and ``in-use``, which the
JVM keeps locked as long as it lives. Kafka's own lock comes too late: a second broker has by then written
into the first one's metadata (seen: the first could commit nothing more).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from processor.broker import guard
from processor.broker.jars import KAFKA_JARS, LIST, JarSet, resolve
from processor.broker.java import Java, find_java
from processor.broker.ports import HOST, Ports, PortTakenError, serves
from processor.errors import BrokerError, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# For one machine: ready in seconds on two cores, and nothing that changes what a client sees of its
# records.

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "logs",  # relative to the data folder, for a path could hold a comma
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # 50 partitions each by default, every one with its files: a second at first use.
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Looked for every 10 s by default; tests wait for an expired transaction's abort.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After kill -9 the controller takes the old incarnation for alive this long (default 9 s). Lower still,
    # a machine that is busy elsewhere would fence its only broker.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),  # 128 MiB of heap by default
}


def write_settings(file: Path, ports: Ports, overrides: Mapping[str, str]) -> None:
    """Write ``server.properties``; `overrides` win."""
    settings = {
        **_SETTINGS,
        "listeners": f"PLAINTEXT://{HOST}:{ports.broker},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports.broker}",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        **overrides,
    }
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())
    file.write_text(text, encoding="ascii")


def _escaped(value: str) -> str:
    """Write a value as Java reads a .properties file: ASCII, with escapes."""
    return "".join(char if " " <= char <= "~" and char != "\\" else f"\\u{ord(char):04x}" for char in value)


_LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
    # Each prints hundreds of settings at every start.
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)
_FREE_PORT_ATTEMPTS = 3
_QUOTED_LINES = 12
START_TIMEOUT = "SEQMARK_BROKER_START_TIMEOUT"
_START_S = 60.0
# Five seconds of CPU time, which took 66 s at a load of 41 on two cores.
# A clean stop takes half a second, on a busy machine a few seconds.
_END_S = 20.0
# A JVM whose starter was killed is ended by its guard within a second or so.
_DYING_S = 3


class EmbeddedBroker:
    """One Kafka broker on this machine's JVM; a context manager that starts and stops it.

    Args:
        port: Where clients connect; 0 takes a free one and keeps it over restarts.
        data_dir: Kept at the end, and served again by the next broker on it. None: a temporary
            folder, gone after `stop`.
        overrides: Server settings (``server.properties``) beside or instead of ours.
        heap_mb: The JVM's largest heap.
        say: Told of what takes long, for a person to read.
        ports: Claimed already, in place of `port`: nodes of a cluster know each other's beforehand.
        cluster_id: The cluster a new folder is made for, the same for all its nodes. None: a new one.
    """

    kafka: JarSet = KAFKA_JARS
    listed: Path = LIST
    """Maven coordinates of what is started; another version may be set before."""

    def __init__(
        self,
        *,
        port: int = 0,
        data_dir: Path | None = None,
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 768,
        say: Callable[[str], None] = lambda _: None,
        ports: Ports | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self._wanted_port = port
        self._wanted_dir = data_dir
        self._overrides = dict(overrides or {})
        self._heap_mb = heap_mb
        self._say = say
        self._data_dir: Path | None = None
        self._lock: int | None = None
        self._ports = ports
        self._cluster_id = cluster_id or new_cluster_id()
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT``; the same after `restart`."""
        if self._ports is None:
            raise BrokerError("the embedded broker was not started")
        return f"{HOST}:{self._ports.broker}"

    @property
    def pid(self) -> int:
        """The JVM's process id, for tests that pause or kill it."""
        if self._pid is None:
            raise BrokerError("the embedded broker was not started")
        return self._pid

    @property
    def alive(self) -> bool:
        """Whether the JVM runs."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def data_dir(self) -> Path:
        """The folder in use, with ``broker.log``."""
        if self._data_dir is None:
            raise BrokerError("the embedded broker was not started")
        return self._data_dir

    def start(self, timeout_s: float | None = None) -> None:
        """Start the broker, or start it again after `kill`, and return once it serves.

        The time is the JVM's; the jars, fetched on the first run of all, are not counted in. None: what
        `START_TIMEOUT` says, or a minute.

        Raises:
            ConfigError: `START_TIMEOUT` is no number of seconds.
            BrokerError: It cannot run; nothing is left behind but a `data_dir` that was given.
        """
        if self.alive:
            return
        timeout_s = timeout_s or _start_timeout_s()
        java = find_java()
        if java.note:
            self._say(java.note)
        jars = resolve(self.kafka, listed=self.listed, say=self._say)
        class_path = os.pathsep.join(str(jar) for jar in jars)
        try:
            self._data_dir = self._data_dir or _open_data_dir(self._wanted_dir)
            if self._lock is None:
                self._lock = _locked(self._data_dir)
            attempts = 1 if self._ports or self._wanted_port else _FREE_PORT_ATTEMPTS
            for left in range(attempts - 1, -1, -1):
                self._ports = self._ports or Ports(self._wanted_port)
                try:
                    self._launch(java, class_path, self._ports)
                    self._await_ready(timeout_s)
                except PortTakenError:
                    self._release_ports()
                    if not left:
                        raise
                else:
                    return
        except OSError as exc:
            self.stop()
            raise BrokerError(_cannot_write(exc, self._wanted_dir)) from exc
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep: bool = False) -> None:
        """End the JVM cleanly (SIGTERM, after 20 s kill -9); remove a temporary folder.

        With `keep`, data and port stay for the next `start`, as they do after `kill`.
        """
        self._end(b"T")
        if keep:
            return
        self._release_ports()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._data_dir and self._wanted_dir is None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._data_dir = None

    def kill(self) -> None:
        """End the JVM by kill -9. Data and port stay, for `start` or `restart`."""
        self._end(b"K")

    def restart(self) -> None:
        """Stop cleanly where it still runs, then start on the same port and data."""
        self.stop(keep=True)
        self.start()

    def failure(self, what: str = "the embedded broker ended") -> BrokerError:
        """Turn the end of the JVM's log into an error that says what to do."""
        log = self.data_dir / "broker.log"
        text = ""
        with suppress(OSError), log.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        if "Address already in use" in text:
            return PortTakenError(self.bootstrap_servers)
        if "No space left on device" in text:
            return BrokerError(_cannot_write(OSError(errno.ENOSPC, ""), self._wanted_dir))
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\t")]
        grave = [line for line in lines if " ERROR " in line or "Exception" in line] or lines
        quoted = "\n".join(f"  {line[:500]}" for line in grave[-_QUOTED_LINES:])
        kept = f"The whole log: {log}." if self._wanted_dir else "With a data folder the log is kept."
        return BrokerError(f"{what}. Last of its log:\n{quoted or '  (empty)'}\n{kept}")

    def _launch(self, java: Java, class_path: str, ports: Ports) -> None:
        self._end(b"K")  # what is left of a JVM that ended by itself
        write_settings(self.data_dir / "server.properties", ports, self._overrides)
        if not (self.data_dir / "logs" / "meta.properties").exists():
            self._format(java, class_path)
        # Serial GC: one small heap, and no collector threads beside the work that is measured.
        flags = [f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-Djava.awt.headless=true", *_LOGGING]
        jvm: list[str | Path] = [java.path, *flags, "-cp", class_path, "kafka.Kafka", "server.properties"]
        doomed = self.data_dir if self._wanted_dir is None else ""
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), doomed]
        with (self.data_dir / "broker.log").open("ab") as output:
            self._log_start = output.tell()
            # Our own guard, and a Java that find_java has tried; a session of its own, so that
            # Ctrl-C in a terminal reaches us only and the broker is stopped in order.
            self._guard = subprocess.Popen(  # noqa: S603 - see above
                [*guarded, *jvm],
                cwd=self.data_dir,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                pass_fds=() if self._lock is None else (self._lock,),
            )
        if self._guard.stdout:
            with self._guard.stdout as told:
                self._pid = int(told.readline() or -1)

    def _await_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        host, _, port = self.bootstrap_servers.partition(":")
        while time.monotonic() < deadline:
            if not self.alive:
                raise self.failure("the embedded broker ended while it started")
            if serves(host, int(port)):
                return
            time.sleep(0.05)
        more = f"--start-timeout or {START_TIMEOUT} gives it longer"
        raise self.failure(f"the embedded broker does not serve within {timeout_s:g} s; {more}")

    def _format(self, java: Java, class_path: str) -> None:
        """Write cluster id and feature levels, without which a KRaft broker refuses to start."""
        tool = ["kafka.tools.StorageTool", "format", "-t", self._cluster_id]
        flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # half a second of work
        with (self.data_dir / "broker.log").open("ab") as output:
            self._log_start = output.tell()
            # A Java that find_java has tried.
            run = subprocess.run(  # noqa: S603 - see above
                [java.path, *flags, "-cp", class_path, *tool, "-c", "server.properties"],
                cwd=self.data_dir,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        if run.returncode != 0:
            raise self.failure("the broker's folder cannot be formatted")

    def _end(self, order: bytes) -> None:
        if self._guard is None:
            return
        process, self._guard, self._pid = self._guard, None, None
        for step in (order, b"K"):
            # The pipe breaks when the JVM and with it the guard is gone already.
            with suppress(BrokenPipeError):
                os.write(process.stdin.fileno(), step) if process.stdin else None
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
                break
        if process.stdin:
            process.stdin.close()

    def _release_ports(self) -> None:
        if self._ports:
            self._ports.release()
        self._ports = None


def _start_timeout_s() -> float:
    text = os.environ.get(START_TIMEOUT) or str(_START_S)
    with suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise ConfigError([Problem(START_TIMEOUT, f"must be a number of seconds above 0, not {text!r}")])


def new_cluster_id() -> str:
    """Return an id that no other cluster has, for `EmbeddedBroker`."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _open_data_dir(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="seqmark-broker-"))
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted.resolve()


def _locked(data_dir: Path) -> int:
    """Return a locked file descriptor; the JVM inherits it, and with it the lock."""
    lock = os.open(data_dir / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + _DYING_S
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        if time.monotonic() > deadline:
            os.close(lock)
            message = f"another broker serves {data_dir}: stop it, or choose another folder with --data-dir."
            raise BrokerError(message)
        time.sleep(0.05)


def _cannot_write(exc: OSError, data_dir: Path | None) -> str:
    where = data_dir or tempfile.gettempdir()
    choose = "--data-dir" if data_dir else "TMPDIR"
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk under {where} is full: the broker needs at least 200 MB there. "
            f"Free some, or choose a folder on another disk with {choose}."
        )
    return f"the broker cannot use {where}: {exc}. Make it writable, or choose another with {choose}."


@contextmanager
def find_broker(bootstrap_servers: str | None, *, say: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Give the bootstrap servers of the broker to use, and end at exit what was started for it.

    1. `bootstrap_servers`, when given; 2. with ``SEQMARK_BROKER=testcontainers`` a container;
    3. otherwise an embedded one.

    Raises:
        ConfigError: ``SEQMARK_BROKER`` is something else.
        BrokerError: Neither container nor embedded broker can run.
    """
    choice = os.environ.get("SEQMARK_BROKER", "")
    if bootstrap_servers:
        yield bootstrap_servers
    elif choice == "testcontainers":
        with _container(say) as servers:
            yield servers
    elif choice in ("", "embedded"):
        with EmbeddedBroker(say=say) as broker:
            yield broker.bootstrap_servers
    else:
        message = f"{choice!r} is unknown; use testcontainers, or unset it for the embedded broker"
        raise ConfigError([Problem("SEQMARK_BROKER", message)])


@contextmanager
def _container(say: Callable[[str], None]) -> Iterator[str]:
    try:
        # A tool of the tests, which users of the worker do not install.
        from testcontainers.community.kafka import KafkaContainer  # noqa: PLC0415 - see above
    except ImportError as exc:
        raise BrokerError(
            "SEQMARK_BROKER=testcontainers needs the package testcontainers: install it "
            "(pip install testcontainers), or unset SEQMARK_BROKER for the embedded broker."
        ) from exc
    say("starting Kafka in a container")
    try:
        container = KafkaContainer().with_kraft()
        for key in ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"):
            container.with_env("KAFKA_" + key.upper().replace(".", "_"), "1")
        container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        container.start(timeout=120)
    # Docker's client raises its own tree, and requests' where no daemon answers.
    except Exception as exc:
        raise BrokerError(
            f"no Kafka container: {exc}. Is Docker running, and may you use it? "
            "Unset SEQMARK_BROKER for the embedded broker, which needs none."
        ) from exc
    try:
        servers: str = container.get_bootstrap_server()
        yield servers
    finally:
        container.stop()
