"""Columns of a history stand for the parts of an id, or it is said why they cannot."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from processor.commands.spark.backfill_columns import columns_said, history_columns, require_alike
from processor.engine.rest import Normal
from processor.errors import ConfigError, StopError
from schemas.config import InsertIdDedup
from spark_sink.backfill.job import CleanTable

KEY, INSIDE = {"from": "key", "normalise": "lower"}, {"from": "value", "pointer": "/data|/id"}
COLUMN, CONTENT = {"from": "column", "number": 7}, {"from": "content"}


def read(parts: list[dict[str, Any]], kind: str, *given: str) -> Any:
    dedup = InsertIdDedup.model_validate({"mode": "insert-id", "window": "1h", "id": parts})
    return history_columns(["time=at", *given], kind, dedup)


def test_parts_are_found_by_their_own_names_and_normalised_as_the_stream_does() -> None:
    either = {"any": [INSIDE, {"from": "header", "name": "id"}], "normalise": "uuid"}
    lines, table = read([KEY, either], "json"), read([KEY, either], "parquet")
    assert [tuple(each) for each in lines.id] == [
        ("/key", True, Normal.LOWER),
        ("/data|/id", False, Normal.UUID),
    ]
    assert [tuple(each) for each in table.id] == [("key", True, Normal.LOWER), ("id", False, Normal.UUID)]
    assert dict(columns_said(table))["normal"] == {"key": "LOWER", "id": "UUID"}
    assert "normal" not in dict(columns_said(read([INSIDE], "json")))


def test_a_column_of_text_is_bytes_and_has_to_be_named() -> None:
    assert [tuple(each) for each in read([COLUMN], "parquet", "id=event_id").id] == [
        ("event_id", True, Normal.NONE)
    ]
    with pytest.raises(ConfigError, match="id=COL is missing: the pipeline's ids are made of text"):
        read([COLUMN], "parquet")


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"any": [INSIDE, CONTENT]}, "its ids are made of the record's content"),
        ({"any": [INSIDE, KEY]}, "parts of any are normalised in several ways"),
    ],
)
def test_what_no_column_can_be_is_refused(part: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why}.*from a topic"):
        read([part], "json")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, None),
        ({"normal": {"id": Normal.LOWER}}, "id of clean is not normalised as in the pipeline's ids"),
        ({"id": [("id", True)]}, "column id of clean has bytes, and the stream has a JSON value there"),
        ({"exclude": []}, "fingerprints of clean are of other content"),
    ],
)
def test_a_clean_table_counts_where_its_hashes_are_those_of_the_stream(
    table: dict[str, Any], why: str | None
) -> None:
    part = {"from": "value", "pointer": "/id", "normalise": "uuid"}
    more = {"mode": "insert-id", "window": "1h", "fingerprint": {"exclude": ["/at"]}}
    dedup = InsertIdDedup.model_validate({"id": [part], **more})
    there = CleanTable(b"k" * 16, [("id", False)], ["at"], {"id": Normal.UUID})._replace(**table)
    with pytest.raises(StopError, match=why) if why else nullcontext():
        require_alike(there, history_columns([], "batch", dedup), dedup, "clean")
