"""A routed pipeline is two hops that share nothing but the topic between them, and every other is one."""

from __future__ import annotations

from typing import Any

import pytest

from processor.pipeline.hops import FirstHop, hops, route_definition
from schemas.config import Settings

IDS = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"}


def settings(**dedup: Any) -> Settings:
    plain = {"name": "plain", "source": "plain.raw", "sink": "plain.clean", "dedup": IDS}
    routed = {
        "name": "routed",
        "source": "routed.raw",
        "sink": "routed.clean",
        "duplicates": "routed.duplicates",
        "quarantine": "routed.quarantine",
        "dedup": {**IDS, "route": "by-id", **dedup},
    }
    worker = {"application_id": "app", "state_dir": "state"}
    kafka = {"bootstrap_servers": "localhost:9092"}
    return Settings.model_validate({"kafka": kafka, "worker": worker, "pipelines": [plain, routed]})


def first_hop(**dedup: Any) -> FirstHop:
    _, first, _ = hops(settings(**dedup))
    assert isinstance(first, FirstHop)
    return first


def test_a_routed_pipeline_is_two_hops_by_way_of_its_internal_topic() -> None:
    config = settings()
    plain, first, second = hops(config)
    assert plain.pipeline is config.pipelines[0]
    assert isinstance(first, FirstHop)
    assert (first.name, first.source, first.internal) == (
        "routed.route",
        "routed.raw",
        "app-routed-repartition",
    )
    assert (second.name, second.source, second.upstream) == ("routed", first.internal, "routed.raw")
    assert first.pipeline is second.pipeline is config.pipelines[1]


def test_what_cannot_be_judged_is_put_aside_by_the_first_hop_and_receipts_are_written_by_the_second() -> None:
    _, first, second = hops(settings())
    assert (first.quarantine, first.duplicates) == ("routed.quarantine", None)
    assert (second.quarantine, second.duplicates) == (None, "routed.duplicates")


def test_records_of_one_id_are_told_apart_where_they_are_judged() -> None:
    _, first, second = hops(settings(fingerprint={}))
    assert (first.has_collisions, second.has_collisions) == (False, True)


@pytest.mark.parametrize(
    ("dedup", "partitions", "same"),
    [
        ({}, 4, True),
        ({"window": "2h", "refresh": True, "max_ahead": "1m"}, 4, True),
        ({}, 5, False),
        ({"id": [{"from": "key"}, {"from": "header", "name": "a"}]}, 4, False),
        ({"id": [{"from": "header", "name": "a"}]}, 4, False),
        ({"on_missing": "pass"}, 4, False),
    ],
)
def test_where_ids_go_depends_on_their_parts_and_on_the_number_of_partitions(
    dedup: dict[str, Any],
    partitions: int,
    same: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    meant = route_definition(first_hop(), 4)
    assert (route_definition(first_hop(**dedup), partitions) == meant) is same
