"""From a topic that nobody has described to a proven clean one, with a config that `seqmark init` wrote."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import (
    create_topic,
    group_offsets,
    open_transaction,
    produce_transaction,
    unique,
)
from tests.support.worker.forks import run
from tests.support.worker.process import New, new, produce, read_topic
from tests.unit.inspection.proposal.topics import uuids

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
START_MS = 1_767_592_800_000  # 2026-01-05T06:00:00Z
EVENTS, COPIES = 120, 6
"""Per partition."""


@dataclass(frozen=True)
class Scene:
    """A topic, and the config that was written for it."""

    bootstrap: str
    topic: str
    config: Path
    told: Result

    def seqmark(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, [command, "-c", str(self.config), *arguments])

    def read(self, kind: str) -> list[dict[str, Any]]:
        done = self.seqmark("read", f"{self.topic.removesuffix('.raw')}.{kind}", "--json")
        assert done.exit_code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def init(bootstrap: str, topic: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", "--bootstrap", bootstrap, "--topic", topic, *arguments])


@pytest.fixture(scope="module")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Give a topic of events with ids in their JSON, two partitions, some sent again, one that is no JSON."""
    folder = tmp_path_factory.mktemp("init")
    bootstrap, topic = broker.bootstrap_servers, unique("shop") + ".raw"
    create_topic(bootstrap, topic, 2)
    for partition in range(2):
        make = uuids(partition)
        events = [{"event_id": make(), "user_id": n % 7, "n": n} for n in range(EVENTS)]
        sent = [
            New(b"u%d" % (n % 7), json.dumps(event).encode(), (), START_MS + 1000 * n)
            for n, event in enumerate(events)
        ]
        again = [each._replace(timestamp=each.timestamp + 5000) for each in sent[-COPIES:]]
        bad = [New(b"u", b"no JSON", (), START_MS)]
        produce(bootstrap, topic, sent + again + bad, partition=partition, codec="zstd")
    config = folder / "my.toml"
    told = init(bootstrap, topic, "-o", str(config))
    return Scene(bootstrap, topic, config, told)


def test_a_stranger_comes_from_a_topic_to_a_proof(scene: Scene) -> None:
    assert scene.told.exit_code == 0, scene.told.stderr
    for said in (
        "the rule that loses nothing",
        "mode = 'insert-id': /event_id is in",
        "copies came up to 5 s after",
    ):
        assert (said in scene.told.stdout, said in scene.told.stderr) == (True, False)
    for said in ("next: seqmark check",):
        assert (said in scene.told.stdout, said in scene.told.stderr) == (False, True)
    assert "no JSON" in scene.told.stderr

    checked = scene.seqmark("check")
    assert (checked.exit_code, "the config and its topics are right" in checked.stderr) == (0, True), (
        checked.stderr
    )
    worker = run("worker", "-c", str(scene.config), "--drain", folder=scene.config.parent,
                 env={"SEQMARK_WORKER__WEB_PORT": "0"})  # fmt: skip
    assert worker.returncode == 0, worker.stderr

    clean, dropped, bad = (scene.read(kind) for kind in ("clean", "duplicates", "quarantine"))
    assert (len(clean), len(dropped), len(bad)) == (2 * EVENTS, 2 * COPIES, 2)
    assert len({json.loads(each["value"])["event_id"] for each in clean}) == 2 * EVENTS
    proved = scene.seqmark("verify", "--json")
    assert (proved.exit_code, json.loads(proved.stdout.splitlines()[-1])["ok"]) == (0, True)

    lines = scene.seqmark("read", scene.topic.replace(".raw", ".duplicates")).stdout.splitlines()
    owner = f"{scene.topic}:0:{EVENTS - COPIES}"
    assert f"dropped: duplicate of {owner}, which passed; its id passes again from 2026-01-06T06:" in lines[0]


def test_looking_writes_nothing_into_kafka(scene: Scene) -> None:
    before = len(read_topic(scene.bootstrap, scene.topic))

    told = init(scene.bootstrap, scene.topic, "--json")

    assert told.exit_code == 0, told.stderr
    assert len(read_topic(scene.bootstrap, scene.topic)) == before
    assert not group_offsets(scene.bootstrap, "init")


def test_programs_get_the_proposal_and_the_config(scene: Scene) -> None:
    (line,) = init(scene.bootstrap, scene.topic, "--json").stdout.splitlines()

    told = json.loads(line)

    assert told["dedup"] == {
        "mode": "insert-id",
        "id": [{"from": "value", "pointer": "/event_id"}],
        "window": "1d",
    }
    assert (told["partitions"], told["records"], told["output"]) == (2, 2 * (EVENTS + COPIES + 1), None)
    assert told["config"] == scene.config.read_text()
    assert (told["copies"], told["exact"], told["copies_by_partition"]) == (
        13,
        13,
        {"0": COPIES, "1": COPIES + 1},
    )
    best = told["rules"][0]
    assert (best["caught"], best["lost"], best["missed"]) == (2 * COPIES, 0, 0)
    assert told["causes"][0]["kind"] == "later"


def test_a_config_on_stdout_is_nothing_but_the_config(scene: Scene) -> None:
    told = init(scene.bootstrap, scene.topic)

    assert told.stdout == scene.config.read_text()


def test_a_file_that_is_there_is_only_replaced_by_force(scene: Scene, tmp_path: Path) -> None:
    there = tmp_path / "there.toml"
    there.write_text("mine")

    refused, forced = (
        init(scene.bootstrap, scene.topic, "-o", str(there), *more) for more in ((), ("--force",))
    )

    assert (refused.exit_code, forced.exit_code) == (2, 0)
    assert "is there already; --force replaces it" in re.sub(r"\s+", " ", refused.stderr)
    assert there.read_text() == scene.config.read_text()


def test_the_oldest_the_newest_and_what_lies_between_count(broker: Broker, tmp_path: Path) -> None:
    bootstrap, topic, page = broker.bootstrap_servers, unique("grown"), tmp_path / "page.html"
    create_topic(bootstrap, topic)
    some: list[New] = []
    # A count that begins again in the middle, in transactions whose markers take offsets; the last one twice.
    for begin in (0, 1_000):
        for number in range(0, 1_000, 100):
            some = [
                new((number + each) % 600, timestamp=START_MS + begin + number)._replace(
                    value=b'{"n": %d}' % (begin + number + each)
                )
                for each in range(100)
            ]
            produce_transaction(bootstrap, topic, some)
    produce_transaction(bootstrap, topic, some)

    few = json.loads(init(bootstrap, topic, "--records", "900", "--json").stdout)
    arguments = ["audit", "--bootstrap", bootstrap, topic, "--json", "--html", str(page), "--for", "30s"]
    done, above = (CliRunner().invoke(main, [*arguments, "--fail-above", share]) for share in ("1%", "5%"))

    assert few["records"] in range(800, 920)
    whole = json.loads(done.stdout)
    assert (done.exit_code, above.exit_code) == (3, 0)
    assert (whole["records"], whole["copies"], whole["whole"]) == (2_100, 100, True)
    assert {each["lost"] for each in whole["rules"]} == {0}
    assert "<svg" in page.read_text()


def test_topics_that_exist_already_are_noted(broker: Broker) -> None:
    topic = unique("taken")
    for name in (f"{topic}-raw", f"{topic}-clean"):
        create_topic(broker.bootstrap_servers, name)
    produce(broker.bootstrap_servers, f"{topic}-raw", [new(number) for number in range(60)])

    told = init(broker.bootstrap_servers, f"{topic}-raw")

    assert told.exit_code == 0
    assert f"the topic {topic}-clean exists already" in told.stderr
    assert "seqmark check -c FILE, seqmark simulate -c FILE, seqmark worker" in re.sub(r"\s+", " ", told.stderr)


def test_what_cannot_be_looked_at_is_said_clearly(broker: Broker) -> None:
    topic = unique("empty")
    create_topic(broker.bootstrap_servers, topic)
    hanging = open_transaction(broker.bootstrap_servers, topic, [new(1)])

    empty, missing = init(broker.bootstrap_servers, topic), init(broker.bootstrap_servers, topic[:-1])
    nobody = init("127.0.0.1:9", topic)
    hanging.abort_transaction(60)

    assert [each.exit_code for each in (empty, missing, nobody)] == [1, 1, 1]
    assert f"{topic} has no records but 1 offset behind an open transaction" in empty.stderr
    assert f"did you mean {topic}?" in missing.stderr
    assert "no broker at 127.0.0.1:9" in nobody.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (["--bootstrap", "localhost", "--topic", "t"], {}, "must be HOST:PORT"),
        (["--bootstrap", "localhost:1", "--topic", "a/b"], {}, "must be made of letters"),
        (
            ["--bootstrap", "localhost:1", "--topic", "t", "-o", "/no/such/folder/x.toml"],
            {},
            "there is no folder",
        ),
        (
            ["--bootstrap", "localhost:1", "--topic", "t"],
            {"SEQMARK_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"},
            "kafka.sasl_plain_password: is needed",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], env: dict[str, str], said: str) -> None:
    done = CliRunner().invoke(main, ["init", *arguments], env=env)

    assert done.exit_code == 2
    assert said in re.sub(r"\s+", " ", done.stderr)
