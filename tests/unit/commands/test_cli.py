"""Every way to end gives its exit code, and what is said goes where it belongs."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from processor.commands import cli
from processor.commands.cli import main
from processor.errors import ConfigError, Problem, StopError, ending_signals

if TYPE_CHECKING:
    from click.testing import Result

ROOT = Path(__file__).parents[3]
SLOW = {"numba", "faust", "aiokafka", "rocksdict", "pyspark", "pyarrow", "aiohttp", "psycopg"}
"""Packages that take tenths of a second to import."""
CLICKS = str(ROOT / "examples" / "clicks.toml")
# A port that is never a broker's: nothing may listen on the discard port of a developer's machine.
NOBODY = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"}


def seqmark(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


def ending_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Result:
    @click.command()
    def check() -> None:
        raise error

    monkeypatch.setattr(cli.Commands, "get_command", lambda *_: check)
    return seqmark("check")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError([Problem("a.b", "must be c")]), 2, "a.b: must be c"),
        (StopError("the [sink] is full"), 1, "the [sink] is full"),
        (KeyboardInterrupt(), 1, "check was interrupted: it is not done"),
        (click.UsageError("no such thing"), 2, "no such thing"),
    ],
)
def test_an_error_becomes_its_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ending_with(error, monkeypatch)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ending_with(ZeroDivisionError("oh"), monkeypatch)
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


def test_problems_are_counted_and_stand_on_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 300
    result = ending_with(ConfigError([Problem("a", "b"), Problem("c", long)]), monkeypatch)
    first, *lines = result.stderr.splitlines()
    assert "2 problems" in first
    assert lines == ["  a: b", f"  c: {long}"]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(flag: str) -> None:
    result = seqmark(flag)
    assert result.exit_code == 0
    for name in (
        "broker",
        "check",
        "topics",
        "worker",
        "reset",
        "generate",
        "verify",
        "aggregate",
        "demo",
    ):
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_a_command_explains_itself(flag: str) -> None:
    result = seqmark("topics", flag)
    assert (result.exit_code, "--config FILE" in result.stdout) == (0, True)


@pytest.mark.parametrize("arguments", [("chekc",), ("check",), ("check", "--nope"), ("topics", "x")])
def test_a_wrong_command_line_exits_2(arguments: tuple[str, ...]) -> None:
    assert seqmark(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("name", "said"), [("apply", "has a MERGE that deletes"), ("sink", "seqmark aggregate")]
)
def test_a_command_that_is_gone_is_refused_with_what_there_is(name: str, said: str) -> None:
    result = seqmark(name, "-c", "clicks.toml")
    assert result.exit_code == 2
    assert f"there is no command '{name}' any more: " in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("ch\x1b[2Jeck",),
        ("--no\x1b[2Jpe",),
        ("check", "--no\x1b[2Jpe"),
        ("check", "-c", "a", "x\x1b[2Jy"),
        ("init", "--bootstrap", "a:9092", "--topic", "x\x1b[2Jy"),
        ("aggregate", "-c", "a", "--metrics-port", "\x1b[2J"),
    ],
)
def test_what_was_typed_commands_no_terminal(arguments: tuple[str, ...]) -> None:
    result = seqmark(*arguments)

    assert result.exit_code == 2
    assert "\x1b" not in result.output
    assert "\\x1b" in result.stderr


def test_the_version_is_shown() -> None:
    assert seqmark("--version").stdout.startswith("seqmark")


def test_a_command_does_not_import_the_others() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from processor.commands.cli import main\n"
        "for words in (['-h'], ['check', '-h'], ['check', '-c', 'no-such-file']):\n"
        "    CliRunner().invoke(main, words)\n"
        "print(*sys.modules)"
    )
    assert "processor.commands.setup.check" in (loaded := loaded_by(program))
    assert loaded.isdisjoint({*SLOW, "numpy", "processor.commands.run.broker"})


def test_no_command_waits_for_a_slow_import_before_its_command_line_and_config_are_read() -> None:
    program = (
        "import sys; from processor.commands.cli import main\n"
        "for name in main.list_commands(c := main.make_context('seqmark', ['check'])):\n"
        "    main.get_command(c, name)\n"
        "print(*sys.modules)"
    )
    assert "processor.commands.run.worker" in (loaded := loaded_by(program))
    assert loaded & SLOW == set()


def loaded_by(program: str) -> set[str]:
    """Return the modules that a program prints."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_worker_may_open_as_many_files_as_the_system_lets_it() -> None:
    program = (
        "import resource as r; from processor.commands.run.worker import allow_open_files\n"
        "most = r.getrlimit(r.RLIMIT_NOFILE)[1]\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, most)); allow_open_files()\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE) == (most, most))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_python_m_processor_is_seqmark() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "processor", "check", "-c", "no-such-file"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"FORCE_COLOR": ""},
    )
    said = "no-such-file: there is no such file: `seqmark init` writes one"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == ["1 problem in the config, nothing was started:", f"  {said}"]


@pytest.mark.parametrize("example", ["clicks.toml", "content.toml", "fingerprint.toml"])
def test_check_without_a_broker_checks_the_config_only(example: str) -> None:
    result = seqmark("check", "-c", str(Path(CLICKS).with_name(example)), env=NOBODY)
    assert result.exit_code == 0
    *right, warning = result.stdout.splitlines()
    assert {line.split()[0] for line in right} == {"ok"}
    assert warning.startswith("warning environment variable SEQMARK_KAFKA__BOOTSTRAP_SERVERS: ")
    said = "the topics were not checked, nor what the changelogs hold: no broker at 127.0.0.1:9: is it running"
    assert said in warning
    assert f"the config is right; {said}" in result.stderr


@pytest.mark.parametrize("kind", ["parquet", "json", "batch", "delta"])
def test_files_are_no_history_of_a_pipeline_of_sequences(tmp_path: Path, kind: str) -> None:
    options = ("-c", CLICKS, "--pipeline", "clicks", "--cut", "0:0", "--format", kind)
    result = seqmark("backfill", *options, "--history", str(tmp_path), env=NOBODY)
    assert result.exit_code == 2
    assert "a pipeline of mode watermark begins with a topic, --format topic" in " ".join(result.stderr.split())


def test_on_a_terminal_a_mistake_is_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(Path(CLICKS).read_text().replace('"partition"', '"keys"'))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "processor", "check", "-c", str(path)], stdout=theirs, stderr=theirs, cwd=ROOT
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(ours, 65_536):
            shown += part
    os.close(ours)
    assert process.wait() == 2
    assert shown.count(b"must be") == 1
    assert b"1 problem in the config, nothing was started:" in shown


def test_check_gives_programs_a_line_a_problem() -> None:
    wrong = {"SEQMARK_WORKER__SLOTS": "0", "SEQMARK_PIPELINES__0__SINK": "clicks.raw"}
    result = seqmark("check", "--json", "-c", CLICKS, env=wrong)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (2, "")
    assert {line["key"] for line in lines} == {"worker.slots", "pipelines.0.sink"}
    assert {line["level"] for line in lines} == {"problem"}
    place = {"name": None, "file": CLICKS, "line": None, "variable": "SEQMARK_WORKER__SLOTS"}
    message = 'must be at least 1; given: "0"'
    said = {"key": "worker.slots", "level": "problem", "message": message, "path": "worker.slots"}
    assert said | place in lines
    assert {line["path"] for line in lines} == {"worker.slots", "pipelines.clicks.sink"}


def test_check_says_what_memory_filters_take() -> None:
    ids = '{mode="insert-id",id=[{from="key"}],window="7d",backend="bloom"}'
    env = NOBODY | {"SEQMARK_PIPELINES__0__DEDUP": ids}
    result = seqmark("check", "--json", "-c", CLICKS, env=env)
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    (said,) = [line["message"] for line in lines if line["key"] == "pipelines.0.dedup.bloom"]
    # 20 million ids a day at 48.1 bits each, in eight filters.
    assert "up to 8 filters of 120.2 MB, 961 MB together" in said


def test_check_says_beforehand_that_the_ids_of_a_state_folder_need_more_than_the_limit(tmp_path: Path) -> None:
    env = NOBODY | {
        "SEQMARK_PIPELINES__0__DEDUP": '{mode="insert-id",id=[{from="key"}],window="7d"}',
        "SEQMARK_WORKER__MEMORY_LIMIT": "1GB",
        "SEQMARK_WORKER__STATE_DIR": str(tmp_path),
    }
    config = tomllib.loads(Path(CLICKS).read_text())
    place = tmp_path / config["worker"]["application_id"] / "home-0" / config["pipelines"][0]["name"] / "0"
    place.mkdir(parents=True)
    warned = []
    for size in (600_000_000, 660_000_000):
        with (place / "000001.sst").open("wb") as file:
            file.truncate(size)  # a file of holes
        result = seqmark("check", "--json", "-c", CLICKS, env=env)
        assert result.exit_code == 0
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        warned.append([line["message"] for line in lines if line["key"] == "worker.memory_limit"])
    assert warned[0] == []
    assert "ids that take up to 750 MB" in warned[1][0]


def test_check_reads_certificates_before_it_calls_anybody() -> None:
    tls = {"SEQMARK_KAFKA__SECURITY_PROTOCOL": "SSL", "SEQMARK_KAFKA__SSL_CAFILE": "no-such.pem"}
    result = seqmark("check", "-c", CLICKS, env=NOBODY | tls)
    assert result.exit_code == 2
    assert "kafka.ssl_cafile" in result.stderr


def test_topics_without_a_broker_fails_and_says_where_it_looked() -> None:
    result = seqmark("topics", "-c", CLICKS, env=NOBODY)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no broker at 127.0.0.1:9" in result.stderr


@pytest.mark.parametrize(
    "command", [["explain", "--key", "a"], ["simulate"], ["verify"], ["read", "events.clean"]]
)
def test_a_port_where_nothing_listens_is_said_to_be_one_by_each_command(command: list[str]) -> None:
    by_ids = str(Path(CLICKS).with_name("insert-id.toml"))
    result = seqmark(*command, "-c", by_ids, env=NOBODY)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no broker at 127.0.0.1:9: is it running" in result.stderr
    assert "KafkaConnectionError" not in result.stderr


@pytest.mark.parametrize("command", [["check"], ["topics"], ["verify"], ["generate", "--records", "1"]])
def test_a_host_that_nobody_knows_fails_and_is_named(command: list[str]) -> None:
    nowhere = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": "no-such-host.invalid:9092"}
    result = seqmark(*command, "-c", CLICKS, env=nowhere)
    assert result.exit_code == 1
    assert "cannot resolve host no-such-host.invalid of kafka.bootstrap_servers" in result.stderr


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [("worker", 0, ""), ("aggregate", 0, ""), ("verify", 1, "verify was interrupted: nothing is proved")],
)
def test_a_command_that_is_told_to_stop_while_it_is_imported_ends_as_it_does_later(
    command: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", stopped)
    result = seqmark(command)
    assert result.exit_code == code
    assert said in result.stderr
    assert bool(said) == bool(result.stderr)


VERIFY = (["verify"], "verify was interrupted: nothing is proved")


@pytest.mark.parametrize(
    ("number", "command", "said"),
    [
        (signal.SIGTERM, *VERIFY),
        (signal.SIGINT, *VERIFY),
        (signal.SIGHUP, *VERIFY),
        (signal.SIGTERM, ["reset", "--pipeline", "p", "--to-earliest"], "run the same reset again"),
        (
            signal.SIGINT,
            ["generate", "--pipeline", "p", "--records", "10", "--duplicates", "0.1"],
            "it is not done",
        ),
    ],
)
def test_a_command_that_is_told_to_stop_before_it_is_done_ends_with_1_and_says_so(
    tmp_path: Path, command: list[str], said: str, number: signal.Signals
) -> None:
    config = tmp_path / "config.toml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config.write_text(
            f'[kafka]\nbootstrap_servers = "127.0.0.1:{port}"\n[worker]\napplication_id = "a"\n'
            '[[pipelines]]\nname = "p"\nsource = "s"\nsink = "t"\n[pipelines.dedup]\nmode = "watermark"\n'
            'sequence = { from = "header", name = "seq", format = "int64" }\n'
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "processor", *command, "-c", str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(60)
        with silent.accept()[0]:
            # It waits for an answer now.
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (1, "")
        assert said in stderr


def test_what_nohup_has_started_does_not_end_with_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in ending_signals()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in ending_signals()


def test_a_command_that_there_is_not_is_shown_as_it_was_written() -> None:
    result = seqmark("wor\x1b[31mker")
    assert result.exit_code == 2
    assert r"there is no command 'wor\x1b[31mker'; did you mean worker?" in result.stderr


def test_nothing_of_a_config_or_its_path_commands_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "my\x1b[31m.toml"
    env = NOBODY | {"SEQMARK_WORKER__STATE_DIR": str(tmp_path / "a\x1b]0;b\x07\x9b\u202e")}
    missing = seqmark("check", "-c", str(path), env=env)
    path.write_text(Path(CLICKS).read_text())
    found = seqmark("check", "-c", str(path), env=env)
    assert (missing.exit_code, found.exit_code) == (2, 0)
    assert r"my\x1b[31m.toml" in missing.stderr
    assert r"a\x1b]0;b\x07\x9b\u202e" in found.stdout
    for said in (missing.stderr, found.stdout, found.stderr):
        assert said.replace("\n", "").isprintable()


def written_to(stdout: int, *command: str) -> tuple[int, str]:
    """Return exit code and stderr of a command whose result goes there."""
    done = subprocess.run(
        [sys.executable, "-m", "processor", *command],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=False,
        env=os.environ | NOBODY,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "command",
    [["config", "schema"], ["status", "-c", CLICKS], ["check", "--json", "-c", CLICKS], ["--version"]],
    ids=["config", "status", "check", "version"],
)
def test_a_result_that_cannot_be_written_is_an_error_in_a_line(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = written_to(full.fileno(), *command)
    assert (code, said) == (1, "seqmark: stdout cannot be written: No space left on device\n")


def test_a_worker_whose_stdout_a_shell_has_closed_ends_as_any_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        env = {"SEQMARK_WORKER__WEB_PORT": str(taken.getsockname()[1])}
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-m", "processor", "worker", "-c", CLICKS],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
            env=os.environ | NOBODY | env,
        )
    assert done.returncode == 1
    assert "address already in use; nothing was started" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_only_the_last_flush_finds_is_an_error_too() -> None:
    program = (
        "import sys, click; from processor.commands import cli\n"
        "cli.Commands.get_command = lambda *_: click.Command('check', callback=lambda: sys.stdout.write('x'))\n"
        "cli.main(['check'])"
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
        )
    assert (done.returncode, done.stderr) == (1, "seqmark: stdout cannot be written: No space left on device\n")


def test_a_full_disk_that_is_not_behind_stdout_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ending_with(OSError(errno.ENOSPC, "No space left on device"), monkeypatch)
    assert isinstance(result.exception, OSError)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["config", "schema"], 0),
        (["status", "-c", CLICKS], 1),
        (["check", "-c", CLICKS], 0),
        (["-h"], 0),
        (["topics", "-h"], 0),
        (["check", "-c", str(ROOT / "pyproject.toml")], 2),
    ],
    ids=["config", "status", "check", "help", "help of one", "check that fails"],
)
def test_a_reader_that_has_enough_is_no_error_and_hides_none(command: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended, said = written_to(writer, *command)
    finally:
        os.close(writer)
    assert (ended, said) == (code, "")


@pytest.mark.parametrize(
    ("key", "dedup", "why"),
    [
        ("SEQUENCE", '{from="header",name="seq",wraps=256}', "its sequences wrap"),
        ("EPOCH", '{from="header",name="boot",order="change"}', "its epochs have no order"),
    ],
)
def test_a_history_does_not_say_what_the_order_of_records_decides(key: str, dedup: str, why: str) -> None:
    env = {**NOBODY, f"SEQMARK_PIPELINES__0__DEDUP__{key}": dedup}
    asked = ("--pipeline", "clicks", "--history", "archive", "--format", "topic")
    done = seqmark("backfill", "-c", CLICKS, *asked, env=env)
    assert done.exit_code == 1
    assert f"cannot begin with a history, as {why}" in " ".join(done.stderr.split())
