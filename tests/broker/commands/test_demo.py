"""The demo passes on a broker that is kept, twice, and fails where worker's or Spark's output is wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import psutil
import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.kafka.plain.consumer import read_partition
from spark_sink.reading.read_back import read_rows
from tests.support.kafka.topics import environment, free_port, unique, until
from tests.support.worker import forks

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result
    from playwright.sync_api import Page

    from processor.kafka.plain.consumer import Seen
    from schemas.config import Settings, Sink
    from spark_sink.reading.summary import SummaryRow
    from tests.support.chromium.browser import Chromium, Look
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

WAIT_S = 300.0


def demo(broker: Broker, folder: Path, *more: str) -> Result:
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--directory", str(folder))
    return CliRunner().invoke(main, ["demo", "--records", "20000", "--json", *where, *more])


def test_everything_agrees_and_again_on_the_same_broker(broker: Broker, tmp_path: Path) -> None:
    for _ in range(2):
        ended = demo(broker, tmp_path)
        assert ended.exit_code == 0, ended.stderr
        told = json.loads(ended.stdout)
        assert told["ok"]
        assert told["counts"]["in"] == {"found": 20_000, "truth": 20_000}
        assert told["counts"]["quarantined"]["found"] >= 1
        hours = list(told["hours"].values())
        assert [hour["open"] for hour in hours] == [False] * 5 + [True]
        assert sum(hour["truth"] for hour in hours) == told["counts"]["passed"]["found"]
        assert all(hour["spark"] == hour["truth"] for hour in hours[:5])
        assert all(hour["revenue"]["spark"] == hour["revenue"]["truth"] for hour in hours[:5])
        assert told["aggregate"] == {"rows": 30, "truth": 30, "agree": 30, "late": 0, "bad": 0}
        assert told["certificate"] is True
        assert_explained(told, ended.stderr)
        assert "5 of 5 closed hours agree with the truth, 30 of 30 rows by hour and campaign" in ended.stderr
        assert "1 still open (" in ended.stderr
        assert "certificate: ok, 20,000 records of 4 partitions" in ended.stderr
        assert (tmp_path / "clicks.svg").read_text().startswith("<?xml")
        assert told["report"] == str(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert "It adds up" in page
        assert "Aggregate hourly" in page
        assert len(page.encode()) < 300_000
        # The files of the last run stay, of no other.
        assert [each.name for each in tmp_path.iterdir() if re.fullmatch(r"demo-.{13}", each.name)] == [
            told["files"].split("/")[-2]
        ]
        assert "everything agrees with the truth" in ended.stderr


def page_of_a_worker(told: dict[str, Any], folder: Path, chromium: Chromium) -> Look[str]:
    """Run a worker on the demo's config, search its page for the dropped record, and return all it shows."""
    dropped = "{topic}:{partition}:{offset}".format_map(told["explained"][0]["asked"])

    def act(shown: Page) -> str:
        shown.get_by_role("article", name="pipeline clicks").wait_for(timeout=WAIT_S * 1000)
        shown.locator("#query").fill(dropped)
        shown.locator("#query").press("Enter")
        shown.locator("#story").get_by_text("was dropped").first.wait_for(timeout=WAIT_S * 1000)
        return shown.locator("body").inner_text()

    port = free_port()
    env = {"SEQMARK_WORKER__WEB_PORT": str(port), "SEQMARK_WORKER__STATE_DIR": str(folder / "again")}
    worker = forks.start("worker", "-c", told["config"], folder=folder, stdout=folder / "again.log", env=env)
    try:
        until(lambda: is_ready(port), "the worker is ready", WAIT_S)
        return chromium.look(f"http://127.0.0.1:{port}/", act)
    finally:
        worker.terminate()
        worker.wait(WAIT_S)


def is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def assert_explained(told: dict[str, Any], stderr: str) -> None:
    """A record that was dropped and one that passed are explained, and how to ask is said."""
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


def test_with_ids_everything_agrees_and_receipts_are_shown(
    broker: Broker, tmp_path: Path, chromium: Chromium
) -> None:
    ended = demo(broker, tmp_path, "--mode", "insert-id")
    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert "its page, while it works: http://127.0.0.1:" in ended.stderr
    look = page_of_a_worker(told, tmp_path, chromium)
    assert ".raw → demo-" in look.seen
    assert "{topic}:{partition}:{offset}".format_map(told["explained"][0]["owner"]) in look.seen
    assert look.errors == []
    assert (told["mode"], told["ok"], told["certificate"]) == ("insert-id", True, True)
    assert_explained(told, ended.stderr)
    counts = told["counts"]
    assert counts["in"] == {"found": 20_000, "truth": 20_000}
    assert counts["passed again"]["found"] > 10
    assert counts["dropped: late"]["found"] > 10
    assert counts["quarantined"]["found"] >= 1
    # What passed again is in the clean topic twice, and Spark counts it twice.
    assert told["aggregate"] == {"rows": 30, "truth": 30, "agree": 30, "late": 0, "bad": 0}
    assert len(told["receipts"]) == 6
    for receipt in told["receipts"]:
        assert (receipt["mode"], receipt["verdict"]) == ("insert-id", "duplicate")
        assert receipt["owner"]["offset"] < receipt["offset"]
        assert receipt["expires_at"] > receipt["timestamp"]
        assert receipt["id"][0] in ended.stderr
    assert "certificate: ok, 20,000 records of" in ended.stderr
    assert "It adds up" in (tmp_path / "report.html").read_text()
    assert "everything agrees with the truth" in ended.stderr


def test_with_ids_a_receipt_that_names_another_expiry_is_exit_1_and_named(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hasty(options: Any, topic: str, partition: int) -> list[Seen]:
        records = await read_partition(options, topic, partition)
        if not topic.endswith(".duplicates"):
            return records
        key, value, headers, timestamp_ms, offset = records[0]
        told = json.loads(value or b"")
        told["expires_at"] -= 1
        return [(key, json.dumps(told).encode(), headers, timestamp_ms, offset), *records[1:]]

    monkeypatch.setattr("processor.demo.run.read_partition", hasty)
    ended = demo(broker, tmp_path, "--mode", "insert-id")
    assert ended.exit_code == 1
    differences = json.loads(ended.stdout)["differences"]
    assert len(differences) == 4
    assert all(
        "has a receipt that is not right" in each and "must say {'expires_at'" in each for each in differences
    )


def test_with_fingerprints_what_collided_is_kept_and_said_to_be_what_would_have_been_lost(
    broker: Broker, tmp_path: Path
) -> None:
    ended = demo(broker, tmp_path, "--mode", "fingerprint", "--records", "5000")
    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["mode"], told["ok"], told["certificate"]) == ("fingerprint", True, True)
    assert_explained(told, ended.stderr)
    found = {what: count["found"] for what, count in told["counts"].items()}
    assert found["collisions passed"] == found["notes of collisions"] == found["Spark: events saved"] == 50
    assert 0 < found["Spark: users saved"] < 50
    assert found["Spark: ids"] == found["Spark: events"] == found["passed"]
    assert found["receipts"] == found["dropped: resend"] + found["dropped: tail"] + found["dropped: late"] > 240
    assert [note["action"] for note in told["collisions"]] == ["rename"] * 2
    assert all(note["new_id"] in ended.stderr for note in told["collisions"])
    assert len(told["receipts"]) == 6
    lost = f"50 of {found['passed']:,} events and {found['Spark: users saved']} of"
    assert f"had collisions been dropped as duplicates, {lost}" in ended.stderr
    assert "kept, although their ids were taken: 50 events" in (tmp_path / "clicks.svg").read_text()
    assert "It adds up" in (tmp_path / "report.html").read_text()


def test_by_verdicts_spark_aggregates_without_a_clean_topic_and_the_bytes_saved_are_shown(
    broker: Broker, tmp_path: Path
) -> None:
    ended = demo(broker, tmp_path, "--mode", "verdicts", "--records", "5000")
    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["mode"], told["ok"], told["certificate"]) == ("verdicts", True, True)
    found = {what: count["found"] for what, count in told["counts"].items()}
    assert found["in"] == 5_000
    assert found["passed"] == found["in the source without what verdicts skip"] > 4_700
    assert found["in a clean topic written afterwards"] == found["passed"]
    assert told["aggregate"] == {"rows": 30, "truth": 30, "agree": 30, "late": 0, "bad": 0}
    assert 0 < 20 * told["bytes"]["verdicts"] < told["bytes"]["clean"]
    assert f"{told['bytes']['clean'] - told['bytes']['verdicts']:,}" in ended.stderr
    config = (tmp_path / "demo.toml").read_text()
    assert "sink = " not in config
    assert config.count("verdicts = ") == 2
    assert "It adds up" in (tmp_path / "report.html").read_text()


def test_one_record_lost_is_exit_1_and_named(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lossy(options: Any, topic: str, partition: int) -> list[Seen]:
        records = await read_partition(options, topic, partition)
        return records[:100] + records[101:] if topic.endswith(".clean") else records

    def rounding(settings: Settings, sink: Sink) -> list[SummaryRow]:
        first, *rows = read_rows(settings, sink)
        events, revenue = first.values
        assert isinstance(revenue, Decimal)
        return [replace(first, values=(events, revenue + Decimal("0.01"))), *rows]

    monkeypatch.setattr("processor.demo.run.read_partition", lossy)
    monkeypatch.setattr("processor.demo.sinks.read_rows", rounding)
    ended = demo(broker, tmp_path)
    assert ended.exit_code == 1
    told = json.loads(ended.stdout)
    assert not told["ok"]
    lost, rounded = told["differences"][:4], told["differences"][4:]
    assert all("(first) is lost" in difference for difference in lost)
    assert len(rounded) == 1
    assert re.match(r"the aggregate: .* affiliates: .* must be: ", rounded[0])
    assert told["aggregate"]["agree"] == 29


SIGNALS = {
    "while Spark aggregates": (signal.SIGTERM, "to parquet, mode append"),
    "while Spark waits": (signal.SIGINT, "5. the certificate"),
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
