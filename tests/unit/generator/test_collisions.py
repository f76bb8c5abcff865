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

START_MS = 1_767_603_600_000
EVENT = {"from": "value", "pointer": "/event_id"}
EXAMPLES = Path(__file__).parents[3] / "examples"


def defined(**more: Any) -> InsertIdDedup:
    given = {"mode": "insert-id", "id": [EVENT], "window": "1h", "fingerprint": {}}
    return InsertIdDedup.model_validate(given | more)


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
