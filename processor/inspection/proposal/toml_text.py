"""Writes single values as TOML, on one line, and says how a config has the keys of a dedup."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from schemas.config.values import duration_text

if TYPE_CHECKING:
    from schemas.config import InsertIdDedup, WatermarkDedup

_DURATIONS = {"window", "max_ahead", "bucket"}


def toml_text(value: Any) -> str:
    """Return a string, a number, a list or a table of those as TOML writes it in one line."""
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {toml_text(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    # A basic string of TOML has the escapes of JSON; DEL has to be escaped, too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def dedup_keys(dedup: InsertIdDedup | WatermarkDedup) -> dict[str, Any]:
    """Return the keys of a table ``dedup`` as a config has them: those that were given, times as text."""
    keys = dedup.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for table in (keys, keys.get("bloom") or {}):
        for name in _DURATIONS & table.keys():
            table[name] = duration_text(table[name])
    return keys
