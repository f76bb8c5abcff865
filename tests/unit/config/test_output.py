"""What does not go with verdicts is said at check, with the key and what would be right."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from schemas.config import Settings
from schemas.config.rules import violations

SEQUENCES = {"mode": "watermark", "sequence": {"from": "header", "name": "seq", "format": "int64"}}
IDS: dict[str, Any] = {"mode": "insert-id", "window": "1d", "id": [{"from": "value", "pointer": "/id"}]}
PRINTED = {**IDS, "fingerprint": {}}
RENAMED = {**PRINTED, "on_collision": "rename", "rename": {"to": "/id"}}
VERDICTS = {"output": "verdicts", "verdicts": "v"}


def config(pipeline: dict[str, Any], **worker: str) -> dict[str, Any]:
    given = {"name": "p", "source": "s", "dedup": SEQUENCES, **pipeline}
    kafka = {"bootstrap_servers": "localhost:9092"}
    return {"kafka": kafka, "worker": {"application_id": "a", **worker}, "pipelines": [given]}


@pytest.mark.parametrize(
    "pipeline",
    [
        {"sink": "c"},
        VERDICTS,
        {**VERDICTS, "sink": "c"},
        {"sink": "c", "output": "both", "verdicts": "v"},
        {**VERDICTS, "dedup": {**PRINTED, "on_collision": "drop"}},
        {**VERDICTS, "dedup": IDS},
    ],
)
def test_what_goes_together_is_taken(pipeline: dict[str, Any]) -> None:
    given = config(pipeline)
    assert not list(violations(given))
    made = Settings.model_validate(given).pipelines[0]
    assert made.writes_records is (pipeline.get("output") != "verdicts")
    assert (made.sink in made.outputs) is made.writes_records


@pytest.mark.parametrize(
    ("pipeline", "key", "text"),
    [
        ({}, "sink", "is missing: Topic without"),
        ({"output": "both", "verdicts": "v"}, "sink", "is missing"),
        ({"output": "verdicts"}, "verdicts", "is missing: with output"),
        ({"sink": "c", "verdicts": "v"}, "verdicts", 'no effect with output "records"'),
        ({**VERDICTS, "verdicts": "s"}, "verdicts", "must not be the same topic as pipelines.0.source"),
        ({**VERDICTS, "dedup": {**IDS, "route": "by-id"}}, "dedup.route", "an order of its own"),
        ({**VERDICTS, "dedup": {**PRINTED, "on_collision": "tag"}}, "dedup.on_collision", "changes records"),
        ({**VERDICTS, "dedup": RENAMED}, "dedup.on_collision", "changes records"),
    ],
)
def test_what_does_not_is_refused(pipeline: dict[str, Any], key: str, text: str) -> None:
    found = {".".join(map(str, where)): message for where, message in violations(config(pipeline))}
    assert list(found) == [f"pipelines.0.{key}"]
    assert text in found[f"pipelines.0.{key}"]


def test_verdicts_are_exactly_once_alone() -> None:
    found = dict(violations(config(VERDICTS, guarantee="at_least_once")))
    assert list(found) == [("pipelines", 0, "output")]


def test_two_pipelines_do_not_share_a_topic_of_verdicts() -> None:
    given = config(VERDICTS)
    given["pipelines"].append({**given["pipelines"][0], "name": "q", "source": "t"})
    found = dict(violations(given))
    assert "belongs to one pipeline" in found["pipelines", 1, "verdicts"]


def test_a_pipeline_of_verdicts_feeds_no_other() -> None:
    text = """
    [kafka]
    bootstrap_servers = "h:1"
    [worker]
    application_id = "a"
    """
    given = {**tomllib.loads(text), "pipelines": config(VERDICTS)["pipelines"]}
    given["pipelines"].append({**given["pipelines"][0], "name": "q", "source": "v", "verdicts": "w"})
    assert ("pipelines", 1, "source") in dict(violations(given))


def test_the_pages_config_is_right() -> None:
    page = (Path(__file__).parents[3] / "docs/verdicts.md").read_text(encoding="utf-8")
    block, reading_it = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    given = {**tomllib.loads(block), **tomllib.loads(reading_it)}
    assert not list(violations(given))
    read = Settings.model_validate(given)
    assert read.pipelines[0].output == "verdicts"
    assert read.aggregates[0].verdicts == read.pipelines[0].verdicts


def reading(pipeline: dict[str, Any], **aggregate: Any) -> dict[str, str]:
    """Return what is said of an aggregate beside a pipeline."""
    common: dict[str, Any] = {
        "name": "n",
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "window": "1h",
    }
    common |= {"watermark": "1m", "checkpoint": "c", "aggregates": {"n": "count"}}
    one = {**common, "output": {"kind": "console"}, **aggregate}
    found = violations({**config(pipeline), "aggregates": [one]})
    return {".".join(map(str, where)): message for where, message in found}


def test_an_aggregate_of_a_source_with_verdicts_says_that_it_reads_by_them() -> None:
    both = {"sink": "c", "output": "both", "verdicts": "v"}
    for pipeline, read in (
        (VERDICTS, {"topic": "s", "verdicts": "v"}),
        (both, {"topic": "s", "verdicts": "v"}),
        (both, {"topic": "s"}),
        (both, {"topic": "c"}),
        ({**VERDICTS, "sink": "c"}, {"topic": "c"}),
        (VERDICTS, {"topic": "elsewhere", "verdicts": "other"}),
    ):
        assert not reading(pipeline, **read)

    assert 'write beside it verdicts = "v"' in reading(VERDICTS, topic="s")["aggregates.0.topic"]
    other = reading(VERDICTS, topic="s", verdicts="w")["aggregates.0.verdicts"]
    assert other == 'must be those of pipelines.0: "v"'
    none = reading({"sink": "c"}, topic="s", verdicts="v")["aggregates.0.verdicts"]
    assert none == "has no effect: pipelines.0 writes none"
    crossed = reading(VERDICTS, topic="c", verdicts="v")["aggregates.0.topic"]
    assert "must be the source of pipelines.0 (s)" in crossed
    bounded = reading(VERDICTS, topic="s", verdicts="v", max_offsets_per_trigger=10)
    assert list(bounded) == ["aggregates.0.max_offsets_per_trigger"]
    written = reading(VERDICTS, topic="s", verdicts="v", output={"kind": "kafka", "topic": "v"})
    assert "is used by pipelines.0.verdicts already" in written["aggregates.0.output.topic"]
    written = reading({"sink": "c"}, topic="other", verdicts="w", output={"kind": "kafka", "topic": "w"})
    assert "must not be the topic of verdicts" in written["aggregates.0.output.topic"]
    same = reading({"sink": "c"}, topic="other", verdicts="other")["aggregates.0.verdicts"]
    assert "must not be the topic itself" in same
