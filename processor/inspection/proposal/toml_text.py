"""Writes single values as TOML, on one line."""

from __future__ import annotations

import json
from typing import Any


def toml_text(value: Any) -> str:
    """Return a string, a number, a list or a table of those as TOML writes it in one line."""
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {toml_text(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    # A basic string of TOML has the escapes of JSON; DEL has to be escaped, too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
