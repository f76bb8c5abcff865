"""A pipeline's sentence begins with who works on it, and says what costs records or stands still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from processor.errors import Problem
from processor.inspection.findings import Level
from processor.inspection.status.facts import (
    ApplicationProgress,
    HopProgress,
    PartitionProgress,
    PipelineProgress,
    QuarantineExample,
    QuarantineLook,
    QuarantineTally,
    sentence,
)
from processor.inspection.status.show import MOST_PARTITIONS, worst
from processor.kafka.client import TopicPartition
from processor.kafka.group.description import DescribedMember, GroupDescription
from processor.kafka.transactions.listing import OpenTransaction
from schemas.config import Pipeline

NOW_MS = 1_800_000_000_000
PIPELINE = Pipeline.model_validate(
    {
        "name": "clicks",
        "source": "raw",
        "sink": "clean",
        "dedup": {"mode": "watermark", "sequence": {"from": "header", "name": "seq"}},
    }
)
MEMBER = DescribedMember("w-1", "app-group", "10.0.0.1", (TopicPartition("raw", 0),), {"raw": 4})
STABLE = GroupDescription("app", "Stable", (MEMBER,), 0)
NOBODY = GroupDescription("app", "Empty", (), 0)


def partition(number: int, worker: str | None = "w-1", lag: int = 0, held: int = 0) -> PartitionProgress:
    return PartitionProgress(number, worker, 100, 0, 100 + lag, 100 + lag + held)


def said(
    *partitions: PartitionProgress, group: GroupDescription | None = STABLE, **more: object
) -> tuple[Level, str]:
    pipeline = replace(PipelineProgress(PIPELINE, [HopProgress("clicks", "raw", partitions)]), **more)  # type: ignore[arg-type]  # fields by name
    found = sentence(pipeline, ApplicationProgress("app", NOW_MS, [pipeline], group))
    return found.level, found.text


def test_partitions_with_an_owner_and_their_lag_are_in_order() -> None:
    level, text = said(partition(0, lag=120), partition(1))

    assert (level, text) == (Level.OK, "clicks: 2 of 2 partitions have an owner, lag 120 records; ok")


def test_what_keeps_a_worker_from_working_is_not_in_order() -> None:
    level, text = said(partition(0), partition(1), states=["worker w-1: no contact: no broker has answered"])

    assert level is Level.WARNING
    assert text == "clicks: 2 of 2 partitions have an owner, no lag; 1 worker is not ready for it"


def test_partitions_that_nobody_has_are_named() -> None:
    level, text = said(partition(0), partition(1, None), partition(2, None, lag=5))

    assert level is Level.PROBLEM
    assert text == "clicks: nobody works on 2 of 3 partitions (raw: 1, 2), lag 5 records"


def test_many_partitions_that_nobody_has_are_counted() -> None:
    _, text = said(*(partition(number, None) for number in range(40)))

    assert "40 of 40 partitions (raw: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 28 more)" in text


def test_nobody_has_anything_while_the_group_rebalances_and_that_is_no_problem() -> None:
    level, text = said(partition(0, None), group=replace(STABLE, state="PreparingRebalance"))

    assert (level, "the group is rebalancing (PreparingRebalance)" in text) == (Level.WARNING, True)


@pytest.mark.parametrize(("lag", "level"), [(0, Level.WARNING), (1, Level.PROBLEM)])
def test_no_worker_is_a_problem_where_records_wait(lag: int, level: Level) -> None:
    found, text = said(partition(0, None, lag=lag), group=NOBODY)

    assert (found, text.startswith("clicks: no worker runs, ")) == (level, True)


def test_a_partition_that_nothing_is_committed_of_has_no_lag_but_waits() -> None:
    _, text = said(replace(partition(0, lag=7), position=None))

    assert (
        text == "clicks: 1 of 1 partition has an owner, nothing is committed yet, up to 107 records there; ok"
    )


def test_records_that_retention_took_are_a_problem() -> None:
    level, text = said(replace(partition(0), start=130))

    assert (level, "retention has removed 30 records before they were read" in text) == (Level.PROBLEM, True)


@pytest.mark.parametrize(("open_s", "level"), [(30, Level.WARNING), (1_000, Level.PROBLEM)])
def test_a_transaction_in_the_source_that_holds_records_back_is_said(open_s: int, level: Level) -> None:
    open_ = OpenTransaction(TopicPartition("raw", 0), 100, 7, 0, "theirs", "Ongoing", NOW_MS - open_s * 1000)
    own = replace(open_, partition=TopicPartition("clean", 0))

    found, text = said(partition(0, held=40), open=[open_, own])

    assert found is level
    assert text.count("holds back 40 records of raw:0") == 1


def test_quarantined_records_and_topics_that_are_wrong_are_counted() -> None:
    tally = QuarantineTally("header_missing", 3, 0, QuarantineExample("q", 0, 9, NOW_MS, "raw:0:4", "why"))

    level, text = said(
        partition(0), quarantine=QuarantineLook([tally], cut=True), problems=[Problem("clean", "is wrong")]
    )

    assert level is Level.PROBLEM
    assert text.endswith("more than 3 records quarantined in the last hour; 1 problem with its topics")


def test_a_source_that_is_not_there_is_all_there_is_to_say() -> None:
    assert said(problems=[Problem("raw", "no such topic")]) == (
        Level.PROBLEM,
        "clicks: its source raw does not exist",
    )


def test_where_no_broker_answers_nothing_else_is_said() -> None:
    pipeline = PipelineProgress(PIPELINE, [HopProgress("clicks", "raw")])

    found = sentence(pipeline, ApplicationProgress("app", NOW_MS, [pipeline], unreachable="no broker"))

    assert found == (Level.PROBLEM, "clicks: nothing is known, no broker answers")


def test_of_many_partitions_those_without_owner_and_with_most_lag_are_shown_in_order() -> None:
    many = [partition(number, lag=number) for number in range(100)]
    many[3] = partition(3, None)

    shown = [each.number for each in worst(many)]

    assert shown == [3, *range(100 - MOST_PARTITIONS + 1, 100)]
