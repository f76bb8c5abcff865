"""What ``seqmark aggregate`` says in a log holds also for what was written aside after the last batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.commands.spark import aggregate
from processor.commands.spark.aggregate import _line, _SinkTerminal
from spark_sink.query.progress import Totals, read_progress

if TYPE_CHECKING:
    import pytest

BATCH = read_progress('{"name": "hourly", "batchId": 0, "numInputRows": 138}')


def test_a_line_follows_when_something_was_written_aside_and_none_when_nothing_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "_LINE_S", 0.0)
    totals = {"hourly": Totals(batches=1, rows=138, last=BATCH)}
    terminal = _SinkTerminal()

    terminal.progress(totals)
    totals["hourly"].bad = 38
    for _ in range(3):
        terminal.progress(totals)

    first, last = capsys.readouterr().err.splitlines()
    assert "138 records read, 0 late and 0 bad written aside" in first
    assert "138 records read, 0 late and 38 bad written aside" in last


def test_the_last_line_says_what_is_written_aside_at_the_next_start() -> None:
    assert "0 late and 0 bad written aside, those of 1 batch at the next start" in _line(
        Totals(batches=1, rows=138, left=1, last=BATCH)
    )
    assert _line(Totals(bad=38)) == "0 batches, 0 records read, 0 late and 38 bad written aside"
