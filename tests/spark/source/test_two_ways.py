"""Do the kernels read from a value what Spark's expressions read, and give the same reason where it is bad?"""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime, create_model

from processor.engine.batch.columns import Columns
from processor.engine.events import EventReader
from schemas.event import EventModel
from spark_sink.source.arrow import field_array
from spark_sink.source.rules import read_rules, rules_of, why_not, written
from spark_sink.values.parse import parse
from tests.spark.test_parse import comparable, drawn, frame
from tests.support.spark_sink.event_models import Colour, Deep, Flat, Level, Listed
from tests.support.spark_sink.tokens import TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

TYPES: dict[str, Any] = {
    "text": str,
    "url": dt.timedelta,
    "clock": dt.time,
    "flag": bool,
    "number": int,
    "small": Annotated[int, Field(ge=-5, lt=10)],
    "ratio": float,
    "free": Decimal,
    "amount": Annotated[Decimal, Field(max_digits=12, decimal_places=3)],
    "wide": Annotated[Decimal, Field(max_digits=38, decimal_places=18)],
    "whole": Annotated[Decimal, Field(max_digits=5, decimal_places=0)],
    "day": dt.date,
    "at": AwareDatetime,
    "either": dt.datetime,
    "local": NaiveDatetime,
    "id": UUID,
    "word": Literal["a", "b", ""],
    "colour": Colour,
    "level": Level,
}
DEFAULTS: dict[str, Any] = {
    "text": "n\u00f6ne",
    "flag": True,
    "number": 7,
    "ratio": 2.5,
    "free": Decimal("1.50"),
    "at": "2026-01-05T07:08:09Z",
    "day": "2026-01-05",
    "word": "a",
}

RIGHT: dict[str, st.SearchStrategy[str]] = {
    "flag": st.sampled_from(["true", "false"]),
    "number": st.integers(-(2**63), 2**63 - 1).map(str),
    "small": st.integers(-5, 9).map(str),
    "ratio": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps) | st.integers(-99, 99).map(str),
    "level": st.sampled_from(["1", "2"]),
}
RIGHT |= {
    name: strategy.map(json.dumps)
    for name, strategy in {
        "free": st.decimals(-(10**17), 10**17, places=10).map(str),
        "amount": st.decimals(-999_999_999, 999_999_999, places=3).map(str),
        "wide": st.decimals(-(10**19), 10**19, places=18).map(str),
        "whole": st.integers(-99_999, 99_999).map(str),
        "day": st.dates().map(str),
        "at": st.datetimes().map(lambda at: at.isoformat() + "Z"),
        "either": st.datetimes().map(lambda at: at.isoformat()),
        "local": st.datetimes().map(lambda at: at.isoformat()),
        "clock": st.just("07:08:09"),
        "id": st.uuids().map(str),
        "word": st.sampled_from(["a", "b", ""]),
        "colour": st.sampled_from(list(Colour)),
    }.items()
}


@st.composite
def models(draw: st.DrawFn) -> type[BaseModel]:
    """Draw a model: some of the fields, each required, nullable or with a default."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=5, max_size=12, unique=True))
    fields: dict[str, Any] = {}
    for name in names:
        optional = draw(st.booleans())
        kind = TYPES[name] | None if optional else TYPES[name]
        default = draw(st.sampled_from(["required", "null", "value"]))
        if default == "value" and name in DEFAULTS:
            fields[name] = (kind, Field(DEFAULTS[name], validate_default=True))
        else:
            fields[name] = (kind, None) if default == "null" and optional else (kind, ...)
    return create_model("Drawn", **fields)


def everything() -> type[BaseModel]:
    """Return a model with every field, each required."""
    return create_model("Everything", **{name: (kind, ...) for name, kind in TYPES.items()})  # type: ignore[call-overload,no-any-return]  # pydantic cannot type what is made at run time


@st.composite
def values(draw: st.DrawFn, model: type[BaseModel]) -> bytes:
    """Draw a value of a model: mostly right, with one field or two in any form, or missing, or twice."""
    members = [
        (name, draw(RIGHT.get(name, st.text(max_size=6).map(json.dumps)))) for name in model.model_fields
    ]
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(members) - 1))
        match draw(st.sampled_from(["token", "token", "token", "gone", "again", "more"])):
            case "token":
                members[at] = (members[at][0], draw(TOKENS))
            case "gone" if len(members) > 1:
                del members[at]
            case "again":
                members.append((members[at][0], draw(TOKENS)))
            case _:
                members.append((draw(st.sampled_from(["x", "", "t\u00e9xt"])), draw(TOKENS)))
    space = draw(st.sampled_from(["", "", " ", "\n\t"]))
    text = "{" + ",".join(f"{space}{json.dumps(name)}:{space}{token}" for name, token in members) + space + "}"
    end = draw(st.sampled_from([""] * 12 + [" ", "x", "}", "\udcff"]))
    return (text + end).encode(errors="surrogateescape")


def by_kernels(model: EventModel, records: Sequence[bytes | None]) -> list[tuple[Any, str | None]]:
    """Return what the source makes of values: the event, or the reason why it is none."""
    length = np.array([-1 if value is None else len(value) for value in records])
    columns = Columns.empty(
        len(records), np.frombuffer(b"".join(filter(None, records)) or b"\0", np.uint8).copy()
    )
    columns.value_length[:] = length
    columns.value[:] = np.cumsum(np.maximum(length, 0)) - np.maximum(length, 0)
    rules = read_rules(written(rules_of(model)))
    reader = EventReader(rules)
    events = reader.read(columns)
    rows, good = np.arange(length.size), events.reason == 0
    arrays = [field_array(rule, events, at, rows, good) for at, rule in enumerate(rules)]
    table = pa.RecordBatch.from_arrays(arrays, [rule.name for rule in rules])
    table.validate(full=True)
    return [
        (row if reason == 0 else None, reader.reasons[reason] or None)
        for row, reason in zip(table.to_pylist(), events.reason.tolist(), strict=True)
    ]


def by_spark(
    spark: SparkSession, model: EventModel, records: Sequence[bytes | None]
) -> list[tuple[Any, str | None]]:
    """Return what Spark's expressions make of them, by way of Arrow, as times without a machine's zone."""
    parsed = parse(frame(spark, records), model).orderBy("offset").select("event", "bad").toArrow()
    return [(row["event"], row["bad"]) for row in parsed.to_pylist()]


def assert_both_agree(spark: SparkSession, model: type[BaseModel], records: Sequence[bytes | None]) -> None:
    """Read values both ways."""
    known = EventModel.of(model)
    ours, theirs = by_kernels(known, records), by_spark(spark, known, records)
    for value, mine, other in zip(records, ours, theirs, strict=True):
        assert comparable(mine) == comparable(by_double(value, mine, other)), value


def by_double(
    value: bytes | None, mine: tuple[Any, str | None], other: tuple[Any, str | None]
) -> tuple[Any, str | None]:
    """Return what Spark has read, with our decimals where it may have others.

    A number with an exponent is a double to Spark, of which Java 17 does not always write the shortest digits:
    it has to be the same double. Ours has to be the number.
    """
    event, reason = other
    if mine[0] is None or event is None:
        return other
    odd = {
        name: found
        for name, found in mine[0].items()
        if isinstance(found, Decimal) and isinstance(event[name], Decimal) and found != event[name]
    }
    written_as = json.loads(value or b"", parse_float=str) if odd else {}
    for name, found in odd.items():
        token = written_as[name]
        assert "e" in token.lower(), value
        assert found == Decimal(token), value
        assert float(event[name]) == float(token), value
    return {**event, **odd}, reason


def test_both_ways_agree_on_every_kind_of_field(spark: SparkSession) -> None:
    model = everything()
    records: list[bytes | None] = [
        None,
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b" {} ",
        b'"{}"',
        b"\xff",
        b"\xef\xbb\xbf{}",
    ]
    assert_both_agree(spark, model, records + drawn(values(model)))


def test_a_decimal_with_an_exponent_is_the_number_and_to_spark_a_double(spark: SparkSession) -> None:
    model = create_model("Wide", free=(Decimal, ...))
    records = [
        b'{"free":79574432.1713e+10}',
        b'{"free":795744321713000000}',
        b'{"free":2e2}',
        b'{"free":"0.0e400"}',
    ]

    assert_both_agree(spark, model, records)

    read = [event["free"] for event, _ in by_kernels(EventModel.of(model), records)]
    assert read == [795_744_321_713_000_000, 795_744_321_713_000_000, 200, 0]


def test_both_ways_agree_on_any_token_for_any_field(spark: SparkSession) -> None:
    model = create_model("Sparse", **{name: (kind | None, None) for name, kind in TYPES.items()})  # type: ignore[call-overload]  # as above
    records = [f'{{"{name}":{token}}}'.encode(errors="replace") for token in drawn(TOKENS) for name in TYPES]
    assert_both_agree(spark, model, records)


def test_a_default_that_no_json_number_can_be_is_the_same_both_ways(spark: SparkSession) -> None:
    defaults = {"none": math.nan, "most": math.inf, "least": -math.inf}
    model = create_model("Odd", text=(str, ...), **{name: (float, each) for name, each in defaults.items()})  # type: ignore[call-overload]  # as above
    records = [b'{"text":"a"}', b'{"text":"b","most":1.5}']

    assert_both_agree(spark, model, records)

    (absent, _), (there, _) = by_spark(spark, EventModel.of(model), records)
    assert comparable(absent) == comparable({"text": "a", **defaults})
    assert there["most"] == 1.5


def test_both_ways_agree_on_drawn_models(spark: SparkSession) -> None:
    for model in drawn(models())[::67]:
        assert_both_agree(spark, model, drawn(values(model)))


def test_what_no_kernel_checks_is_said() -> None:
    assert why_not(EventModel.of(Flat)) == "it forbids unknown fields"
    assert why_not(EventModel.of(Deep)) == "user is an object"
    assert why_not(EventModel.of(Listed)) == "tags is a list or a dict"
    assert why_not(EventModel.of(everything())) is None
