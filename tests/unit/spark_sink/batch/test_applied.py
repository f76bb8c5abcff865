"""What a table's log says of applied verdicts is read as it was written, of the topics that were noted last."""

from __future__ import annotations

import pytest

from processor.errors import StopError
from spark_sink.batch.lake.apply.progress import (
    UNKNOWN,
    ApplyProgress,
    delta_progress,
    delta_transactions,
    iceberg_progress,
    iceberg_property,
    is_same,
)

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


def test_topics_without_an_id_may_be_the_same() -> None:
    assert is_same("a", "a")
    assert is_same(UNKNOWN, "a")
    assert not is_same("a", "b")
