"""`seqmark explain` by id, key and field tells of every record that has it, and disturbs nobody."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from processor.config.load import load
from processor.inspection.explain.lookup.log import LogReader
from processor.inspection.explain.lookup.marked import MarkLookup
from processor.inspection.timeline.run import connected
from tests.support.kafka.topics import New, bounds, delete_records, group_offsets
from tests.support.verify.certificate import certificate
from tests.support.worker import forks
from tests.support.worker.process import Worker, WorkerConfig, new_config, produce, run_drain, start_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000) - 100_000
IDS: dict[str, Any] = {"mode": "insert-id", "id": [{"from": "value", "pointer": "/id"}], "window": "10s"}
PARTITIONS = 2


def of(name: str, after_ms: int, more: str = "", key: bytes = b"k") -> New:
    return New(key, b'{"id": %s, "more": "%s"}' % (name.encode(), more.encode()), (), NOW_MS + after_ms)


STREAM = {
    0: [
        of('"a"', 0),
        of('"a"', 1),
        of('"a"', 2, "other"),
        of("17", 3),
        of('"17"', 4),
        New(b"k", b'{"id": null}', (), NOW_MS + 5),
        of('"b"', 11_000, key=b"other"),
        of('"a"', 11_001),
    ],
    1: [of('"a"', 10)],
}
"""By partition; the last one comes behind what the worker has taken in."""


@dataclass(frozen=True)
class Told:
    """What `--json` said."""

    code: int
    records: list[dict[str, Any]]
    last: dict[str, Any]
    stderr: str

    @property
    def clauses(self) -> list[str]:
        """What became of each record, with short names of topics."""
        return [
            f"{each['source']['partition']}:{each['source']['offset']} {_short(each['clause'])}"
            for each in self.records
        ]


def _short(text: str) -> str:
    words = (
        word.rpartition(".")[2] if word.startswith("t") and "." in word else word for word in text.split(" ")
    )
    return " ".join(words)


def explain(config: WorkerConfig, *words: str) -> Told:
    ended = forks.inside("explain", "-c", str(config.write()), "--json", *words, folder=config.folder)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines, ended.stderr
    return Told(ended.returncode, lines[:-1], lines[-1], ended.stderr)


@pytest.fixture(scope="module")
def judged(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Return a config whose stream is judged, but for the last record of partition 1."""
    config = new_config(broker.bootstrap_servers, tmp_path_factory.mktemp("line"), PARTITIONS, slots=1)
    config = config.with_duplicates().with_quarantine()
    (pipeline,) = config.pipelines
    config = replace(config, pipelines=(replace(pipeline, dedup=IDS),))
    produce(config.bootstrap_servers, config.source, STREAM[0])
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    produce(config.bootstrap_servers, config.source, STREAM[1], partition=1)
    return config


def test_a_time_line_has_every_record_with_an_id_and_what_became_of_it(judged: WorkerConfig) -> None:
    told = explain(judged, "--id", "a")

    assert told.clauses == [
        "0:0 passed, clean 0:0",
        "0:1 duplicate of it, same bytes",
        "0:2 duplicate of it, differs in /more",
        "1:0 not judged yet",
        "0:7 passed, clean 0:4",
    ]
    assert told.code == 0
    assert told.last["seen"] == {
        judged.source: 5,
        judged.sink: 2,
        judged.duplicates: 2,
        judged.quarantine: 0,
    }


def test_a_time_line_finds_its_records_by_the_marks(judged: WorkerConfig) -> None:
    settings = load(judged.write())

    async def frames() -> int:
        async with connected(settings) as client:
            lookup = MarkLookup(client, LogReader(client), settings)
            return len(await lookup.around(settings.pipelines[0], 0, 3))

    assert asyncio.run(frames()) > 0


def test_strings_and_numbers_differ_and_a_word_may_mean_both(judged: WorkerConfig) -> None:
    both, number, string = (explain(judged, "--id", word) for word in ("17", "json:17", '"17"'))

    assert both.clauses == ["0:3 passed, clean 0:1", "0:4 passed, clean 0:2"]
    assert (number.clauses, string.clauses) == (both.clauses[:1], both.clauses[1:])
    assert (both.last["ambiguous"], number.last["ambiguous"]) == (True, False)


def test_by_key_and_by_field_the_same_records_are_found(judged: WorkerConfig) -> None:
    by_field = explain(judged, "--json-field", "/id=a", "--json-field", "/more=other")
    by_key = explain(judged, "--key", "other")

    assert by_field.clauses == ["0:2 duplicate of " + _place(judged, 0, 0) + ", differs in /more"]
    assert by_key.clauses == ["0:6 passed, clean 0:3"]
    assert explain(judged, "--key", "base64:b3RoZXI=").clauses == by_key.clauses
    (quarantined,) = [each for each in explain(judged, "--key", "k").clauses if "quarantined" in each]
    assert quarantined == "0:5 quarantined: field_type, quarantine 0:0"


def _place(config: WorkerConfig, partition: int, offset: int) -> str:
    return f"{config.source.rpartition('.')[2]} {partition}:{offset}"


def test_what_nothing_has_is_said_with_since_when(judged: WorkerConfig) -> None:
    told = explain(judged, "--id", "nobody")

    assert (told.code, told.records) == (1, [])
    assert told.last["since"] == [
        {"partition": 0, "offset": 0, "timestamp": NOW_MS},
        {"partition": 1, "offset": 0, "timestamp": NOW_MS + 10},
    ]
    ended = forks.inside("explain", "-c", str(judged.write()), "--id", "nobody", folder=judged.folder)
    assert "id nobody: nothing that is retained has it; looked at" in ended.stdout
    assert "of the source since" in ended.stdout


def test_people_read_a_line_per_record(judged: WorkerConfig) -> None:
    ended = forks.inside("explain", "-c", str(judged.write()), "--id", "a", folder=judged.folder)
    text = ended.stdout.replace(judged.source.removesuffix(".raw"), "events")

    state, *records, certificate, looked = text.splitlines()
    assert state.startswith("the state of partition 0 holds it, by events.raw 0:7; it passes again from ")
    assert state.endswith(" (changelog)")
    assert [line.split("  ")[1] for line in records[:3]] == [
        "events.raw 0:0 passed, events.clean 0:0",
        "events.raw 0:1 duplicate of it, same bytes",
        "events.raw 0:2 duplicate of it, differs in /more",
    ]
    assert certificate == "certificate: no certificate on this machine"
    assert looked.startswith("id a: 5 records; looked at 17 records, of the source since ")


def test_bounds_in_time_and_a_limit_leave_the_rest_out(judged: WorkerConfig) -> None:
    def when(after_ms: int) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((NOW_MS + after_ms) / 1000 + 1))

    late = explain(judged, "--id", "a", "--from", when(5_000))
    few = explain(judged, "--id", "a", "--limit", "1")

    assert late.clauses == ["0:7 passed, clean 0:4"]
    assert [each.split()[0] for each in few.clauses] == ["0:0", "0:7"]
    assert few.last["left_out"] == 3


def test_without_a_worker_the_changelog_says_what_the_state_holds(judged: WorkerConfig) -> None:
    before = group_offsets(judged.bootstrap_servers, judged.application_id)
    told = explain(judged, "--id", "a")

    state, nothing = told.last["state"]
    assert (state["partition"], state["from"], nothing["remembered"]) == (0, "changelog", [])
    owner = {"topic": judged.source, "partition": 0, "offset": 7}
    reading = NOW_MS + 11_001
    expected = {"owner": owner, "reading": reading, "expires_at": reading + 10_000, "as": ["string"]}
    assert state["remembered"] == [expected]
    assert explain(judged, "--id", "json:17").last["state"][0]["remembered"] == [], "expired"
    assert group_offsets(judged.bootstrap_servers, judged.application_id) == before


@pytest.fixture
def running(judged: WorkerConfig) -> Iterator[tuple[WorkerConfig, Worker]]:
    """Return a worker that has nothing to do but in partition 1, and its config, which names no port of it."""
    with start_worker(judged) as worker:
        worker.wait_ready()
        yield judged, worker


def test_a_copy_too_many_in_the_clean_topic_is_told_of(judged: WorkerConfig, tmp_path: Path) -> None:
    config = new_config(judged.bootstrap_servers, tmp_path).with_duplicates()
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=IDS),))
    produce(config.bootstrap_servers, config.source, [of('"a"', 0), of('"a"', 1, "other"), of('"b"', 2)])
    assert run_drain(config).code == 0
    produce(config.bootstrap_servers, config.sink, [of('"a"', 0)])
    end = bounds(config.bootstrap_servers, config.sink, 0)[1]

    told = explain(config, "--id", "a")

    assert told.code == 3
    (more,) = [each for each in told.records if each["outcome"] == "contradiction"]
    assert more["asked"]["offset"] == end - 1
    assert "stands there once more than its record passed" in more["clause"]
    assert explain(config, "--id", "b").code == 0


def test_a_live_worker_is_asked_first_and_goes_on(running: tuple[WorkerConfig, Worker]) -> None:
    config, worker = running
    told = explain(config, "--id", "a")

    assert {each["from"] for each in told.last["state"]} == {f"http://127.0.0.1:{worker.web_port}"}
    assert len(told.last["state"][0]["remembered"]) == 1
    assert worker.alive
    assert worker.get("/ready")[0] == 200


def test_the_last_certificate_is_said_of_each_record(judged: WorkerConfig) -> None:
    assert {each["certificate"] for each in explain(judged, "--id", "b").records} == {
        "no certificate on this machine"
    }

    assert certificate(judged).code == 0

    (one,) = explain(judged, "--id", "b").records
    assert one["certificate"].startswith("covered by that of ")


def test_of_what_retention_has_removed_the_outputs_still_tell(judged: WorkerConfig) -> None:
    delete_records(judged.bootstrap_servers, judged.source, 6)
    assert bounds(judged.bootstrap_servers, judged.source, 0)[0] == 6

    told = explain(judged, "--id", "a")

    first, *others = told.records
    assert (first["asked"]["topic"], first["source"]) == (judged.sink, None)
    assert first["clause"] == "passed; its record in the source is not retained any more"
    first, second, of_the_other_partition, last = (each["outcome"] for each in others)
    assert (first, second, last) == ("duplicate", "duplicate", "passed")
    assert of_the_other_partition in {"pending", "passed"}, "as the tests before have left it"
    assert told.code == 0
