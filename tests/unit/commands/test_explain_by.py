"""`seqmark explain` refuses what asks for nothing, before it looks for a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[worker]
application_id = "app"
[[pipelines]]
name = "clicks"
source = "clicks.raw"
sink = "clicks.clean"
[pipelines.dedup]
mode = "watermark"
sequence = { from = "header", name = "seq", format = "int64" }
[[pipelines]]
name = "events"
source = "events.raw"
sink = "events.clean"
[pipelines.dedup]
mode = "insert-id"
id = [{ from = "value", pointer = "/a" }, { from = "key" }]
window = "7d"
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name one of: TOPIC:PARTITION:OFFSET, --id, --key, --json-field"),
        (["--id", "a", "--key", "k"], "name one of"),
        (["clicks.raw:0:1", "--key", "k"], "name one of"),
        (["--id", "a"], "have 2 parts, and 1 were given"),
        (["--id", "a", "--id", "base64:%"], "no base64"),
        (["--pipeline", "clicks", "--id", "a"], "judges by sequences and knows no ids"),
        (["--pipeline", "click", "--id", "a"], "did you mean clicks"),
        (["--key", "base64:%"], "no base64"),
        (["--json-field", "/a"], "is written /POINTER=VALUE"),
        (["--json-field", "a=1"], "--json-field"),
        (["--key", "k", "--from", "yesterday"], "is no time such as"),
        (["--key", "k", "--limit", "0"], "--limit"),
    ],
)
def test_what_asks_for_nothing_is_refused_with_2(tmp_path: Path, words: list[str], said: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(CONFIG)

    done = CliRunner().invoke(main, ["explain", "-c", str(path), *words])

    assert done.exit_code == 2
    assert said in done.stderr
    assert not done.stdout
