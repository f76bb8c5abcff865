"""How an aggregate reads follows from its config, its checkpoint and what executors lack, and is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from processor.errors import StopError
from schemas.config import Settings, Sink
from schemas.event import EventModel
from spark_sink.query.partial_rows import ReadingWay, bounded, chosen_way
from tests.support.spark_sink.job import sink, tables

LACK = "executors have no Python"
NEW, OF_KERNELS, OF_SPARK = None, True, False


class Cluster:
    """Executors that lack something, or nothing, and count how often they are asked."""

    def __init__(self, lack: str) -> None:
        self.lack, self.asked = lack, 0

    def __call__(self) -> str:
        self.asked += 1
        return self.lack


WINDOW, GAP, BY = {"window": "1 hour"}, {"session_gap": "5 minutes"}, {"verdicts": "judged"}


def hourly(**more: Any) -> Sink:
    written = sink(Path("var"), "clean", "hourly", {"kind": "console"}, **more)
    (found,) = Settings.model_validate(tables("127.0.0.1:9", written)).aggregates
    return found


SUMMED, SESSIONS = hourly(**WINDOW), hourly(**GAP)
BOUNDED = hourly(**WINDOW, max_offsets_per_trigger=9)
VERDICTS, VERDICT_SESSIONS = hourly(**WINDOW, **BY), hourly(**GAP, **BY)


def chosen(of: Sink, began: bool | None, cluster: Cluster) -> ReadingWay:  # noqa: FBT001 - of a table of cases
    return chosen_way(of, EventModel.load(of.event), began=began, lacking=cluster)


@pytest.mark.parametrize(
    ("of", "began", "by_kernels", "asked"),
    [
        (SUMMED, NEW, True, 1),
        (SUMMED, OF_KERNELS, True, 1),
        (SUMMED, OF_SPARK, False, 0),
        (SESSIONS, NEW, False, 0),
        (SESSIONS, OF_SPARK, False, 0),
        (VERDICTS, NEW, True, 1),
        (VERDICTS, OF_SPARK, False, 1),
        (VERDICT_SESSIONS, NEW, False, 1),
    ],
)
def test_executors_are_asked_once_where_their_answer_decides(
    *, of: Sink, began: bool | None, by_kernels: bool, asked: int
) -> None:
    cluster = Cluster("")

    way = chosen(of, began, cluster)

    assert (way.plan is not None, cluster.asked) == (by_kernels, asked)


def test_a_new_checkpoint_goes_by_rows_where_executors_lack_seqmark_and_says_so() -> None:
    assert chosen(SUMMED, NEW, Cluster(LACK)) == ReadingWay(None, LACK)


@pytest.mark.parametrize(("began", "by_kernels"), [(NEW, True), (OF_KERNELS, True), (OF_SPARK, False)])
@pytest.mark.parametrize("partitions", [1, 3])
def test_our_source_heeds_a_bound_with_any_number_of_partitions_and_sparks_with_one(
    *, began: bool | None, by_kernels: bool, partitions: int
) -> None:
    said: list[str] = []
    way = chosen(BOUNDED, began, Cluster(""))
    heeded = bounded(BOUNDED, way, partitions, said.append)

    unused = not by_kernels and partitions > 1
    assert (way.plan is not None, way.bound) == (by_kernels, 9)
    assert heeded == way._replace(bound=None if unused else 9)
    told = "hourly: max_offsets_per_trigger is not used: clean has 3 partitions"
    assert [each.startswith(told) for each in said] == [True] * unused


@pytest.mark.parametrize(
    ("of", "began", "why"),
    [
        (SUMMED, OF_KERNELS, "its checkpoint var/checkpoint-hourly was begun by Seqmark's own source"),
        (VERDICTS, NEW, "only Seqmark's own source reads clean by judged"),
        (VERDICTS, OF_KERNELS, "only Seqmark's own source reads clean by judged"),
        (VERDICTS, OF_SPARK, "only Seqmark's own source reads clean by judged"),
        (VERDICT_SESSIONS, NEW, "only Seqmark's own source reads clean by judged"),
    ],
)
def test_what_only_our_source_can_read_is_refused_where_executors_lack_it(
    *, of: Sink, began: bool | None, why: str
) -> None:
    with pytest.raises(StopError) as refused:
        chosen(of, began, Cluster(LACK))

    told = str(refused.value)
    assert told.startswith(f"aggregate hourly: {why}")
    assert f"and {LACK}" in told
    assert 'docs/spark-source.md says under "On a cluster"' in told
    assert ("name a new checkpoint" in told) == (of is SUMMED)


def test_a_checkpoint_of_kernels_that_they_cannot_check_any_more_is_refused_before_executors_are_asked() -> (
    None
):
    cluster = Cluster(LACK)

    with pytest.raises(StopError, match="cannot go on: sessions are joined event by event"):
        chosen(SESSIONS, OF_KERNELS, cluster)
    assert cluster.asked == 0
