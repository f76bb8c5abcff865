"""The embedded broker serves, survives kills, leaves nothing behind, and says why it cannot start."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from processor.broker.embedded import EmbeddedBroker, find_broker
from processor.broker.ports import serves
from processor.errors import BrokerError, ConfigError
from tests.support.kafka.topics import (
    create_topic,
    free_port,
    new,
    produce,
    produce_transaction,
    read_topic,
    sequences,
    unique,
    until,
)
from tests.support.suite.java import FakeJava

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.kafka.broker import Broker, OwnBroker

pytestmark = pytest.mark.broker

WAIT_S = 120
"""For a JVM to start or to end, on a machine whose cores are taken."""

# Says what it holds, then waits to be killed.
PARENT = """
import sys, time
from processor.broker.embedded import EmbeddedBroker
broker = EmbeddedBroker()
broker.start()
print(broker.pid, broker.data_dir, flush=True)
time.sleep(600)
"""


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python with these arguments; killed at the end if need be."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def command(*arguments: str) -> list[str]:
    return ["-c", "from processor.commands.cli import main; main()", "broker", *arguments]


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert select.select([process.stdout], [], [], WAIT_S)[0], f"no line in {WAIT_S} s"
    return process.stdout.readline()


def jvm_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Return the JVM, child of the guard, child of the process."""
    return until(lambda: descendant(process, lambda child: "kafka.Kafka" in child.cmdline()), "the JVM")


def descendant(
    process: subprocess.Popen[str], wanted: Callable[[psutil.Process], bool]
) -> psutil.Process | None:
    """Return a process below another that is as wanted; any of them may end while it is looked at."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if wanted(child):
                return child
    return None


def gone(pid: int) -> None:
    def ended() -> bool:
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    until(ended, f"{pid} gone")


@contextmanager
def listener() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


# ------------------------------------------------------------------ it serves


def test_what_is_produced_comes_out_transactions_included(broker: Broker) -> None:
    servers, topic = broker.bootstrap_servers, unique("serves")
    create_topic(servers, topic)
    produce(servers, topic, [new(1), new(2)])
    produce_transaction(servers, topic, [new(3)], commit=False)
    produce_transaction(servers, topic, [new(4)])
    assert sequences(read_topic(servers, topic)) == [1, 2, 4]


def test_data_and_port_survive_restart_and_kill_and_stop_removes_them(own_broker: OwnBroker) -> None:
    broker = own_broker()
    servers, folder = broker.bootstrap_servers, broker.data_dir
    create_topic(servers, "kept")
    produce(servers, "kept", [new(1)])

    broker.restart()
    produce(servers, "kept", [new(2)])
    broker.kill()
    assert not broker.alive
    broker.restart()
    produce(servers, "kept", [new(3)])
    broker.stop(keep=True)
    broker.start()

    assert broker.bootstrap_servers == servers
    assert sequences(read_topic(servers, "kept")) == [1, 2, 3]
    pid = broker.pid
    broker.stop()
    gone(pid)
    assert not folder.exists()


def test_a_given_folder_is_kept_and_served_again_on_another_port(own_broker: OwnBroker, tmp_path: Path) -> None:
    folder = tmp_path / "a folder, with Ümlaut [and] (brackets)"
    first = own_broker(data_dir=folder)
    create_topic(first.bootstrap_servers, "kept")
    produce(first.bootstrap_servers, "kept", [new(7)])
    first.stop()

    second = own_broker(data_dir=folder)

    assert sequences(read_topic(second.bootstrap_servers, "kept")) == [7]


def test_a_port_that_answers_nothing_or_nonsense_does_not_serve() -> None:
    with listener() as port:
        assert not serves("127.0.0.1", port, timeout_s=0.1)
    assert not serves("127.0.0.1", port)


# ------------------------------------------------------------------ nothing is left behind


def test_kill_9_of_the_starter_leaves_no_jvm_and_no_folder() -> None:
    with running("-c", PARENT) as parent:
        pid, folder = line_of(parent).split(maxsplit=1)
        assert psutil.pid_exists(int(pid))
        parent.kill()
        gone(int(pid))
        until(lambda: not Path(folder.strip()).exists(), f"{folder} removed")


@pytest.mark.skipif(sys.platform != "linux", reason="by a signal that only Linux sends")
def test_kill_9_of_the_guard_leaves_no_jvm(own_broker: OwnBroker) -> None:
    broker = own_broker()
    pid = broker.pid
    psutil.Process(pid).parent().kill()
    gone(pid)
    assert not broker.alive


# ------------------------------------------------------------------ why it cannot start


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with listener() as port, pytest.raises(BrokerError) as caught:
        EmbeddedBroker(port=port).start()
    assert f"127.0.0.1:{port} is taken" in str(caught.value)
    assert "--port" in str(caught.value)


def test_a_folder_that_another_broker_serves_is_refused(own_broker: OwnBroker, tmp_path: Path) -> None:
    serving = own_broker(data_dir=tmp_path)
    with pytest.raises(BrokerError, match=f"another broker serves {tmp_path}.*--data-dir"):
        EmbeddedBroker(data_dir=tmp_path).start()
    create_topic(serving.bootstrap_servers, "unharmed")


def test_a_setting_that_kafka_refuses_is_quoted_from_its_log() -> None:
    with pytest.raises(BrokerError) as caught:
        EmbeddedBroker(overrides={"num.io.threads": "0"}).start()
    assert "num.io.threads" in str(caught.value)
    assert "\n  " in str(caught.value)


def test_a_full_disk_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = FakeJava(tmp_path / "jdk", script='echo "java.io.IOException: No space left on device"; exit 1')
    monkeypatch.setenv("JAVA_HOME", str(full.home))
    with pytest.raises(BrokerError, match=f"disk under {tmp_path}/data is full.*--data-dir"):
        EmbeddedBroker(data_dir=tmp_path / "data").start()


def test_a_jvm_that_hangs_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    script = f'case "$*" in *StorageTool*) exit 0;; esac; echo $$ > "{pid_file}"; exec sleep 600'
    monkeypatch.setenv("JAVA_HOME", str(FakeJava(tmp_path / "jdk", script=script).home))
    monkeypatch.setenv("SEQMARK_BROKER_START_TIMEOUT", "5")  # time for the shell to say its pid
    with pytest.raises(BrokerError, match="does not serve within 5 s; --start-timeout"):
        EmbeddedBroker().start()
    gone(int(pid_file.read_text()))
    with running(*command("--start-timeout", "4")) as process:
        stderr = process.communicate(timeout=WAIT_S)[1]
    assert (process.returncode, "does not serve within 4 s" in " ".join(stderr.split())) == (1, True)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_start_timeout_that_is_no_time_is_a_wrong_config(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQMARK_BROKER_START_TIMEOUT", text)
    with pytest.raises(ConfigError, match="SEQMARK_BROKER_START_TIMEOUT: must be a number of seconds"):
        EmbeddedBroker().start()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match=r"cannot use .*file/data.*--data-dir"):
        EmbeddedBroker(data_dir=tmp_path / "file" / "data").start()


# ------------------------------------------------------------------ which broker


def test_given_servers_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQMARK_BROKER", "testcontainers")
    with find_broker("elsewhere:9092") as servers:
        assert servers == "elsewhere:9092"


def test_an_unknown_choice_of_broker_is_a_wrong_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQMARK_BROKER", "docker")
    with pytest.raises(ConfigError, match="SEQMARK_BROKER: 'docker' is unknown"), find_broker(None):
        pass


def test_containers_without_docker_name_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("SEQMARK_BROKER", "testcontainers")
    with pytest.raises(BrokerError, match=r"(?s)no Kafka container.*Unset SEQMARK_BROKER"), find_broker(None):
        pass


# ------------------------------------------------------------------ the command


def test_the_command_says_ready_and_ctrl_c_ends_it_with_0() -> None:
    with running(*command()) as process:
        ready, address = line_of(process).split()
        host, port = address.split(":")
        assert (ready, host) == ("ready", "127.0.0.1")
        assert serves(host, int(port))
        jvm = jvm_of(process)

        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=WAIT_S)

    assert (process.returncode, stdout, stderr) == (0, "", "")
    assert not jvm.is_running()


def test_the_command_serves_on_the_port_and_folder_that_it_is_told_until_sigterm(tmp_path: Path) -> None:
    port = free_port()
    with running(*command("--port", str(port), "--data-dir", str(tmp_path / "data"))) as process:
        assert line_of(process) == f"ready 127.0.0.1:{port}\n"
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert "shut down completed" in (tmp_path / "data" / "broker.log").read_text()


def test_a_jvm_that_dies_ends_the_command_with_1() -> None:
    with running(*command()) as process:
        line_of(process)
        jvm_of(process).kill()
        stdout, stderr = process.communicate(timeout=WAIT_S)
    assert (process.returncode, stdout) == (1, "")
    assert "the embedded broker ended" in stderr


def test_a_taken_port_ends_the_command_with_1() -> None:
    with listener() as port, running(*command("--port", str(port))) as process:
        stdout, stderr = process.communicate(timeout=WAIT_S)
    assert (process.returncode, stdout) == (1, "")
    assert f"127.0.0.1:{port} is taken" in " ".join(stderr.split())


def test_a_signal_while_it_starts_ends_the_command_with_0() -> None:
    with running(*command()) as process:
        jvm = until(lambda: descendant(process, lambda child: child.name() == "java"), "a JVM")
        process.terminate()
        assert process.wait(WAIT_S) == 0
    gone(jvm.pid)
