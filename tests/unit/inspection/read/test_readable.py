"""A topic is readable if the config has it and people can make sense of it."""

from __future__ import annotations

from typing import Any

import pytest

from processor.inspection.read.readable import ReadableTopic, topic_fault
from processor.kafka.topics.plan import Purpose
from schemas.config import Settings

SEQUENCE = {"from": "header", "name": "seq", "format": "int64"}
CLICKS = {
    "name": "clicks",
    "source": "clicks.raw",
    "sink": "clicks.clean",
    "duplicates": "dropped",
    "quarantine": "bad",
    "dedup": {
        "mode": "watermark",
        "sequence": SEQUENCE,
        "epoch": {"from": "header", "name": "epoch", "format": "int32"},
    },
}
ORDERS = {
    "name": "orders",
    "source": "clicks.clean",
    "sink": "orders.clean",
    "duplicates": "dropped",
    "dedup": {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "route": "by-id"},
}


def settings(*pipelines: dict[str, Any], **more: Any) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092"},
            "worker": {"application_id": "app"},
            "pipelines": list(pipelines),
            **more,
        }
    )


@pytest.mark.parametrize("name", ["clicks.raw", "clicks.clean", "dropped", "bad", "orders.clean"])
def test_every_topic_that_users_read_is_readable(name: str) -> None:
    assert topic_fault(settings(CLICKS, ORDERS), name) is None


@pytest.mark.parametrize("name", ["others.clean", "hourly"])
def test_topics_of_aggregates_are_readable_too(name: str) -> None:
    hourly = {
        "name": "hourly",
        "topic": "others.clean",
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "window": "1 hour",
        "watermark": "2 hours",
        "aggregates": {"events": "count"},
        "output": {"kind": "kafka", "topic": "hourly"},
        "checkpoint": "var/c",
    }

    assert topic_fault(settings(CLICKS, aggregates=[hourly]), name) is None
    assert topic_fault(settings(CLICKS), name) is not None
    assert ReadableTopic.of(settings(CLICKS, aggregates=[hourly]), name).purposes == frozenset()


@pytest.mark.parametrize("kind", ["changelog", "repartition", "positions"])
def test_an_internal_topic_is_refused_by_what_it_is(kind: str) -> None:
    fault = topic_fault(settings(CLICKS, ORDERS), f"app-orders-{kind}")

    assert f"app-orders-{kind} is the {kind} of pipeline orders: an internal topic" in str(fault)


def test_an_unknown_topic_gets_the_nearest_name_or_all_there_are() -> None:
    fault = topic_fault(settings(CLICKS), "click.clean")

    assert fault == "click.clean is no topic of this config; did you mean clicks.clean?"
    assert "known here: bad, clicks.clean, clicks.raw, dropped" in str(topic_fault(settings(CLICKS), "xyz"))


def test_a_topic_of_several_pipelines_has_all_their_purposes() -> None:
    both = ReadableTopic.of(settings(CLICKS, ORDERS), "clicks.clean")

    assert both.purposes == {Purpose.SINK, Purpose.SOURCE}
    assert both.numbers == {b"seq": 8, b"epoch": 4}


def test_only_headers_of_binary_numbers_are_read_as_such() -> None:
    text = {"mode": "watermark", "sequence": SEQUENCE | {"format": "text"}}
    value = {"mode": "watermark", "sequence": {"from": "value", "pointer": "/seq"}}

    for dedup in (text, value):
        assert ReadableTopic.of(settings(CLICKS | {"dedup": dedup}), "bad").numbers == {}
    assert ReadableTopic.of(settings(ORDERS), "dropped").numbers == {}
