"""Do records carry an id where its parts belong, and is refused what none can carry?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from processor.errors import ConfigError
from processor.generator import StreamOptions, make_stream
from schemas.config import InsertIdDedup

START_MS = 1_767_603_600_000
HEADER, KEY = {"from": "header", "name": "id"}, {"from": "key"}


def value(pointer: str) -> dict[str, str]:
    return {"from": "value", "pointer": pointer}


def defined(*parts: dict[str, Any], **more: Any) -> InsertIdDedup:
    return InsertIdDedup.model_validate({"mode": "insert-id", "id": list(parts), "window": "1h", **more})


def first(*parts: dict[str, str]) -> Any:
    (part,) = make_stream(defined(*parts), StreamOptions(8, 0.0, 1, 1, START_MS))
    return part.records(0, 8)


def test_several_parts_stand_where_they_belong_and_together_are_one_row_of_digits() -> None:
    parts = (value("/m/b"), HEADER, value("/m/a/1"), {"from": "header", "name": "more"})
    rows = []
    for record in first(*parts):
        fields = json.loads(record.value)["m"]
        assert [name for name, _ in record.headers] == ["id", "more"]
        assert fields["a"][0] is None
        (_, one), (_, other) = record.headers
        rows.append((fields["b"], one, fields["a"][1], other))
    texts = [[part.decode() if isinstance(part, bytes) else str(part) for part in row] for row in rows]
    # Four ids of the same digits: cut in two ways, and written as strings and as numbers.
    assert len({"".join(row) for row in texts[:4]}) == 1
    assert [[len(part) for part in row] for row in texts[:4]] == [[4, 5, 4, 5]] * 2 + [[3, 6, 4, 5]] * 2
    assert [[type(part).__name__ for part in row[::2]] for row in rows[:4]] == [["str"] * 2, ["int"] * 2] * 2
    assert "".join(texts[4]) != "".join(texts[3])
    assert not any("0" in part for row in texts for part in row)


def test_what_clicks_have_stays_as_it_is() -> None:
    for record in first(KEY, value("/event_id")):
        event = json.loads(record.value)
        assert record.headers == ()
        assert record.key == event["user_id"].encode()
        assert set(event) == {"event_id", "occurred_at", "campaign", "user_id", "page", "amount"}


def test_two_streams_of_different_seeds_have_no_id_in_common() -> None:
    ids = set()
    for seed in range(5):
        for part in make_stream(defined(HEADER), StreamOptions(600, 0.0, seed, 3, START_MS)):
            ids |= {record.headers for record in part.records(0, 200)}
    assert len(ids) == 3_000


@pytest.mark.parametrize(
    ("parts", "more", "message"),
    [
        ([value("/page/x")], {}, r"^at\.id\.0\.pointer: /page/x leads into page"),
        ([HEADER, value("")], {}, r"^at\.id\.1\.pointer: is the whole value"),
        ([HEADER, KEY, HEADER], {}, r"^at\.id\.2: is the same as id\.0"),
        ([value("/n"), value("/n")], {}, r"^at\.id\.1: is the same as id\.0"),
        ([value("/n"), value("/n/m")], {}, r"^at\.id\.1\.pointer: /n/m and another pointer"),
        ([value("/user_id"), value("/campaign")], {}, r"^at\.id: is the same in many clicks"),
        ([{"from": "content", "exclude": ["/event_id"]}], {}, r"^at\.id: is the same in many clicks"),
        ([HEADER], {"route": "by-id"}, r"^at\.route: streams are generated without it"),
    ],
)
def test_what_no_record_can_carry_is_refused(
    parts: list[dict[str, Any]], more: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_stream(defined(*parts, **more), StreamOptions(10, 0.1, 1, 1, START_MS), "at")
