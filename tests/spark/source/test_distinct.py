"""Are distinct values estimated alike, whether Spark is given all of them or those that fill its registers?"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, create_model
from pyspark.sql import functions as sql

from processor.engine.batch.columns import Columns
from processor.engine.events import FieldKind, FieldRule
from schemas.config import Settings
from schemas.event import EventModel
from spark_sink.query.aggregate import aggregate
from spark_sink.query.events import judged, right
from spark_sink.query.partial_rows import chosen_way, merged
from spark_sink.source.partials import PartialPlan, PartialSums
from spark_sink.source.rules import column_type
from tests.property.engine.test_registers import RULES, VALUES
from tests.spark.source.test_two_ways import RIGHT, TYPES
from tests.spark.test_parse import drawn, frame
from tests.support.kafka.topics import create_topic, dice, unique
from tests.support.spark_sink.distinct import bytes_of, xxh64
from tests.support.spark_sink.job import Silent, run, settings, sink, tables
from tests.support.spark_sink.sinks import HOUR, START, click, numbers, send, written_aside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row, SparkSession

    from schemas.config import Sink
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
SUMS = {"events": "count", "total": "sum:small", "least": "min:ratio", "most": "max:ratio", "mean": "avg:small"}
TEXTS = st.text(max_size=40).map(json.dumps)
FEW = st.sampled_from([f"{hour:02}:{minute}" for hour in range(3) for minute in (10, 20, 50)])


def spark_column(rule: FieldRule, values: Sequence[Any]) -> pa.Array:
    """Return values as Arrow has them, decimals without their point."""
    if rule.kind == FieldKind.TEXT:
        return pa.array(values, pa.string())
    if rule.kind == FieldKind.BOOL:
        return pa.array(values, pa.bool_())
    if rule.kind == FieldKind.FLOAT:
        return pa.array(values, pa.float64())
    if rule.kind == FieldKind.DECIMAL:
        raw = b"".join(int(value).to_bytes(16, "little", signed=True) for value in values)
        return pa.Array.from_buffers(
            pa.decimal128(rule.precision, rule.scale), len(values), [None, pa.py_buffer(raw)]
        )
    kinds = {
        FieldKind.INT: pa.int64(),
        FieldKind.DATE: pa.date32(),
        FieldKind.TIMESTAMP: pa.timestamp("us", "UTC"),
    }
    whole = pa.array(values, pa.int32() if rule.kind == FieldKind.DATE else pa.int64())
    return whole.view(kinds[rule.kind])


@pytest.mark.parametrize("name", sorted(RULES))
def test_values_have_the_hash_that_spark_gives_them(spark: SparkSession, name: str) -> None:
    rule = RULES[name]
    values = [value for some in drawn(st.lists(VALUES[name], min_size=5, max_size=9)) for value in some]
    table = pa.table({"at": pa.array(range(len(values))), "f": spark_column(rule, values)})
    given = spark.createDataFrame(table)
    assert given.schema["f"].dataType == column_type(rule)

    # As `approx_count_distinct` does before it hashes: one zero and one NaN.
    plain = sql.col("f") if rule.kind != FieldKind.FLOAT else sql.expr("if(f = 0, 0D, f)")
    found = given.select("at", sql.xxhash64(plain)).orderBy("at").collect()

    assert [row[1] % 2**64 for row in found] == [xxh64(bytes_of(rule, value), 42) for value in values]


@st.composite
def models(draw: st.DrawFn) -> type[BaseModel]:
    """Draw a model: the fields that are summed up and grouped by, and some of the others."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=5, unique=True))
    kinds: dict[str, Any] = {name: (TYPES[name] | None, None) for name in (*names, "ratio", "word")}
    return create_model("Drawn", **{**kinds, "small": (TYPES["small"], ...), "at": (TYPES["at"], ...)})


@st.composite
def values(draw: st.DrawFn, model: type[BaseModel]) -> list[bytes]:
    """Draw some values of a model, with fields that are null, now and then one that must not be."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        tokens = {
            name: draw(RIGHT.get(name, st.text(max_size=40).map(json.dumps))) for name in model.model_fields
        }
        for name in draw(st.lists(st.sampled_from(sorted(tokens)), max_size=2)):
            tokens[name] = "null"
        tokens["at"] = f'"2026-01-05T{draw(FEW)}:00Z"'
        found.append(("{" + ",".join(f'"{name}":{token}' for name, token in tokens.items()) + "}").encode())
    return found


def of_model(model: type[BaseModel], **more: Any) -> Sink:
    """Return an aggregate that counts the distinct values of each field."""
    distinct = {f"d_{name}": f"approx_count_distinct:{name}" for name in model.model_fields}
    written = sink(Path("var"), "clean", "drawn", {"kind": "console"}, window="1 hour", **more)
    written |= {"time_field": "at", "group_by": ["word"], "aggregates": SUMS | distinct}
    (found,) = Settings.model_validate(tables("127.0.0.1:9", written)).aggregates
    return found


def in_tasks(plan: PartialPlan, pieces: Sequence[list[bytes]]) -> pa.Table:
    """Return what two tasks sum up, of which each reads every second piece."""
    batches = []
    for task in range(2):
        sums = PartialSums(plan)
        for piece in pieces[task::2]:
            columns = Columns.empty(len(piece), np.frombuffer(b"".join(piece), np.uint8).copy())
            columns.value_length[:] = [len(value) for value in piece]
            columns.value[:] = np.cumsum(columns.value_length) - columns.value_length
            batches += [*sums.take(columns, 0)]
        batches += [*sums.left()]
    return pa.Table.from_batches(batches)


def both_ways(
    spark: SparkSession, model: type[BaseModel], of: Sink, pieces: Sequence[list[bytes]]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of an aggregate by kernels and event by event."""
    known = EventModel.of(model)
    plan = chosen_way(of, known, began=None, lacking=lambda: "").plan
    assert plan is not None
    plan = PartialPlan.read(plan._replace(max_ahead_ms=None).written())
    ours = merged(spark.createDataFrame(in_tasks(plan, pieces)), of, known, plan)
    records = frame(spark, [value for piece in pieces for value in piece])
    theirs = aggregate(right(judged(records, of, known, max_ahead_ms=None)), of, known)
    mine, other = (rows.orderBy("window_start", "word").collect() for rows in (ours, theirs))
    return mine, other


def test_both_ways_give_the_same_rows_of_drawn_models_and_values(spark: SparkSession) -> None:
    for number, model in enumerate(drawn(models())[::67]):
        more = {"slide": "20 minutes"} if number % 2 else {}
        mine, other = both_ways(spark, model, of_model(model, **more), drawn(values(model)))
        assert len(mine) > 3
        assert mine == other


def test_more_values_than_registers_are_estimated_alike_in_every_group(spark: SparkSession) -> None:
    kinds: dict[str, Any] = {name: (TYPES[name], ...) for name in ("at", "text", "small", "ratio", "word")}
    model = create_model("Many", **kinds)
    pieces = [
        [
            json.dumps(
                {
                    "at": f"2026-01-05T00:{number % 60:02}:00Z",
                    "word": ("a", "b", "")[number % 3],
                    "small": number % 7,
                    "ratio": -0.0 if number % 5 else number * 0.5,
                    "text": f"{number % 2_000}-{'x' * (number % 40)}",
                }
            ).encode()
            for number in range(begin, begin + 1_500)
        ]
        for begin in range(0, 9_000, 1_500)
    ]

    mine, other = both_ways(spark, model, of_model(model), pieces)

    assert [row["events"] for row in mine] == [3_000] * 3
    assert all(row["d_text"] > 1_500 for row in mine)
    assert mine == other


def test_nan_is_above_all_numbers_in_both_ways(spark: SparkSession) -> None:
    kinds: dict[str, Any] = {name: (TYPES[name], ...) for name in ("at", "small", "word")}
    model = create_model("Odd", **kinds, ratio=(float, math.nan))
    start = b'{"at":"2026-01-05T00:10:00Z","small":1,'
    ends = [
        b'"word":"a"}',
        b'"word":"a","ratio":1.5}',
        b'"word":"a","ratio":-2e9}',
        b'"word":"b"}',
        b'"word":""}',
    ]

    mine, other = both_ways(spark, model, of_model(model), [[start + end] for end in ends])

    assert (mine[1]["least"], mine[1]["d_ratio"]) == (-2e9, 3)
    assert list(map(str, mine)) == list(map(str, other))
    assert all(math.isnan(row["most"]) for row in mine)


@pytest.mark.broker
def test_a_query_that_is_restarted_estimates_as_spark_does_from_all_events(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, distinct = unique("clean"), {"events": "count", "revenue": "sum:amount"}
    create_topic(broker.bootstrap_servers, topic, partitions=2)
    distinct |= {
        name: f"approx_count_distinct:{name}" for name in ("event_id", "user_id", "amount", "occurred_at")
    }

    def to_files(name: str) -> Any:
        output = {"kind": "parquet", "path": str(tmp_path / name)}
        # A percentile is nothing that can be merged: all of the aggregate goes event by event.
        made = distinct if name == "kernels" else {**distinct, "middle": "p50:amount"}
        more = {"window": "1 hour", "slide": "20 minutes", "aggregates": made}
        return settings(broker.bootstrap_servers, sink(tmp_path, topic, name, output, **more))

    said: dict[str, list[str]] = {"kernels": [], "spark": []}
    for start in (0, 3_000):
        # Half of the second hour comes in the second run: its windows go on from the state.
        chance, first = dice(start), START + HOUR * (start / 6_000)
        clicks = [click(chance, number, first, HOUR) for number in range(start, start + 3_000)]
        late = [replace(clicks[0], at=START - timedelta(hours=9), number=9_000)] if start else []
        end = [click(chance, number, START + 99 * HOUR, HOUR) for number in (9_998, 9_999)] if start else []
        send(broker.bootstrap_servers, topic, clicks + late + end, 2)
        for name, lines in said.items():
            audience = Silent()
            run(to_files(name), audience)
            lines += [line for line in audience.said if "summed up as it is read" in line]

    assert {name: len(lines) for name, lines in said.items()} == {"kernels": 2, "spark": 0}
    ours, theirs = (
        spark.read.parquet(str(tmp_path / name)).drop("middle").orderBy("window_start", "campaign").collect()
        for name in said
    )
    assert max(row["event_id"] for row in ours) > 600
    assert ours == theirs
    aside = [numbers(written_aside(tmp_path / f"checkpoint-{name}-aside", "late")) for name in said]
    assert aside == [[9_000]] * 2
