"""`seqmark check` looks at a real cluster, and says what it could not look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from processor.commands.cli import main
from tests.broker.commands.test_topics import Broker, Case

pytestmark = pytest.mark.broker
AGGREGATES = (Path(__file__).parents[3] / "examples" / "aggregates.toml").read_text(encoding="utf-8")


@pytest.fixture
def case(broker: Broker) -> Case:
    return Case(broker)


def test_a_source_that_does_not_exist_comes_with_a_near_one_and_with_how_to_make_it(case: Case) -> None:
    case.make("source")
    wrong = case.names["source"] + "s"
    for command in ("check", "topics"):
        ended = case.seqmark(command, SEQMARK_PIPELINES__0__SOURCE=wrong)
        assert ended.exit_code == 1
        for said in (
            f"{wrong}: the source of pipeline clicks does not exist: create it first, or did you mean ",
            f"{case.names['source']}?",
            f"kafka-topics.sh --bootstrap-server {case.env['SEQMARK_KAFKA__BOOTSTRAP_SERVERS']} --create",
            "`seqmark generate -c FILE --pipeline clicks",
        ):
            assert said in ended.stdout
            assert said in ended.stderr


def test_what_is_right_is_listed_as_the_result(case: Case, tmp_path: Path) -> None:
    case.make("source")
    case.seqmark("topics")
    ended = case.seqmark("check", "--require-broker", SEQMARK_WORKER__STATE_DIR=str(tmp_path / "state"))
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok"}
    for role in (*case.names.values(), case.changelog):
        assert any(role in line for line in lines)
    assert "the config and its topics are right" in ended.stderr


def test_a_mode_that_was_changed_over_a_changelog_is_not_answered_by_its_policy(case: Case) -> None:
    case.make("source")
    case.seqmark("topics")
    ids = '{mode="insert-id",id=[{from="key"}],window="7d"}'
    ended = case.seqmark("check", SEQMARK_PIPELINES__0__DEDUP=ids)
    assert ended.exit_code == 1
    assert "where dedup.mode was changed over this state, set it back, or begin without memory" in ended.stdout


def aggregates(case: Case, tmp_path: Path, topic: str, *words: str) -> Result:
    path = tmp_path / "aggregates.toml"
    head, _, tables = AGGREGATES.partition("[[aggregates]]")
    one = tables.partition("[[")[0].replace('"clicks.clean"', f'"{topic}"')
    path.write_text(f"{head}[[aggregates]]{one}")
    env = {key: text for key, text in case.env.items() if "PIPELINES" not in key}
    return CliRunner().invoke(main, ["check", "-c", str(path), *words], env=env)


def test_a_topic_of_aggregates_that_nobody_writes_is_a_warning_with_a_near_one(
    case: Case, tmp_path: Path
) -> None:
    case.make("sink")
    ended = aggregates(case, tmp_path, f"{case.id}.sinks", "--json")
    warnings = {line["key"]: line["message"] for line in map(json.loads, ended.stdout.splitlines())}
    assert ended.exit_code == 0
    said = f"writes {case.id}.sinks, and it does not exist; did you mean {case.names['sink']}?"
    assert said in warnings["aggregates.0.topic"]
    assert "did you mean" not in aggregates(case, tmp_path, case.names["sink"]).stdout


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nowhere.invalid:9092", "nowhere.invalid:9092 does not resolve: no host of this name is known here"),
        ("127.0.0.1:9", "127.0.0.1:9 cannot be connected to: Connection refused"),
    ],
)
def test_brokers_that_cannot_be_reached_are_a_warning_or_if_asked_for_an_error(
    case: Case, address: str, said: str
) -> None:
    for words, code, level in ((), 0, "warning"), (("--require-broker",), 1, "problem"):
        env = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": address}
        ended = case.seqmark("check", "--json", *words, **env)
        (line,) = [
            each
            for each in map(json.loads, ended.stdout.splitlines())
            if each["level"] in {"warning", "problem"}
        ]
        assert (ended.exit_code, line["level"], line["key"]) == (code, level, "kafka.bootstrap_servers")
        assert said in line["message"]
        assert "the topics were not checked" in line["message"]
