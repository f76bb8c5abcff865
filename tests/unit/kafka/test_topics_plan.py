"""Each topic is planned like its source, and everything that loses records or state is found."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from processor.kafka.topics.plan import (
    AFTER_MAX,
    BEFORE_MAX,
    NO_LIMIT,
    ClusterPlan,
    Purpose,
    TopicView,
    changelog_topic,
    names,
    plan,
    repartition_topic,
)
from processor.pipeline.hop_kinds import usable_index
from schemas.config import Settings

CLICKS = (Path(__file__).parents[3] / "examples" / "clicks.toml").read_text(encoding="utf-8")
CHANGELOG = "clicks-clicks-changelog"
INDEX = "clicks-clicks-index"
SOURCE = TopicView(
    4,
    3,
    {
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "retention.bytes": "-1",
        "max.message.bytes": "2000000",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "2",
        BEFORE_MAX: NO_LIMIT,
        AFTER_MAX: "3600000",
    },
)


def settings(**pipeline: Any) -> Settings:
    raw = tomllib.loads(CLICKS)
    raw["pipelines"][0] |= pipeline
    return Settings.model_validate(raw)


def insert_id(**dedup: Any) -> Settings:
    given = {"mode": "insert-id", "id": [{"from": "key"}], "window": "7d"}
    return settings(dedup=given | dedup)


def like_source(**changes: Any) -> TopicView:
    configs = {key.replace("_", "."): value for key, value in changes.items()}
    partitions, replicas = configs.pop("partitions", 4), configs.pop("replicas", 3)
    return TopicView(partitions, replicas, {**SOURCE.configs, **configs})


def complete(**changed: TopicView) -> dict[str, TopicView]:
    """A cluster where all is well but for what is given: sink, quarantine, changelog."""
    changelog = like_source(cleanup_policy="compact", max_message_bytes="1048588")
    cluster = {
        "clicks.raw": SOURCE,
        "clicks.clean": changed.get("sink", SOURCE),
        "clicks.duplicates": SOURCE,
        "clicks.quarantine": changed.get("quarantine", SOURCE),
        CHANGELOG: changed.get("changelog", changelog),
        INDEX: changed.get("index", SOURCE),
    }
    assert changed.keys() <= {"sink", "quarantine", "changelog", "index"}
    return cluster


def wanted(made: ClusterPlan) -> dict[Purpose, dict[str, str]]:
    return {topic.purpose: dict(topic.configs) for topic in made.missing}


def test_everything_that_is_missing_follows_the_source() -> None:
    made = plan(settings(duplicates="clicks.duplicates"), {"clicks.raw": SOURCE})
    assert [topic.topic for topic in made.missing] == [
        "clicks.clean",
        "clicks.duplicates",
        "clicks.quarantine",
        CHANGELOG,
        INDEX,
    ]
    assert all((t.partitions, t.replication_factor) == (4, 3) for t in made.missing)
    for configs in wanted(made).values():
        assert configs["message.timestamp.type"] == "CreateTime"
        assert configs["compression.type"] == "producer", "whatever the broker's own is"
        assert configs[BEFORE_MAX] == configs[AFTER_MAX] == NO_LIMIT
        assert configs["min.insync.replicas"] == "2"
    assert made.problems == made.warnings == []


def test_a_sink_keeps_its_records_as_long_and_takes_them_as_large_as_its_source() -> None:
    sink = wanted(plan(settings(), {"clicks.raw": SOURCE}))[Purpose.SINK]
    assert (sink["cleanup.policy"], sink["retention.ms"]) == ("delete", "86400000")
    assert sink["max.message.bytes"] == "2000000"


@pytest.mark.parametrize("purpose", [Purpose.QUARANTINE, Purpose.DUPLICATES])
@pytest.mark.parametrize("config", [settings(), insert_id()])
def test_a_quarantine_has_room_for_three_more_headers_and_duplicates_for_a_receipt(
    purpose: Purpose, config: Settings
) -> None:
    made = wanted(plan(config, {"clicks.raw": SOURCE}))[purpose]
    assert made["max.message.bytes"] == str(2_000_000 + 64 * 1024)


def test_no_limit_is_above_what_a_broker_can_write_down() -> None:
    source = replace(SOURCE, configs={**SOURCE.configs, "max.message.bytes": str(2**31 - 1)})
    made = wanted(plan(insert_id(), {"clicks.raw": source}))[Purpose.DUPLICATES]
    assert made["max.message.bytes"] == str(2**31 - 1)


@pytest.mark.parametrize(("config", "policy"), [(settings(), "compact"), (insert_id(), "delete")])
def test_a_changelog_loses_nothing_by_time(config: Settings, policy: str) -> None:
    changelog = wanted(plan(config, {"clicks.raw": SOURCE}))[Purpose.CHANGELOG]
    assert changelog["cleanup.policy"] == policy
    assert changelog["retention.ms"] == changelog["retention.bytes"] == "-1"
    assert int(changelog["max.message.bytes"]) >= 1024 * 1024


def test_a_broker_is_not_sent_settings_that_it_does_not_know() -> None:
    old = {key: value for key, value in SOURCE.configs.items() if key not in {BEFORE_MAX, AFTER_MAX}}
    source = TopicView(4, 3, old | {"message.timestamp.difference.max.ms": "5"})
    sink = wanted(plan(settings(), {"clicks.raw": source}))[Purpose.SINK]
    assert sink.keys().isdisjoint({BEFORE_MAX, AFTER_MAX})
    assert sink["message.timestamp.difference.max.ms"] == NO_LIMIT


def test_internal_topics_are_named_by_application_and_pipeline() -> None:
    config = settings()
    assert changelog_topic(config, config.pipelines[0]) == CHANGELOG
    assert repartition_topic(config, config.pipelines[0]) == "clicks-clicks-repartition"
    assert "clicks-clicks-repartition" in names(insert_id(route="by-id"))


def test_a_missing_source_is_a_problem_and_nothing_is_guessed() -> None:
    made = plan(settings(), {})
    assert [problem.key for problem in made.problems] == ["clicks.raw"]
    assert made.topics == []


def test_topics_that_are_right_are_left_alone() -> None:
    made = plan(settings(), complete())
    assert (made.problems, made.warnings, made.missing) == ([], [], [])
    assert [topic.purpose.value for topic in made.topics] == [
        "source",
        "sink",
        "duplicates",
        "quarantine",
        "changelog",
        "index",
    ]


@pytest.mark.parametrize("role", ["sink", "quarantine", "changelog"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"partitions": 3}, "has 3 partitions"),
        ({"message_timestamp_type": "LogAppendTime"}, "must be CreateTime"),
        ({"message_timestamp_after_max_ms": "3599999"}, AFTER_MAX),
        ({"message_timestamp_before_max_ms": "1"}, BEFORE_MAX),
    ],
)
def test_a_topic_that_changes_or_refuses_records_is_a_problem(
    role: str, wrong: dict[str, Any], said: str
) -> None:
    policy = "compact" if role == "changelog" else "delete"
    view = like_source(cleanup_policy=policy, **wrong)
    (problem,) = plan(settings(), complete(**{role: view})).problems
    assert said in problem.message
    assert f"{role} of pipeline clicks" in problem.message


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_changelog_that_deletes_state_is_a_problem(policy: str) -> None:
    view = like_source(cleanup_policy=policy)
    (problem,) = plan(settings(), complete(changelog=view)).problems
    assert (problem.key, "must be compact" in problem.message) == (CHANGELOG, True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cleanup_policy": "compact"}, "must be delete"),
        ({"retention_ms": "604800000"}, "retention.ms"),
        ({"retention_ms": "-1", "retention_bytes": "1"}, "retention.bytes"),
    ],
)
def test_a_changelog_of_ids_keeps_everything(wrong: dict[str, str], said: str) -> None:
    made = plan(insert_id(), complete(changelog=like_source(**wrong)))
    assert [said in problem.message for problem in made.problems] == [True]


@pytest.mark.parametrize(
    ("risky", "said"),
    [
        ({"max_message_bytes": "1999999"}, "max.message.bytes"),
        ({"min_insync_replicas": "1"}, "min.insync.replicas"),
        ({"replicas": 1}, "1 replicas"),
        ({"cleanup_policy": "compact"}, "without a key"),
        ({"compression_type": "lz4"}, "one that is larger than max.message.bytes then stops the worker"),
    ],
)
def test_what_may_become_a_problem_is_a_warning(risky: dict[str, Any], said: str) -> None:
    made = plan(settings(), complete(sink=like_source(**risky)))
    assert made.problems == []
    assert [said in warning.message for warning in made.warnings] == [True]


def test_an_index_is_kept_by_time_alone_and_nothing_waits_for_it() -> None:
    source = replace(SOURCE, configs={**SOURCE.configs, "retention.bytes": "1000"})
    made = plan(settings(), {**complete(), "clicks.raw": source})
    assert made.problems == []
    index = wanted(plan(settings(), {"clicks.raw": source}))[Purpose.INDEX]
    assert (index["retention.ms"], index["retention.bytes"]) == ("86400000", "-1")
    assert index["cleanup.policy"] == "delete"

    without = plan(settings(), {name: view for name, view in complete().items() if name != INDEX})
    without.require()
    assert [problem.key for problem in without.unmarked] == [INDEX]
    # It does not make a pipeline new, whose other topics may be narrower than its source.
    made = plan(settings(), {**complete(quarantine=like_source(partitions=3)), INDEX: SOURCE})
    made.created = {INDEX}
    made.require(growing=True)


@pytest.mark.parametrize(
    ("wrong", "said", "usable"),
    [
        ({"partitions": 3}, "has 3 partitions, 4 are to be marked", True),
        ({"cleanup_policy": "compact"}, "only the newest mark", True),
        ({"max_message_bytes": "1000"}, "at least 1024", False),
        ({"message_timestamp_after_max_ms": "1000"}, AFTER_MAX, False),
        ({"message_timestamp_type": "LogAppendTime", "retention_ms": "1"}, None, True),
    ],
)
def test_an_index_that_is_wrong_is_a_warning_and_not_written_to_where_it_could_refuse_a_mark(
    wrong: dict[str, Any], said: str | None, *, usable: bool
) -> None:
    cluster = complete(index=like_source(**wrong))
    made = plan(settings(), cluster)
    assert made.problems == []
    assert [said is not None and said in warning.message for warning in made.warnings] == (
        [True] if said else []
    )
    assert usable_index(INDEX, cluster) == (INDEX if usable else None)


def two(second_source: str, quarantine: str) -> Settings:
    raw = tomllib.loads(CLICKS)
    other = {"name": "b", "source": second_source, "sink": "b.clean", "quarantine": quarantine}
    raw["pipelines"].insert(0, raw["pipelines"][0] | other)
    return Settings.model_validate(raw)


def test_a_source_that_another_pipeline_makes_need_not_exist() -> None:
    made = plan(two("clicks.clean", "b.quarantine"), {"clicks.raw": SOURCE})
    assert made.problems == []
    assert {"clicks.clean", "b.clean"} <= {topic.topic for topic in made.missing}


def test_a_shared_quarantine_fits_both_sources() -> None:
    b = TopicView(2, 3, SOURCE.configs)
    made = plan(two("b.raw", "clicks.quarantine"), {"clicks.raw": SOURCE, "b.raw": b})
    # The two pipelines share the topic of their receipts too.
    shared = ["clicks.duplicates", "clicks.quarantine"]
    assert [problem.key for problem in made.problems] == shared
    planned = [topic.topic for topic in made.topics if not topic.exists]
    assert [planned.count(name) for name in shared] == [1, 1]


ROUTED = insert_id(route="by-id")
INTERNAL = {
    name: f"clicks-clicks-{name}" for name in ("changelog", "repartition", "positions", "index", "route-index")
}


def test_with_route_sink_receipts_and_state_have_the_sinks_partition_count() -> None:
    sink = TopicView(7, 3, SOURCE.configs)
    made = plan(ROUTED, {"clicks.raw": SOURCE, "clicks.clean": sink})
    assert made.problems == made.warnings == []
    assert {topic.topic: topic.partitions for topic in made.missing} == {
        "clicks.duplicates": 7,
        "clicks.quarantine": 4,
        INTERNAL["changelog"]: 7,
        INTERNAL["repartition"]: 7,
        INTERNAL["positions"]: 4,
        INTERNAL["route-index"]: 4,
        INTERNAL["index"]: 7,
    }
    configs = wanted(made)
    assert configs[Purpose.POSITIONS]["cleanup.policy"] == "compact"
    assert configs[Purpose.REPARTITION]["cleanup.policy"] == "delete"
    assert configs[Purpose.REPARTITION]["retention.ms"] == "-1"
    # Routed records are larger than they came by what says where from.
    assert int(configs[Purpose.REPARTITION]["max.message.bytes"]) > 2_000_000


@pytest.mark.parametrize("kept", ["repartition", "changelog"])
def test_with_route_a_sink_is_made_anew_with_the_count_that_ids_are_dealt_out_by(kept: str) -> None:
    view = TopicView(7, 3, {**SOURCE.configs, "retention.ms": "-1"})
    made = plan(ROUTED, {"clicks.raw": SOURCE, INTERNAL[kept]: view})
    assert made.problems == []
    assert {topic.topic: topic.partitions for topic in made.missing}["clicks.clean"] == 7


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("clicks.duplicates", "its sink clicks.clean has 7"),
        (INTERNAL["changelog"], "its sink clicks.clean has 7"),
        (INTERNAL["repartition"], "its sink clicks.clean has 7"),
    ],
)
def test_with_route_another_partition_count_is_a_problem(topic: str, said: str) -> None:
    configs = {
        **SOURCE.configs,
        "retention.ms": "-1",
        "cleanup.policy": "delete",
        "max.message.bytes": "3000000",
    }
    cluster = {"clicks.raw": SOURCE, "clicks.clean": TopicView(7, 3, SOURCE.configs)}
    (problem,) = plan(ROUTED, {**cluster, topic: TopicView(5, 3, configs)}).problems
    assert problem.key == topic
    assert said in problem.message


def test_a_source_with_more_partitions_than_a_place_tells_apart_cannot_be_routed() -> None:
    source = TopicView(65_537, 3, SOURCE.configs)
    configs = {**SOURCE.configs, "cleanup.policy": "compact"}
    cluster = {
        "clicks.raw": source,
        "clicks.clean": SOURCE,
        INTERNAL["positions"]: TopicView(65_537, 3, configs),
    }
    (problem,) = plan(ROUTED, cluster).problems
    assert "at most 65536" in problem.message


def test_a_source_that_is_missing_is_said_with_how_to_make_it_and_names_that_are_near() -> None:
    (problem,) = plan(settings(), {}, ["click.raw", "clicks.raw2", "payments"]).problems
    assert problem.key == "clicks.raw"
    missing = "the source of pipeline clicks does not exist: create it first, or did you mean"
    assert problem.message.startswith(missing)
    assert "clicks.raw2" in problem.message
    assert "payments" not in problem.message
    assert "--create --topic clicks.raw --partitions" in problem.message
    assert "seqmark generate -c FILE --pipeline clicks" in problem.message


def test_without_names_that_are_near_none_is_proposed() -> None:
    (problem,) = plan(settings(), {}, ["payments"]).problems
    assert "did you mean" not in problem.message


@pytest.mark.parametrize(
    ("config", "policy", "was", "now"),
    [(settings(), "delete", "insert-id", "watermark"), (insert_id(), "compact", "watermark", "insert-id")],
)
def test_a_changelog_of_the_other_mode_is_said_to_be_that(
    config: Settings, policy: str, was: str, now: str
) -> None:
    view = like_source(cleanup_policy=policy, retention_ms="-1")
    (problem,) = plan(config, complete(changelog=view)).problems
    assert f"holds the state of mode {was} (cleanup.policy is {policy})" in problem.message
    assert f"and the pipeline has mode {now} now" in problem.message
    assert "give the pipeline another name" in problem.message


def test_a_topic_of_verdicts_keeps_them_as_long_as_the_source_its_records_however_few_bytes_that_takes() -> (
    None
):
    source = replace(SOURCE, configs={**SOURCE.configs, "retention.bytes": "1000000"})
    given = settings(output="verdicts", verdicts="clicks.verdicts")
    cluster = {"clicks.raw": source, "clicks.clean": SOURCE}
    found = {topic.purpose: topic for topic in plan(given, cluster).topics}
    verdicts = found[Purpose.VERDICTS]
    assert (verdicts.topic, verdicts.partitions, verdicts.exists) == ("clicks.verdicts", 4, False)
    kept = {key: verdicts.configs[key] for key in ("cleanup.policy", "retention.ms", "retention.bytes")}
    assert kept == {"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "-1"}
    assert found[Purpose.SINK].exists, "a sink that is named is there for `seqmark materialize`"

    narrow = {**cluster, "clicks.verdicts": like_source(partitions=3)}
    (problem,) = plan(given, narrow).problems
    assert (problem.key, "has 3 partitions" in problem.message) == ("clicks.verdicts", True)
    without = given.model_copy(update={"pipelines": [given.pipelines[0].model_copy(update={"sink": None})]})
    assert Purpose.SINK not in {topic.purpose for topic in plan(without, cluster).topics}
