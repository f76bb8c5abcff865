"""Which collisions are generated, what the truth says of them, and what is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from processor.errors import ConfigError
from processor.generator import RecordKind, StreamOptions, make_stream
from schemas.config import InsertIdDedup, Settings
from tests.unit.generator.test_window import DEDUP, At, judged

START_MS = 1_767_603_600_000
EVENT = {"from": "value", "pointer": "/event_id"}
EXAMPLES = Path(__file__).parents[3] / "examples"
# An id with the contents 1, 2 and 3, whose windows are 1,000 ms.
A1, A2, A3 = 1, 2, 3


def defined(**more: Any) -> InsertIdDedup:
    given = {"mode": "insert-id", "id": [EVENT], "window": "1h", "fingerprint": {}}
    return InsertIdDedup.model_validate(given | more)


def letters(records: list[At], **changes: Any) -> str:
    """Return a letter a record: does it Pass, Collide, or is it Dropped as a duplicate?"""
    found = judged(records, DEDUP.model_copy(update=changes))
    rows = zip(found.collision.tolist(), found.passes.tolist(), strict=True)
    return "".join("C" if collides else "DP"[passes] for collides, passes in rows)


def at(time: int, content: int) -> At:
    return At(1, time, content=content)


def test_each_content_of_an_id_has_a_window_of_its_own() -> None:
    records = [at(1_000, A1), at(1_500, A2), at(1_600, A1), at(1_700, A2), at(2_000, A1), at(2_499, A2)]
    assert letters(records) == "PCDDCD"
    found = judged(records)
    assert found.owner.tolist() == [-1, 0, 0, 1, 1, 1]
    assert found.expires_ms.tolist() == [0, 2_500, 2_000, 2_500, 3_000, 2_500]
    assert found.passes.tolist() == [True, True, False, False, True, False]


def test_the_owner_of_a_collision_is_the_earliest_that_is_alive() -> None:
    records = [at(1_000, A1), at(1_500, A2), at(1_900, A3), at(2_100, A1), at(2_600, A2)]
    assert letters(records) == "PCCCC"
    assert judged(records).owner.tolist() == [-1, 0, 0, 1, 2]


def test_where_all_of_an_id_has_expired_it_passes_again() -> None:
    assert letters([at(1_000, A1), at(1_500, A2), at(2_500, A2), at(2_500, A1)]) == "PCPC"


def test_a_refresh_renews_the_content_that_came_again_and_no_other() -> None:
    records = [at(1_000, A1), at(1_500, A2), at(1_900, A1), at(2_600, A2), at(2_800, A1)]
    assert letters(records, refresh=True) == "PCDCD"
    assert letters(records) == "PCDPC"


@pytest.mark.parametrize("action", ["drop", "quarantine"])
def test_what_is_not_let_in_collides_each_time_and_moves_the_clock(action: Any) -> None:
    records = [at(1_000, A1), at(1_500, A2), at(1_600, A2), at(1_999, A2), at(2_000, A2), at(2_100, A1)]
    assert letters(records, on_collision=action) == "PCCCPC"
    found = judged(records, DEDUP.model_copy(update={"on_collision": action}))
    assert found.passes.tolist() == [True, False, False, False, True, False]
    assert found.expires_ms.tolist() == [0] * 6
    assert found.quarantined.tolist() == [action == "quarantine" and collides for collides in found.collision]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"id": [EVENT, {"from": "content"}]}, r"^at\.id\.1: is the same in no two clicks"),
        ({"id": [{"from": "value", "pointer": "/occurred_at"}, EVENT]}, r"^at\.id\.0: is the same in no two"),
        (
            {"fingerprint": {"exclude": ["/a", "/context"]}},
            r"^at\.fingerprint\.exclude\.1: excludes what is",
        ),
        (
            {"id": [{"from": "value", "pointer": "/context/session"}]},
            r"^at\.fingerprint: /context/session/number",
        ),
        ({"fingerprint": None}, r"^--collisions: is for a pipeline with at\.fingerprint"),
    ],
)
def test_what_no_record_can_carry_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_stream(defined(**more), StreamOptions(10, 0.1, 1, 1, START_MS, collisions=0.1), "at")


def test_content_ids_with_a_fingerprint_are_generated_without_collisions() -> None:
    (part,) = make_stream(
        defined(id=[{"from": "content"}], window="7d"), StreamOptions(500, 0.1, 1, 1, START_MS)
    )
    assert part.passes.tolist() == (part.kind == RecordKind.FIRST).tolist()


def test_what_is_renamed_is_a_string() -> None:
    parts = [{"from": "value", "pointer": "/m/a"}, {"from": "value", "pointer": "/m/b"}]
    dedup = defined(id=parts, on_collision="rename", rename={"to": "/m/b"})
    (part,) = make_stream(dedup, StreamOptions(200, 0.1, 1, 1, START_MS, collisions=0.1))
    values = [json.loads(record.value or b"")["m"] for record in part.records(0, 200)]
    assert {type(value["b"]) for value in values} == {str}
    assert {type(value["a"]) for value in values} == {str, int}


def test_a_stream_can_be_made_by_the_example() -> None:
    text = (EXAMPLES / "fingerprint.toml").read_text(encoding="utf-8")
    (pipeline,) = Settings.model_validate(tomllib.loads(text)).pipelines
    stream = make_stream(pipeline.dedup, StreamOptions(5_000, 0.05, 1, 2, START_MS, collisions=0.01))
    assert sum(int((part.kind == RecordKind.COLLISION).sum()) for part in stream) == 50
    assert json.loads(stream[0].records(0, 1)[0].value or b"")["sent_at"]
