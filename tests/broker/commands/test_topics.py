"""A real broker gets the topics that were planned, and keeps those that it has."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from click.testing import CliRunner

from processor.commands.cli import main
from processor.errors import StopError
from processor.kafka.protocol.requests import DescribeTransactionsRequest
from processor.kafka.topics import ensure as topics_ensure
from processor.kafka.topics.ensure import UnreachableError, connected, describe, ensure
from processor.kafka.topics.plan import TopicState
from schemas.config import Kafka, Settings

if TYPE_CHECKING:
    from click.testing import Result

    from processor.kafka.topics.plan import ClusterView

pytestmark = pytest.mark.broker
EXAMPLE = Path(__file__).parents[3] / "examples" / "clicks.toml"
DAY_MS = 86_400_000
LATE_S = 1.5
"""Longer than a topic is waited for that somebody else may be making."""


class Broker(Protocol):
    """What the fixture of the same name gives."""

    @property
    def bootstrap_servers(self) -> str: ...


class Case:
    """A config with topics of its own, by the command line's and by Python's way."""

    def __init__(self, broker: Broker) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.names = {role: f"{self.id}.{role}" for role in ("source", "sink", "duplicates", "quarantine")}
        self.changelog = f"{self.id}-clicks-changelog"
        self.env = {
            "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "SEQMARK_WORKER__APPLICATION_ID": self.id,
        } | {f"SEQMARK_PIPELINES__0__{role.upper()}": name for role, name in self.names.items()}
        raw = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
        raw["kafka"]["bootstrap_servers"] = broker.bootstrap_servers
        raw["worker"]["application_id"] = self.id
        raw["pipelines"][0] |= self.names
        self.settings = Settings.model_validate(raw)

    def make(self, role: str, partitions: int = 3, **configs: str) -> None:
        """Create a topic as somebody else would."""
        name = self.changelog if role == "changelog" else self.names[role]
        given = {key.replace("_", "."): value for key, value in configs.items()}

        async def create() -> None:
            async with connected(self.settings.kafka) as admin:
                answer = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=given)])
                assert answer.topic_errors[0][1] == 0, answer
                while name not in await describe(admin, [name]):  # noqa: ASYNC110 - the broker's doing
                    await asyncio.sleep(0.01)

        asyncio.run(create())

    def cluster(self) -> ClusterView:
        async def look() -> ClusterView:
            async with connected(self.settings.kafka) as admin:
                return await describe(admin, [*self.names.values(), self.changelog])

        return asyncio.run(look())

    def seqmark(self, *words: str, **env: str) -> Result:
        return CliRunner().invoke(main, [*words, "-c", str(EXAMPLE)], env=self.env | env)

    def states(self, result: Result) -> dict[str, str]:
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        return {line["purpose"]: line["state"] for line in lines if "state" in line}


@pytest.fixture
def case(broker: Broker) -> Case:
    return Case(broker)


def test_topics_creates_what_is_missing_like_the_source(case: Case) -> None:
    case.make("source", 5, max_message_bytes="2000000", retention_ms="3600000")
    result = case.seqmark("topics", "--json")
    assert (result.exit_code, set(case.states(result).values())) == (0, {"exists", "created"})
    made = case.cluster()
    assert {view.partitions for view in made.values()} == {5}
    assert made[case.names["sink"]].configs["retention.ms"] == "3600000"
    for role in ("duplicates", "quarantine"):
        assert made[case.names[role]].configs["max.message.bytes"] == str(2_000_000 + 65_536)
    assert made[case.changelog].configs["cleanup.policy"] == "compact"


def test_a_second_run_finds_everything_right_and_changes_nothing(case: Case) -> None:
    case.make("source")
    case.seqmark("topics")
    before = case.cluster()
    result = case.seqmark("topics", "--json")
    assert (result.exit_code, set(case.states(result).values())) == (0, {"exists"})
    assert case.cluster() == before
    assert "the config and its topics are right" in case.seqmark("check").stderr


def test_a_broker_that_does_not_tell_how_transactions_stand_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As every broker before 3.0 does: it knows no such request, and says so when it is connected to.
    monkeypatch.setattr(DescribeTransactionsRequest, "API_KEY", 999)
    case.make("source")

    refused = [case.seqmark(command) for command in ("check", "topics")]

    assert [result.exit_code for result in refused] == [1, 1]
    assert all("needs Kafka 3.0 or newer" in result.stderr for result in refused)
    assert case.seqmark("check", SEQMARK_WORKER__GUARANTEE="at_least_once").exit_code == 0


def test_topics_of_marks_that_a_broker_hears_of_late_are_not_called_missing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.make("source")
    index, seen = f"{case.id}-clicks-index", list[float]()

    async def late(*arguments: Any) -> ClusterView:
        view = dict(await describe(*arguments))
        if index in view:
            seen.append(time.monotonic())
            if seen[-1] - seen[0] < LATE_S:
                del view[index]
        return view

    monkeypatch.setattr(topics_ensure, "describe", late)
    result = case.seqmark("topics", "--json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert case.states(result)["index"] == "created"


def test_workers_that_start_at_once_create_each_topic_once(case: Case) -> None:
    case.make("source")

    async def together() -> list[Any]:
        return await asyncio.gather(*(ensure(case.settings, create=True) for _ in range(4)))

    reports = asyncio.run(together())
    created = [
        topic.topic for each in reports for topic in each.topics if each.state(topic) is TopicState.CREATED
    ]
    assert sorted(created) == sorted(set(created))
    assert len(created) == 5
    for report in reports:
        report.require()


def test_what_exists_is_named_where_it_is_wrong_and_never_altered(case: Case) -> None:
    case.make("source", 3)
    case.make("sink", 2)
    case.make("quarantine", 3, message_timestamp_type="LogAppendTime")
    case.make("changelog", 3, cleanup_policy="delete")
    before = case.cluster()
    result = case.seqmark("topics", "--json")
    assert result.exit_code == 1
    assert case.states(result) == {
        "source": "exists",
        "sink": "wrong",
        "duplicates": "created",
        "quarantine": "wrong",
        "changelog": "wrong",
        "index": "created",
    }
    now = case.cluster()
    assert {name: now[name] for name in before} == before
    problems = case.seqmark("check", "--json").stdout
    for said in ("has 2 partitions", "must be CreateTime", "must be compact"):
        assert said in problems


def test_looking_creates_nothing(case: Case) -> None:
    case.make("source")
    result = case.seqmark("check")
    assert result.exit_code == 0
    assert "the worker will create it with 3 partitions" in result.stdout
    assert set(case.cluster()) == {case.names["source"]}


def test_missing_topics_are_problems_where_the_worker_may_not_create_them(case: Case) -> None:
    case.make("source")
    result = case.seqmark("check", SEQMARK_WORKER__CREATE_TOPICS="false")
    assert result.exit_code == 1
    assert f"{case.changelog}: changelog of pipeline clicks does not exist" in result.stderr
    report = asyncio.run(ensure(case.settings, create=False))
    with pytest.raises(StopError, match="seqmark topics"):
        report.require()


@pytest.mark.parametrize("command", ["check", "topics"])
def test_a_missing_source_is_a_problem(case: Case, command: str) -> None:
    near = case.names["near"] = f"{case.names['source']}s"
    case.make("near")
    result = case.seqmark(command)
    assert result.exit_code == 1
    missing = f"{case.names['source']}: the source of pipeline clicks does not exist: create it first, or did"
    assert missing in result.stderr
    assert near in result.stderr.partition(missing)[2].partition("?")[0]


def test_the_sink_takes_what_a_source_without_limits_took(case: Case) -> None:
    case.make("source", 1, message_timestamp_after_max_ms=str(2**63 - 1))
    case.seqmark("topics")
    ahead_ms = int(time.time() * 1000) + 2 * DAY_MS

    async def produce() -> int:
        servers = case.settings.kafka.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            sent = await producer.send_and_wait(case.names["sink"], b"{}", partition=0, timestamp_ms=ahead_ms)
            return int(sent.offset)

    assert asyncio.run(produce()) == 0


def test_a_refused_creation_says_which_topic_and_why(case: Case) -> None:
    # Kafka refuses names that differ in . and _ only: they would share a metric.
    case.make("source")
    twin = case.names["source"].replace(".", "_")
    result = case.seqmark("topics", SEQMARK_PIPELINES__0__SINK=twin)
    assert result.exit_code == 1
    assert f"{twin}: " in result.stderr
    assert "collides" in result.stderr


def test_a_wrong_protocol_is_told_from_a_broker_that_is_away(broker: Broker) -> None:
    async def connect(kafka: Kafka) -> None:
        async with connected(kafka):
            pytest.fail("connected")

    other = Kafka(bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL")
    with pytest.raises(StopError, match="security_protocol") as caught:
        asyncio.run(connect(other))
    assert not isinstance(caught.value, UnreachableError)
    with pytest.raises(UnreachableError, match=r"no broker at 127\.0\.0\.1:9"):
        asyncio.run(connect(Kafka(bootstrap_servers="127.0.0.1:9")))
