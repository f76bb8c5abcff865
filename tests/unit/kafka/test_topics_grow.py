"""Partitions may be added to one topic after the other."""

from __future__ import annotations

from typing import Any

import pytest

from processor.kafka.topics.plan import TopicView, names, plan
from schemas.config import Settings

COUNTED: dict[str, Any] = {
    "mode": "watermark",
    "sequence": {"from": "header", "name": "seq", "format": "int64"},
}
ROUTED: dict[str, Any] = {"mode": "insert-id", "id": [{"from": "key"}], "window": "7d", "route": "by-id"}
SOURCE = 4


def settings(dedup: dict[str, Any]) -> Settings:
    pipeline = {"name": "p", "source": "raw", "sink": "clean", "quarantine": "aside", "dedup": dedup}
    worker = {"application_id": "a"}
    return Settings.model_validate(
        {"kafka": {"bootstrap_servers": "h:1"}, "worker": worker, "pipelines": [pipeline]}
    )


def topic(partitions: int, policy: str = "delete") -> TopicView:
    return TopicView(partitions, 1, {"cleanup.policy": policy, "retention.ms": "-1", "retention.bytes": "-1"})


@pytest.mark.parametrize(("partitions", "narrow"), [(SOURCE - 1, True), (SOURCE, False), (SOURCE + 1, False)])
@pytest.mark.parametrize(
    ("dedup", "other", "policy"),
    [
        (COUNTED, "clean", "delete"),
        (COUNTED, "aside", "delete"),
        (COUNTED, "a-p-changelog", "compact"),
        (ROUTED, "a-p-positions", "compact"),
    ],
)
def test_only_a_topic_that_is_narrower_than_the_source_is_a_problem_and_one_to_wait_for(
    dedup: dict[str, Any], other: str, policy: str, partitions: int, *, narrow: bool
) -> None:
    made = plan(settings(dedup), {"raw": topic(SOURCE), other: topic(partitions, policy)})

    assert other in names(settings(dedup))
    assert [problem.key for problem in made.problems] == [other] * narrow
    assert made.narrow == made.problems
