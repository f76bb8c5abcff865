"""A file that cannot be written is said in a line, before any work where that can be known."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.commands.files import replace_text
from processor.errors import StopError

CLICKS = str(Path(__file__).parents[3] / "examples" / "clicks.toml")
NOBODY = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"}


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    replace_text(path, "old")
    replace_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file/page.html", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("gone/page.html", "No such file"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_with_why(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StopError, match=rf"{name} cannot be written: {why}"):
        replace_text(tmp_path / name, "text")


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "-c", CLICKS, "--records", "1", "--truth", "file/truth.jsonl"],
        ["demo", "--records", "1000", "--directory", "file/demo"],
    ],
    ids=["generate", "demo"],
)
def test_no_stream_is_made_whose_truth_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, command, env=NOBODY)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"seqmark: {command[-1]} cannot be written: Not a directory\n"
