"""The demo passes in each mode, and fails where worker's or Spark's output is wrong; a run draws the mode.

That each comparison notices each fault is asked in `tests/unit/demo`.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from processor.commands.cli import main
from processor.demo.script import DemoScript
from processor.kafka.plain.consumer import read_partition
from tests.support.kafka.topics import environment, unique, until

if TYPE_CHECKING:
    from click.testing import Result

    from processor.kafka.plain.consumer import Seen
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

WAIT_S = 300.0
ALL_AGREE = {"rows": 30, "truth": 30, "agree": 30}


def demo(broker: Broker, folder: Path, *more: str) -> Result:
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--directory", str(folder))
    return CliRunner().invoke(main, ["demo", "--records", "20000", "--json", *where, *more])


class Run(NamedTuple):
    """A demo that has passed."""

    folder: Path
    told: dict[str, Any]
    stderr: str

    @property
    def found(self) -> dict[str, int]:
        """What it has counted."""
        return {what: count["found"] for what, count in self.told["counts"].items()}


def by_sequences(run: Run) -> None:
    told = run.told
    assert told["aggregate"] == ALL_AGREE
    assert "30 of 30 rows of closed hours agree with the truth" in run.stderr
    assert "its page, while it works: http://127.0.0.1:" in run.stderr
    page = (run.folder / "report.html").read_text()
    assert "Aggregate hourly" in page
    assert len(page.encode()) < 300_000


def by_ids(run: Run) -> None:
    assert run.found["kept: late"] > 10
    assert run.found["dropped: late"] > 10
    # What passed again is in the clean topic twice, and Spark counts it twice.
    assert run.told["aggregate"] == ALL_AGREE
    assert "was dropped" in run.stderr


def by_fingerprints(run: Run) -> None:
    found = run.found
    assert found["kept: collision"] == found["noted: collision"] == 50
    assert found["dropped: resend"] + found["dropped: tail"] + found["dropped: late"] > 240
    kept = sum(count for what, count in found.items() if what.startswith("kept: "))
    lost = f"50 of {kept:,} events would have been lost"
    assert f"had collisions been dropped as duplicates, {lost}" in run.stderr


def by_verdicts(run: Run) -> None:
    told, found = run.told, run.found
    assert found["kept: first"] > 4_700
    assert told["aggregate"] == ALL_AGREE
    assert 0 < 20 * told["bytes"]["verdicts"] < told["bytes"]["clean"]
    assert f"{told['bytes']['verdicts']:,}" in run.stderr
    config = (run.folder / "demo.toml").read_text()
    assert "sink = " not in config
    assert config.count("verdicts = ") == 2


MODES = {
    "watermark": (by_sequences, 20_000),
    "insert-id": (by_ids, 20_000),
    "fingerprint": (by_fingerprints, 5_000),
    "verdicts": (by_verdicts, 5_000),
}


@pytest.mark.drawn("mode")
@pytest.mark.parametrize("mode", MODES)
def test_everything_agrees_and_what_is_saved_is_said(broker: Broker, tmp_path: Path, mode: str) -> None:
    look, records = MODES[mode]
    ended = demo(broker, tmp_path, "--mode", mode, "--records", str(records))
    assert ended.exit_code == 0, ended.stderr
    run = Run(tmp_path, json.loads(ended.stdout), ended.stderr)
    assert (run.told["mode"], run.told["ok"], run.told["certificate"]) == (mode, True, True)
    assert run.told["counts"]["in"] == {"found": records, "truth": records}
    if mode != "verdicts":
        assert_explained(run)
    assert "certificate: ok, " in run.stderr
    assert run.stderr.endswith("everything agrees with the truth\n")
    assert run.told["report"] == str(tmp_path / "report.html")
    assert "It adds up" in (tmp_path / "report.html").read_text()
    look(run)


def assert_explained(run: Run) -> None:
    """A record that was dropped and one that passed are explained, and how to ask is said."""
    told, stderr = run.told, run.stderr
    dropped, passed = told["explained"]
    assert dropped["outcome"] in {"duplicate", "late"}
    assert dropped["owner"]["offset"] < dropped["asked"]["offset"]
    assert passed["outcome"] == "passed"
    assert passed["clean"]["topic"].endswith(".clean")
    for each in (dropped, passed):
        place = "{topic}:{partition}:{offset}".format_map(each["asked"])
        assert f"$ seqmark explain -c {told['config']} {place}" in stderr
        assert each["sentence"] in stderr
        assert each["certificate"].startswith("covered by that of ")


def test_again_on_the_same_broker_what_is_wrong_is_exit_1_and_named_and_all_else_agrees(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lossy(options: Any, topic: str, partition: int) -> list[Seen]:
        records = await read_partition(options, topic, partition)
        return records[:100] + records[101:] if topic.endswith(".clean") else records

    run = DemoScript.run

    def rounding(self: DemoScript, command: str, *arguments: object, **more: Any) -> tuple[int, str]:
        ended = run(self, command, *arguments, **more)
        if command == "aggregate":
            path = min((tmp_path / Path(self.settings.aggregates[0].checkpoint).parent).rglob("*.parquet"))
            table = parquet.read_table(path)
            first = table.column_names.index("revenue")
            spent = [each + Decimal("0.01") * (at == 0) for at, each in enumerate(table["revenue"].to_pylist())]
            (path.parent / f".{path.name}.crc").unlink()  # which Spark would refuse the file for
            parquet.write_table(
                table.set_column(first, "revenue", pa.array(spent, table["revenue"].type)),
                path,
                use_deprecated_int96_timestamps=True,  # as Spark writes them
            )
        return ended

    (tmp_path / "demo-050607-0a1b2c").mkdir()
    monkeypatch.setattr("processor.demo.script.read_partition", lossy)
    monkeypatch.setattr(DemoScript, "run", rounding)
    ended = demo(broker, tmp_path)
    assert ended.exit_code == 1
    assert ended.stderr.endswith("not everything agrees with the truth\n")
    told = json.loads(ended.stdout)
    assert not told["ok"]
    *lost, rounded = told["differences"]
    assert sum("of the clean topic is not what must be there" in difference for difference in lost) == 4
    assert re.match(r"the aggregate: .*; must be: ", rounded)
    assert told["aggregate"]["agree"] == 29
    # The files of the last run stay, of no other.
    runs = [each.name for each in tmp_path.iterdir() if re.fullmatch(r"demo-.{13}", each.name)]
    assert runs == [told["files"].split("/")[-2]]


SIGNALS = {
    "while Spark aggregates": (signal.SIGTERM, "to parquet, mode append"),
    "while another command runs": (signal.SIGINT, "5. the certificate"),
}


@pytest.mark.drawn("when")
@pytest.mark.parametrize("when", SIGNALS)
def test_a_signal_ends_it_with_exit_1_and_leaves_no_process(broker: Broker, tmp_path: Path, when: str) -> None:
    number, moment = SIGNALS[when]
    mark, log = unique("run"), tmp_path / "log"
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--directory", str(tmp_path))
    with log.open("wb") as told:
        running = subprocess.Popen(
            [sys.executable, "-m", "processor", "demo", "--records", "20000", *where],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            env=environment({"SEQMARK_TEST_DEMO": mark}),
        )
    try:
        until(lambda: moment in log.read_text() or running.poll() is not None, moment, WAIT_S)
        running.send_signal(number)
        assert running.wait(WAIT_S) == 1, log.read_text()
    finally:
        running.kill()
        running.wait(WAIT_S)
    assert "Traceback" not in log.read_text()
    assert "everything agrees" not in log.read_text()
    # The JVM ends when Python's end of its standard input is closed, a moment later.
    until(lambda: not of_run(mark), "no process is left", WAIT_S)


def of_run(mark: str) -> list[str]:
    """Return the command lines of all processes of a run, children of children included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SEQMARK_TEST_DEMO") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
