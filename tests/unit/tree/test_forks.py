"""A command that a test starts is a process of its own, forked or not: nothing of others is in it."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.worker import forks

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[worker]
application_id = "a"
state_dir = "state"
[[pipelines]]
name = "p"
source = "raw"
sink = "clean"
[pipelines.dedup]
mode = "watermark"
sequence = { from = "header", name = "seq", format = "int64" }
"""
either = pytest.mark.parametrize("fresh", [False, True], ids=["forked", "fresh"])


@either
def test_it_says_and_ends_as_it_does_for_users(tmp_path: Path, *, fresh: bool) -> None:
    said = forks.run("--version", folder=tmp_path, fresh=fresh)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("seqmark ")

    refused = forks.run("worker", "-c", "no-such.toml", folder=tmp_path, fresh=fresh)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no-such.toml" in refused.stderr


@either
def test_its_folder_and_variables_are_its_own(tmp_path: Path, *, fresh: bool) -> None:
    (tmp_path / "my.toml").write_text(CONFIG.replace("watermark", "highest"))
    asked = ("check", "-c", "my.toml")
    wrong = forks.run(*asked, folder=tmp_path, env={"SEQMARK_WORKER__WEB_PORT": "none"}, fresh=fresh)
    again = forks.run(*asked, folder=tmp_path, fresh=fresh)
    for refused, told in (wrong, True), (again, False):
        assert refused.returncode == 2
        assert "p (my.toml:12): pipelines.p.dedup.mode: must be" in refused.stderr
        assert ("SEQMARK_WORKER__WEB_PORT" in refused.stderr) is told


@either
def test_a_signal_ends_it_and_it_alone(tmp_path: Path, *, fresh: bool) -> None:
    (tmp_path / "my.toml").write_text(CONFIG)
    one, other = (
        forks.start("topics", "-c", "my.toml", folder=tmp_path, stdout=tmp_path / name, fresh=fresh)
        for name in ("one", "other")
    )
    assert one.pid != other.pid
    other.send_signal(signal.SIGSTOP)
    one.kill()
    assert one.wait(30) == -signal.SIGKILL
    assert other.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.01)
    other.kill()
    assert other.wait(30) == -signal.SIGKILL
    assert other.poll() == -signal.SIGKILL
    other.terminate()  # of what has ended: nothing happens


def test_what_is_read_by_the_imports_has_an_interpreter_of_its_own(tmp_path: Path) -> None:
    for variable, forked in (("SEQMARK_FAULT_STEP", True), ("SEQMARK_TEST_PLACE_IDS", False), ("TERM", False)):
        process = forks.start("--help", folder=tmp_path, stdout=tmp_path / "said", env={variable: "1"})
        assert isinstance(process, forks.Fork) is forked, variable
        assert process.wait(30) == 0


def test_and_so_has_what_a_test_has_set_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQMARK_TEST_PLACE_IDS", "100")
    process = forks.start("--help", folder=tmp_path, stdout=tmp_path / "said")
    assert not isinstance(process, forks.Fork)
    assert process.wait(30) == 0
    monkeypatch.undo()
    process = forks.start("--help", folder=tmp_path, stdout=tmp_path / "said")
    assert isinstance(process, forks.Fork)
    assert process.wait(30) == 0
