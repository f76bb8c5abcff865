"""What a table's log says of applied verdicts is read as it was written, of the topics that were noted last."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.commands.spark import apply_verdicts
from processor.commands.spark.apply_verdicts import AppliedVerdicts
from processor.errors import StopError
from spark_sink.batch.lake.apply.job import RANGE_COST, ApplyJob, ApplyOptions, SkippedRange
from spark_sink.batch.lake.apply.progress import (
    UNKNOWN,
    ApplyProgress,
    delta_progress,
    delta_transactions,
    iceberg_progress,
    iceberg_property,
    is_same,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from processor.kafka.client import Client

OLD = ApplyProgress("a" * 32, "b" * 32, {0: 70, 1: 8, 2: 9})
NOW = ApplyProgress("c" * 32, "b" * 32, {0: 3, 1: 4})


def noted(pipeline: str, progress: ApplyProgress, at: int) -> list[dict[str, object]]:
    """Return the transaction identifiers of a log."""
    return [{**each["txn"], "lastUpdated": at} for each in delta_transactions(pipeline, progress)]


def test_of_a_delta_log_the_topics_count_that_were_noted_last_of_the_pipeline() -> None:
    log = [
        *noted("p", NOW, 2000),
        *noted("p", OLD, 1000),
        *noted("q", OLD, 3000),
        {"appId": "seqmark", "version": 5, "lastUpdated": 4000},
        {"appId": "stream", "version": 6},
    ]
    assert delta_progress("p", log) == NOW
    assert delta_progress("q", log) == OLD
    assert delta_progress("r", log) is None


def test_a_property_of_iceberg_is_read_as_it_was_written_and_no_other() -> None:
    assert iceberg_progress(iceberg_property(OLD), "t") == OLD
    assert iceberg_progress(None, "t") is None
    for text in ("", "[]", '{"at": 3}', '{"verdicts": "a", "source": "b", "at": {"x": 1}}'):
        with pytest.raises(StopError, match="that Seqmark has not written"):
            iceberg_progress(text, "t")


def test_verdicts_of_an_added_partition_that_expired_unread_are_told() -> None:
    noted = ApplyProgress("a" * 32, "b" * 32, {0: 5})
    now = ApplyProgress("a" * 32, "b" * 32, {0: 0, 1: 7})
    state: Any = SimpleNamespace(progress=now, ends={0: 9, 1: 20}, name="clicks.verdicts")
    table: Any = SimpleNamespace(given="clicks", progress=lambda _: noted)
    topic: Any = SimpleNamespace(source="clicks.raw")

    def starts(*, skip_expired: bool) -> dict[int, int]:
        nobody: Any = None
        options = ApplyOptions(skip_expired=skip_expired)
        return ApplyJob("p", topic, table, nobody, options, nobody)._starts(state)

    with pytest.raises(StopError, match=r"clicks\.verdicts:1 begins at offset 7, and 0 would be next"):
        starts(skip_expired=False)
    assert starts(skip_expired=True) == {0: 5, 1: 7}


def test_a_read_of_verdicts_that_skip_nothing_ends_before_it_fills_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Quiet(AppliedVerdicts):
        """A topic of very many records, of which none skips anything."""

        async def _ranges_of(
            self, client: Client, number: int, start: int, stop: int
        ) -> AsyncGenerator[SkippedRange]:
            del client
            for at in range(start, stop):
                yield SkippedRange(number, at + 1, at, at + 1, np.zeros(0, np.int64))

    monkeypatch.setattr(apply_verdicts, "open_client", lambda *_: nullcontext())
    pipeline: Any = SimpleNamespace(source="s", verdicts="v")
    kafka: Any = None
    topic = Quiet(kafka, pipeline, skip_expired=False, say=print)
    some = topic.ranges({0: 0, 1: 0}, {0: 10**7, 1: 10**7}, 200_000)
    assert len(some) == 200_000 // RANGE_COST


def test_topics_without_an_id_may_be_the_same() -> None:
    assert is_same("a", "a")
    assert is_same(UNKNOWN, "a")
    assert not is_same("a", "b")
