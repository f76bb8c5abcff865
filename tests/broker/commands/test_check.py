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
    assert "from watermark to insert-id over this state, set it back, or give the pipeline" in ended.stdout


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


def test_of_an_aggregate_by_verdicts_both_topics_are_looked_at(case: Case, tmp_path: Path) -> None:
    case.make("sink")
    both = f'{case.id}.raws"\nverdicts = "{case.names["sink"]}s'
    ended = aggregates(case, tmp_path, both, "--json")
    warnings = {line["key"]: line["message"] for line in map(json.loads, ended.stdout.splitlines())}
    assert ended.exit_code == 0
    assert f"reads {case.id}.raws, and it does not exist" in warnings["aggregates.0.topic"]
    assert f"did you mean {case.names['sink']}?" in warnings["aggregates.0.verdicts"]


def unreached(case: Case, address: str, *words: str) -> tuple[int, str, str]:
    ended = case.seqmark("check", "--json", *words, SEQMARK_KAFKA__BOOTSTRAP_SERVERS=address)
    lines = map(json.loads, ended.stdout.splitlines())
    (line,) = [each for each in lines if each["key"] == "kafka.bootstrap_servers"]
    assert "the topics were not checked" in line["message"]
    return ended.exit_code, line["level"], line["message"]


def test_brokers_that_cannot_be_reached_are_a_warning_or_if_asked_for_an_error(case: Case) -> None:
    for words, code, level in ((), 0, "warning"), (("--require-broker",), 1, "problem"):
        ended, is_level, said = unreached(case, "127.0.0.1:9", *words)
        assert (ended, is_level) == (code, level)
        assert "127.0.0.1:9 cannot be connected to: Connection refused" in said


def test_a_host_that_does_not_resolve_is_an_error_and_the_rest_is_looked_at_all_the_same(case: Case) -> None:
    for words in (), ("--require-broker",):
        code, level, said = unreached(case, "nowhere.invalid:9092", *words)
        assert (code, level) == (1, "problem")
        assert "cannot resolve host nowhere.invalid of kafka.bootstrap_servers" in said
    listed = case.seqmark("check", SEQMARK_KAFKA__BOOTSTRAP_SERVERS="nowhere.invalid:9092").stdout
    assert "worker.state_dir" in listed


def test_offline_no_host_has_to_resolve_and_a_warning_says_what_was_not_checked(case: Case) -> None:
    code, level, said = unreached(case, "nowhere.invalid:9092", "--offline")

    assert (code, level) == (0, "warning")
    assert said.endswith("--offline asks no broker")
    both = case.seqmark("check", "--offline", "--require-broker")
    assert (both.exit_code, "give one of them" in both.stderr) == (2, True)
