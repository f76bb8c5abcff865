"""A state of another definition is told from one's own, and the message says from what to what."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from processor.judges.factory import mode_of
from processor.state.definition import changes_since, definition_of, note_definition
from schemas.config import Settings

CLICKS = (Path(__file__).parents[3] / "examples" / "clicks.toml").read_text(encoding="utf-8")
IDS = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "1h"}
SEQUENCES: dict[str, Any] = {
    "mode": "watermark",
    "scope": "key",
    "reorder_window": 8,
    "sequence": {"from": "header", "name": "seq", "format": "int64"},
}
EPOCH = {"from": "header", "name": "epoch", "format": "int64"}
BOOT = {"from": "header", "name": "epoch", "order": "change"}


def meaning(dedup: dict[str, Any]) -> dict[str, Any]:
    raw = tomllib.loads(CLICKS)
    raw["pipelines"][0]["dedup"] = dedup
    return mode_of(Settings.model_validate(raw).pipelines[0]).meaning()


@pytest.mark.parametrize(
    ("was", "change", "key"),
    [
        (IDS, {"window": "2h"}, "window"),
        (IDS, {"refresh": True}, "refresh"),
        (IDS, {"id": [{"from": "key"}]}, "id"),
        (IDS, {"time": "arrival"}, "time"),
        (IDS, {"backend": "bloom"}, "backend"),
        (IDS, {"json": "lenient"}, "json"),
        (SEQUENCES, {"framing": "registry"}, "framing"),
        (SEQUENCES, {"reorder_window": 9}, "reorder_window"),
        (SEQUENCES, {"scope": "header:producer"}, "scope"),
        (SEQUENCES, {"epoch": EPOCH}, "epoch"),
        (SEQUENCES | {"epoch": EPOCH}, {"epoch": BOOT}, "epoch"),
        (SEQUENCES, {"sequence": SEQUENCES["sequence"] | {"wraps": 256}}, "sequence"),
        (SEQUENCES, {"sequence": {"from": "header", "name": "other", "format": "text"}}, "sequence"),
    ],
)
def test_each_key_that_means_something_makes_another_definition_and_is_named(
    tmp_path: Path, was: dict[str, Any], change: dict[str, Any], key: str
) -> None:
    before, now = meaning(was), meaning(was | change)
    note_definition(tmp_path, before)
    assert definition_of(now) != definition_of(before)
    said = changes_since(tmp_path, definition_of(before), now)
    assert f"{key} was " in said
    assert " and is " in said


def test_how_json_is_read_makes_no_other_definition_where_it_is_as_always() -> None:
    assert meaning(IDS | {"json": "strict", "framing": "auto"}) == meaning(IDS)


def test_a_copy_of_another_definition_says_nothing(tmp_path: Path) -> None:
    now = meaning(IDS)
    assert changes_since(tmp_path, definition_of(now), now) == ""
    note_definition(tmp_path, meaning(SEQUENCES))
    assert changes_since(tmp_path, definition_of(meaning(IDS | {"window": "2h"})), now) == ""
    note_definition(tmp_path, now)
    assert changes_since(tmp_path, definition_of(now), now) == "", "nothing is different"
