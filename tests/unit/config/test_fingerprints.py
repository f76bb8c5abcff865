"""A fingerprint and what becomes of collisions are read, and what cannot be of them is named."""

from __future__ import annotations

from typing import Any

import pytest

from processor.judges.factory import mode_of
from schemas.config import Fingerprint, InsertIdDedup, Rename, Settings
from tests.unit.config.test_model import faults, insert_id

ID = [{"from": "value", "pointer": "/e/id"}, {"from": "header", "name": "h"}, {"from": "key"}]
RENAMED: dict[str, Any] = {"id": ID, "fingerprint": {}, "on_collision": "rename"}

PLAIN = "0e62602e970f98b289a684e409499586"
"""The definition of `ID`, as builds without fingerprints wrote it."""


def read(**changes: Any) -> InsertIdDedup:
    dedup = Settings.model_validate(insert_id(**changes)).pipelines[0].dedup
    assert isinstance(dedup, InsertIdDedup)
    return dedup


def definition(**changes: Any) -> bytes:
    return mode_of(Settings.model_validate(insert_id(**changes)).pipelines[0]).definition()


def renamed(**rename: Any) -> dict[str, Any]:
    return RENAMED | {"rename": rename}


def test_the_defaults_are_the_contract_s() -> None:
    assert (read().fingerprint, read().on_collision, read().rename) == (None, "pass", None)
    assert read(fingerprint={}).fingerprint == Fingerprint(of="value", exclude=[], headers=[])
    assert read(**renamed(to="/e/id")).rename == Rename(to="/e/id", keep="header")


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": {"of": "value", "exclude": ["/sent_at", "/hops/0"], "headers": ["type"]}},
        {"fingerprint": {"of": "bytes", "headers": ["type", "version"]}},
        {"fingerprint": {}, "on_collision": "quarantine"},
        {"fingerprint": {}, "on_collision": "tag", "route": "by-id", "refresh": True, "time": "arrival"},
        {"fingerprint": {}, "id": [{"from": "content"}]},
        {"fingerprint": {"exclude": [f"/{n}" for n in range(60)]}, "id": ID, "on_collision": "drop"},
        renamed(to="header:h", keep="/e/id/old"),
        renamed(to="/e/id", keep="/e/id2"),
        renamed(to="/e/id", keep="/e/old"),
    ],
)
def test_what_the_contract_allows_is_read(changes: dict[str, Any]) -> None:
    assert read(**changes).fingerprint


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"fingerprint": {"of": "json"}}, "fingerprint.of", ""),
        ({"fingerprint": {"exclude": ["/a", ""]}}, "fingerprint.exclude.1", "whole value cannot be excluded"),
        ({"fingerprint": {"exclude": ["a"]}}, "fingerprint.exclude.0", "JSON pointer"),
        ({"fingerprint": {"of": "bytes", "exclude": ["/a"]}}, "fingerprint.exclude", 'of = "bytes"'),
        ({"fingerprint": {"headers": [" "]}}, "fingerprint.headers.0", "empty"),
        ({"fingerprint": {}, "backend": "bloom"}, "fingerprint", "filters keep no fingerprints"),
        ({"fingerprint": {}, "on_collision": "keep"}, "on_collision", ""),
        ({"on_collision": "pass"}, "on_collision", "needs a fingerprint"),
        ({"fingerprint": {}, "on_collision": "rename"}, "on_collision", "needs rename"),
        ({"fingerprint": {}, "id": ID, "rename": {"to": "/e/id"}}, "rename", 'on_collision "pass"'),
        (renamed(to="/e"), "rename.to", "'/e/id' or 'header:h'"),
        (renamed(to="header:e"), "rename.to", "'/e/id' or 'header:h'"),
        (renamed(to="header:"), "rename.to", "header:NAME"),
        (renamed(to="key"), "rename.to", "the key cannot be renamed"),
        (renamed(to="/e/id") | {"id": [{"from": "key"}]}, "rename.to", "none of this one can be renamed"),
        (renamed(to="/e/id", keep="/e/id"), "rename.keep", "another member"),
        (renamed(to="/e/id", keep="/e/id/old"), "rename.keep", "another member"),
        (renamed(to="/e/id", keep="/e"), "rename.keep", "another member"),
        (renamed(to="/e/id", keep=""), "rename.keep", "whole value"),
        (renamed(to="/e/id", keep="old"), "rename.keep", 'or "header"'),
        ({"id": ID, "fingerprint": {"exclude": [f"/{n}" for n in range(62)]}}, "id", "has 63 parts"),
        (
            renamed(to="/e/id", keep="/old") | {"fingerprint": {"exclude": [f"/{n}" for n in range(61)]}},
            "id",
            "has 63 parts",
        ),
    ],
)
def test_a_mistake_of_fingerprints_is_named(changes: dict[str, Any], key: str, said: str) -> None:
    found = faults(insert_id(**changes))
    assert list(found) == [f"pipelines.0.dedup.{key}"]
    assert said in found[f"pipelines.0.dedup.{key}"]


def test_collisions_are_not_quarantined_where_there_is_no_topic_for_it() -> None:
    config = insert_id(fingerprint={}, on_collision="quarantine")
    del config["pipelines"][0]["quarantine"]
    assert "needs a quarantine topic" in faults(config)["pipelines.0.dedup.on_collision"]


def test_mistakes_of_fingerprints_are_named_all_at_once() -> None:
    changes = renamed(to="/e", keep="/e") | {"fingerprint": {"of": "bytes", "exclude": ["/a"]}, "refresh": 3}
    found = faults(insert_id(**changes, backend="bloom"))
    keys = ("fingerprint", "fingerprint.exclude", "refresh", "rename.to", "rename.keep")
    assert set(found) == {f"pipelines.0.dedup.{key}" for key in keys}


def test_stored_state_is_bound_to_the_fingerprint_and_not_to_what_becomes_of_collisions() -> None:
    plain = definition(id=ID)
    assert plain.hex() == PLAIN
    told = definition(id=ID, fingerprint={})
    assert (
        told
        == definition(id=ID, fingerprint={"of": "value", "exclude": []})
        == definition(**renamed(to="/e/id"))
    )
    others = [{"of": "bytes"}, {"exclude": ["/a"]}, {"headers": ["h"]}]
    assert len({plain, told, *(definition(id=ID, fingerprint=other) for other in others)}) == 5
