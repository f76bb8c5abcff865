"""`seqmark generate` puts into the topic what its truth says, at the offsets it says."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.config.load import load
from processor.generator import StreamOptions, make_stream
from tests.support.kafka.topics import create_topic, new, produce, read_topic, unique

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.topics import Record

pytestmark = pytest.mark.broker
START = "2026-01-05T06:00"
START_MS = 1_767_592_800_000


class Broker(Protocol):
    """What the fixture of the same name gives."""

    @property
    def bootstrap_servers(self) -> str: ...


class Case:
    """A config with topics of its own, and the commands on it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.topic = unique("generated")
        self.truth = folder / "truth.jsonl"
        self.config = folder / "seqmark.toml"
        self.config.write_text(f"""
            [kafka]
            bootstrap_servers = "{self.bootstrap}"
            [worker]
            application_id = "{self.topic}"
            [[pipelines]]
            name = "clicks"
            source = "{self.topic}"
            sink = "{self.topic}.clean"
            [pipelines.dedup]
            mode = "watermark"
            sequence = {{ from = "header", name = "seq", format = "int64" }}
        """)

    def define(self, dedup: str) -> None:
        """Let the config judge otherwise."""
        written = self.config.read_text()
        self.config.write_text(written[: written.index("mode =")] + dedup)

    def generate(self, *arguments: str) -> Result:
        given = ["generate", "-c", str(self.config), "--truth", str(self.truth), "--start", START]
        return CliRunner().invoke(main, [*given, *arguments])

    def read(self) -> list[Record]:
        return read_topic(self.bootstrap, self.topic, "read_uncommitted")

    def truths(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.truth.read_text().splitlines()]

    def expected(self, options: StreamOptions) -> list[Any]:
        stream = make_stream(load(self.config).pipelines[0].dedup, options)
        return [
            (number, *record) for number, part in enumerate(stream) for record in part.records(0, len(part))
        ]


@pytest.fixture
def case(broker: Broker, tmp_path: Path) -> Case:
    return Case(broker, tmp_path)


def found(records: list[Record]) -> list[Any]:
    return [(r.partition, r.key, r.value, r.headers, r.timestamp) for r in records]


def test_the_truth_names_each_record_where_a_plain_consumer_finds_it(case: Case) -> None:
    arguments = ("--pipeline", "clicks", "--records", "20000", "--seed", "5", "--partitions", "3")
    ended = case.generate(*arguments, "--malformed", "0.001")
    assert ended.exit_code == 0, ended.stderr
    records, truths = case.read(), case.truths()
    options = StreamOptions(20_000, 0.05, 5, 3, START_MS, malformed=0.001)
    assert found(records) == case.expected(options)
    assert [(t["partition"], t["offset"]) for t in truths] == [(r.partition, r.offset) for r in records]
    firsts: set[bytes | None] = set()
    for record, truth in zip(records, truths, strict=True):
        first = record.value not in firsts
        firsts.add(record.value)
        assert (truth["kind"] == "first") == first
        assert truth["passes"] == (first and "quarantine" not in truth)


def test_offsets_are_right_in_a_topic_that_was_not_empty(case: Case) -> None:
    create_topic(case.bootstrap, case.topic, 2)
    produce(case.bootstrap, case.topic, [new(1), new(2), new(3)], partition=1)
    assert case.generate("--records", "1000", "--rate", "5000").exit_code == 0
    truths = case.truths()
    assert {t["partition"] for t in truths} == {0, 1}  # --partitions is for a topic that is made
    assert [t["offset"] for t in truths if t["partition"] == 1] == list(range(3, 503))
    assert found(case.read()[-500:]) == case.expected(StreamOptions(1_000, 0.05, 0, 2, START_MS))[500:]


def test_a_second_stream_in_a_source_is_warned_of_before_it_is_made(case: Case) -> None:
    assert "warning" not in case.generate("--records", "1000").stderr
    again = case.generate("--records", "1000")
    assert again.exit_code == 0
    assert f"warning: {case.topic} holds 1,000 records already" in again.stderr
    assert "nearly all of this one will be late" in again.stderr
    case.define('mode = "insert-id"\nid = [{ from = "key" }, { from = "header", name = "id" }]\nwindow = "1d"')
    assert "Take another --seed" in case.generate("--records", "1000").stderr


def test_a_rate_is_not_exceeded_and_the_result_is_told_to_programs(case: Case) -> None:
    ended = case.generate("--records", "2000", "--rate", "2000", "--duplicates", "0.1", "--json")
    told = json.loads(ended.stdout)
    assert (told["records"], told["duplicates"], told["partitions"]) == (2_000, 200, 4)
    assert told["topic"] == case.topic
    assert told["seconds"] >= 0.8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pipeline", "other"), "there is no pipeline other; in this config: clicks"),
        (("--pipeline", "click"), "there is no pipeline click; did you mean clicks? In this config: clicks"),
        (("--duplicates", "0.95"), "0.95 is not in the range"),
        (("--start", "yesterday"), "is not a time such as"),
    ],
)
def test_a_wrong_command_line_is_refused(case: Case, arguments: tuple[str, ...], said: str) -> None:
    ended = case.generate("--records", "10", *arguments)
    assert ended.exit_code == 2
    assert said in re.sub(r"\s+", " ", ended.stderr)


IDS = """
    mode = "insert-id"
    id = [{ from = "header", name = "id" }, { from = "value", pointer = "/m/id" }]
    window = "90m"
"""


@pytest.mark.parametrize(
    ("more", "arguments", "said"),
    [
        (
            "",
            ("--span", "90m"),
            "no id expires: the window is 90m, the stream covers 90m; --span makes it longer",
        ),
        ("", ("--span", "2h"), ""),
        ('time = "arrival"', (), "the truth holds if it reads all of this within 90m"),
        (
            'backend = "bloom"\nbloom = { bucket = "10m" }',
            (),
            "with Bloom filters windows end to one bucket (10m); the truth is to the millisecond",
        ),
    ],
)
def test_what_a_truth_of_ids_rests_on_is_said(
    case: Case, more: str, arguments: tuple[str, ...], said: str
) -> None:
    case.define(IDS + more)
    ended = case.generate("--records", "100", *arguments)
    assert ended.exit_code == 0
    assert said in ended.stderr
    assert ("no id expires" in ended.stderr) == said.startswith("no id")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--scopes", "5"),
            '--scopes: is for a pipeline with scopes; pipelines.clicks.dedup.mode is "insert-id"',
        ),
        (
            ("--start", "2999-01-01"),
            "--start: the stream would end more than pipelines.clicks.dedup.max_ahead (5m) ahead",
        ),
        (("--collisions", "0.01"), "--collisions: is for a pipeline with pipelines.clicks.dedup.fingerprint"),
        (("--span", "7 moons"), "'7 moons' must be a whole number and a unit"),
        (("--span", "0h"), "'0h' must be longer than 0"),
    ],
)
def test_what_no_truth_of_ids_can_be_told_of_is_refused(
    case: Case, arguments: tuple[str, ...], said: str
) -> None:
    case.define(IDS)
    ended = case.generate("--records", "10", *arguments)
    assert ended.exit_code == 2
    assert said in re.sub(r"\s+", " ", ended.stderr)
