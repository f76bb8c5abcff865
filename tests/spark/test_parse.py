"""Does Spark read from a value what pydantic reads, and call bad what pydantic refuses?"""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from schemas.event import EventModel
from spark_sink.values.fast_parse import can_read
from spark_sink.values.parse import _exactly, parse, reasons
from tests.support.spark_sink.event_models import MODELS, Deep, Flat, Listed, Switches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
# A job of Spark takes seconds, however many values it has: they are drawn first, all of them, and then read.
DRAWN = settings(
    max_examples=200,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# What pydantic says of a value that has the right type and breaks another rule; those are not for Spark.
_RULES = {"decimal_max_digits", "decimal_whole_digits"}

# What a field may become that it should not be.
OTHERS: list[Any] = [None, True, 0, 1, -7, 1.5, 2**63, 10**40, 1e300, [], {}, [1], ["x"], [None], {"x": 1}]
OTHERS += [
    "",
    "1",
    "x",
    "true",
    " 1",
    "NaN",
    "1.2345678901234",
    "2026-02-30",
    "2026-01-05T07:08:09",
    "2026-01-05T07:08:09Z",
]
T = TypeVar("T")
type_names = [model.__name__ for model, _ in MODELS]


def drawn(strategy: st.SearchStrategy[T]) -> list[T]:
    found: list[T] = []

    @DRAWN
    @given(strategy)
    def draw(value: T) -> None:
        found.append(value)

    draw()
    return found


def frame(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    rows = [(index, None if value is None else bytearray(value)) for index, value in enumerate(values)]
    return spark.createDataFrame(rows, "offset long, value binary")


def collected(parsed: DataFrame) -> list[tuple[Any, str | None]]:
    rows = sorted(parsed.collect(), key=lambda row: row["offset"])
    return [(row["event"] and row["event"].asDict(recursive=True), row["bad"]) for row in rows]


def read(
    spark: SparkSession, model: type[BaseModel], values: Sequence[bytes | None]
) -> list[tuple[Any, str | None]]:
    return collected(parse(frame(spark, values), EventModel.of(model)))


def bad(spark: SparkSession, model: type[BaseModel], values: Sequence[bytes | None]) -> list[str | None]:
    return [reason for _, reason in read(spark, model, values)]


def same(ours: Any, theirs: Any) -> bool:
    """Whether Spark's value is pydantic's: a point in time by its instant, a decimal by its value."""
    if isinstance(theirs, BaseModel):
        fields = type(theirs).model_fields
        return ours is not None and all(
            same(ours[field.alias or name], getattr(theirs, name)) for name, field in fields.items()
        )
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, dt.datetime) and theirs.tzinfo:
        # PySpark gives a point in time in the machine's zone, without saying so.
        return bool(ours.astimezone(dt.UTC) == theirs)
    if isinstance(theirs, enum.Enum):
        return bool(ours == theirs.value)
    return bool(ours == (str(theirs) if isinstance(theirs, UUID) else theirs)) and (ours is None) == (
        theirs is None
    )


@pytest.mark.parametrize(("model", "strategy"), MODELS, ids=type_names)
def test_what_pydantic_writes_is_read_with_every_field(
    spark: SparkSession, model: type[BaseModel], strategy: st.SearchStrategy[BaseModel]
) -> None:
    events = drawn(strategy)
    found = read(spark, model, [event.model_dump_json(by_alias=True).encode() for event in events])
    for event, (ours, reason) in zip(events, found, strict=True):
        theirs = event
        if isinstance(event, Flat) and event.either.tzinfo is None:
            theirs = event.model_copy(update={"either": event.either.replace(tzinfo=dt.UTC)})
        assert reason is None, event
        assert same(ours, theirs), (ours, event)


def spoilt(text: str, draw: st.DrawFn) -> bytes:
    """Change something in an event's JSON: a field's value, its presence, or the text itself."""
    value = json.loads(text)
    other = st.sampled_from(OTHERS)
    place: Any = value
    for _ in range(draw(st.integers(0, 2))):
        below = [each for each in (place.values() if isinstance(place, dict) else place) if each]
        inside = [each for each in below if isinstance(each, dict | list)]
        place = draw(st.sampled_from(inside)) if inside else place
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = draw(st.sampled_from(keys)) if keys else None
    match draw(st.sampled_from(["value", "value", "absent", "more", "text"])):
        case "value" if key is not None:
            place[key] = draw(other)
        case "absent" if key is not None:
            del place[key]
        case "more" if isinstance(place, dict):
            place[draw(st.sampled_from(["", "x", "text"]))] = draw(other)
        case _:
            return _cut(json.dumps(value), draw).encode()
    spaces = draw(st.sampled_from([None, (",", ":")]))
    return json.dumps(value, separators=spaces, ensure_ascii=draw(st.booleans())).encode()


def _cut(text: str, draw: st.DrawFn) -> str:
    at = draw(st.integers(0, len(text) - 1))
    more = draw(st.sampled_from(["", " ", "}", "]", ",", '"', "\\ud800", "x", "1", "/*", "'"]))
    return draw(st.sampled_from([text[:at], text[:at] + more + text[at:], text + more, more + text]))


@st.composite
def spoilt_texts(draw: st.DrawFn, strategy: st.SearchStrategy[BaseModel]) -> bytes:
    return spoilt(draw(strategy).model_dump_json(by_alias=True), draw)


def refused(model: type[BaseModel], value: bytes) -> bool:
    try:
        model.model_validate_json(value)
    except ValidationError as error:
        return any(each["type"] not in _RULES for each in error.errors())
    return False


def comparable(value: Any) -> Any:
    """Tell NaN by name: it is a float to pydantic and to both of us, and equals nothing, not even itself.

    Not by text as a whole: of -0.0 VARIANT keeps no sign, and the two are equal.
    """
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize(("model", "strategy"), MODELS, ids=type_names)
def test_what_pydantic_refuses_is_bad_and_the_two_ways_of_reading_agree(
    spark: SparkSession, model: type[BaseModel], strategy: st.SearchStrategy[BaseModel]
) -> None:
    values = drawn(spoilt_texts(strategy))
    known = EventModel.of(model)
    found = read(spark, model, values)
    exact = collected(_exactly(frame(spark, values), known.root))
    possible = set(reasons(known))
    for value, (ours, reason), slow in zip(values, found, exact, strict=True):
        assert comparable((ours, reason)) == comparable(slow), value
        assert (ours is None) == (reason is not None), value
        assert reason is None or reason in possible
        assert reason is not None or not refused(model, value), value


RIGHT = json.loads(
    '{"text":"t","at":"2026-01-05T07:08:09.123Z","local":"2026-01-05T07:08:09","either":"2026-01-05T07:08:09",'
    '"day":"2026-01-05","amount":"1.250","free":"3","number":5,"small":1,"flag":true,"colour":"red","level":1,'
    '"word":"a","id":"12345678-1234-1234-1234-123456789abc","left":null}'
)


def changed(**changes: Any) -> bytes:
    return json.dumps(RIGHT | changes).encode()


@pytest.mark.parametrize("compact", [True, False])
def test_each_fault_has_its_reason(spark: SparkSession, compact: bool) -> None:  # noqa: FBT001 - a parameter
    cases: list[tuple[dict[str, Any], str]] = [
        ({"text": 1}, "type:text"),
        ({"text": None}, "null:text"),
        ({"text": {"a": "b"}}, "type:text"),
        ({"at": "2026-01-05T07:08:09"}, "zone:at"),
        ({"at": "2026-02-30T07:08:09Z"}, "type:at"),
        ({"at": "0000-01-01T00:00:00Z"}, "type:at"),
        ({"at": "2026-01-05"}, "type:at"),
        ({"at": True}, "type:at"),
        ({"at": 10**20}, "range:at"),
        ({"local": "2026-01-05T07:08:09+01:00"}, "zone:local"),
        ({"day": "2026-13-01"}, "type:day"),
        ({"day": "2026-01-05T10:00:00"}, "type:day"),
        ({"amount": "1.2345"}, "scale:amount"),
        ({"amount": 1.2345}, "scale:amount"),
        ({"amount": "1E-4"}, "scale:amount"),
        ({"amount": "1234567890"}, "range:amount"),
        ({"amount": "NaN"}, "type:amount"),
        ({"amount": "1,5"}, "type:amount"),
        ({"amount": False}, "type:amount"),
        ({"number": 2**63}, "range:number"),
        ({"number": 10**50}, "range:number"),
        ({"number": 1.5}, "type:number"),
        ({"number": "5"}, "type:number"),
        ({"small": 10}, "range:small"),
        ({"small": -6}, "range:small"),
        ({"flag": "true"}, "type:flag"),
        ({"flag": 1}, "type:flag"),
        ({"colour": "blue"}, "value:colour"),
        ({"colour": 1}, "type:colour"),
        ({"level": 3}, "value:level"),
        ({"word": "c"}, "value:word"),
        ({"id": "no"}, "type:id"),
        ({"extra": 1}, "unknown"),
        ({"text": 1, "number": "x"}, "type:text"),
    ]
    spaces = (",", ":") if compact else None
    values = [json.dumps(RIGHT | changes, separators=spaces).encode() for changes, _ in cases]
    assert bad(spark, Flat, values) == [reason for _, reason in cases]


def test_what_is_no_event_at_all_has_its_reason(spark: SparkSession) -> None:
    right = changed()
    cases: list[tuple[bytes | None, str | None]] = [
        (right, None),
        (None, "null"),
        (b"", "not_json"),
        (b"   ", "not_json"),
        (b"\xff", "not_utf8"),
        (right.replace(b'"t"', b'"\xc3"'), "not_utf8"),
        (b"\xef\xbb\xbf" + right, "not_json"),
        (right + b" x", "not_json"),
        (right + right, "not_json"),
        (right + b"]", "not_json"),
        (right + b"," + right, "not_json"),
        (right[:-1], "not_json"),
        (right.replace(b'"t"', b"'t'"), "not_json"),
        (right.replace(b'"t"', b'"\\ud800"'), "not_json"),
        (right.replace(b'"t"', b'"\\udc00\\ud800"'), "not_json"),
        (right.replace(b'"t"', b'"\\ud83d\\ude00"'), None),
        (right.replace(b'"t"', b'"\\\\ud800"'), None),
        (right.replace(b": 5", b": NaN"), "not_json"),
        (right.replace(b": 5", b": 05"), "not_json"),
        (b"null", "not_object"),
        (b"[]", "not_object"),
        (b'"{}"', "not_object"),
        (b"{}", "missing:text"),
        (b"[" * 5000, "not_json"),
    ]
    assert bad(spark, Flat, [value for value, _ in cases]) == [reason for _, reason in cases]


def test_of_equal_keys_the_last_counts(spark: SparkSession) -> None:
    twice = changed()[:-1] + b',"text":"second","number":9}'
    worse = changed()[:-1] + b',"text":1}'
    mended = b'{"text":1,' + changed()[1:]
    found = read(spark, Flat, [twice, worse, mended])
    assert [reason for _, reason in found] == [None, "type:text", None]
    assert (found[0][0]["text"], found[0][0]["number"]) == ("second", 9)


def test_faults_inside_say_where(spark: SparkSession) -> None:
    deep = json.loads(
        '{"user":{"id":1,"place":null},"theRatio":1,"tags":["a"],"places":[],"matrix":[],"pair":[1,2],'
        '"prices":{"a":"1.5"},"people":{}}'
    )
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"user": {"id": 1, "place": {"city": 1, "height": 1}}}, "type:user.place.city"),
        ({"user": {"id": 1, "place": {"height": 1, "x": 1}}}, "unknown:user.place"),
        ({"user": {"id": 1, "other": 2}}, "missing:user.place"),
        ({"user": []}, "type:user"),
        ({"tags": ["a", 1]}, "type:tags[]"),
        ({"tags": [None]}, "null:tags[]"),
        ({"tags": {}}, "type:tags"),
        ({"places": [{"height": 1}, {"city": "a"}]}, "missing:places[].height"),
        ({"matrix": [[1], [None, "x"]]}, "type:matrix[][]"),
        ({"pair": [1]}, "length:pair"),
        ({"prices": {"a": "x"}}, "type:prices[]"),
        ({"prices": []}, "type:prices"),
        ({"people": {"a": {"id": 2**63, "place": None}}}, "range:people[].id"),
        ({"count": None}, "null:count"),
    ]
    assert bad(spark, Deep, [json.dumps(deep | change).encode() for change, _ in cases]) == [
        reason for _, reason in cases
    ]


def test_an_absent_field_is_its_default_and_null_stays_null(spark: SparkSession) -> None:
    base = {
        "user": {"id": 1, "place": None},
        "theRatio": 1,
        "tags": [],
        "places": [],
        "matrix": [],
        "pair": [1, 2],
    }
    base |= {"prices": {}, "people": {}}
    (absent, _), (null, _) = read(
        spark, Deep, [json.dumps(base | each).encode() for each in ({}, {"note": None})]
    )
    assert (absent["count"], absent["note"], absent["when"]) == (7, "none", [])
    assert null["note"] is None


def test_a_time_is_read_to_the_microsecond_and_what_is_finer_is_cut_off_as_pydantic_does(
    spark: SparkSession,
) -> None:
    times: list[Any] = ["2026-01-05T07:08:09.123456789Z", "2026-01-05T09:08:09.123+02:00", "2026-01-05 07:08Z"]
    times += [
        "2026-01-05T07:08:09,5-0330",
        "2026-01-05t07:08:09z",
        1_767_596_889_123,
        1_767_596_889,
        "1767596889.25",
    ]
    values = [changed(at=time) for time in times]
    found = read(spark, Flat, values)
    assert [reason for _, reason in found] == [None] * len(times)
    ours = [event["at"].astimezone(dt.UTC) for event, _ in found]
    assert ours == [Flat.model_validate_json(value).at for value in values]


def test_decimals_are_exact_whichever_way_they_are_written(spark: SparkSession) -> None:
    written: list[Any] = ["123456789.123", "-0.001", "1.5000000", "+2", "1E+3", "12345E-3", ".5", "00012"]
    written += [12.5, 7, "0e400", "-0.0E+999"]
    found = read(spark, Flat, [changed(amount=each) for each in written])
    expected = [Decimal(str(each)) for each in written]
    assert [event["amount"] for event, _ in found] == expected


def test_of_whatever_is_no_plain_decimal_both_ways_say_the_same(spark: SparkSession) -> None:
    tokens = [
        "1234567.1234567891",
        "19.99000000000000000001",
        "0.1",
        "12.50",
        "100.0",
        "-0",
        "-0.0",
        "1e2",
        "null",
    ]
    tokens += ["1.5E-3", "1" * 40, "0." + "1" * 40, "0." + "1" * 38, '"19.990"', "[1]", '{"a":1}', "true"]
    tokens += ['"12\\n"', '" 12"', '"12 "', '""', '"+1"', "99999999999999999.5", "12345678901234567890.5"]
    # Null in a field that must be there is not read directly, nor is a time without a zone that may have one.
    direct = RIGHT | {"left": "l", "either": RIGHT["at"]}
    values = [
        json.dumps(direct | {name: "TOKEN"}, separators=(",", ":")).replace('"TOKEN"', token).encode()
        for name in ("amount", "free")
        for token in tokens
    ]
    values += [json.dumps(direct | {name: f"{direct[name]}\n"}).encode() for name in ("at", "local", "day")]
    found = read(spark, Flat, values)
    for value, ours, exact in zip(
        values, found, collected(_exactly(frame(spark, values), EventModel.of(Flat).root)), strict=True
    ):
        assert ours == exact, value
    assert found[len(tokens)][0]["free"] == Decimal("1234567.1234567891")
    assert found[1] == (None, "scale:amount")


def test_a_misspelt_field_is_unknown_also_where_it_is_as_long_as_what_is_absent(spark: SparkSession) -> None:
    values = [b'{"text":"t","flagg":true,"off":true,"amount":12.5}', b'{"text":"t","flag":true,"of":null}']
    # A million with an exponent has six bytes fewer than what is read of it.
    values += [b'{"text":"t","flag":true,"off":true,"amount":1e6,"xyz":1}', b'{"text":"t"}']
    assert bad(spark, Switches, values) == ["unknown", "unknown", "unknown", None]


def test_flat_models_and_lists_are_read_directly_and_dicts_are_not() -> None:
    assert can_read(EventModel.of(Flat).root)
    assert can_read(EventModel.of(Listed).root)
    assert not can_read(EventModel.of(Deep).root)
