"""Keeps a readable copy of the definition that a local state was made with, to say what was changed since.

A state knows 16 bytes of its definition, which say that another one is meant, and not what is different. The
copy is believed only where it makes those bytes; a host that has none can name the keys that count, no values::

    state_dir/application_id/home-N/PIPELINE/definition.json
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

_FILE = "definition.json"
_VALUE_CHARACTERS = 200


def definition_of(meaning: Mapping[str, Any]) -> bytes:
    """Return 16 bytes that change when a definition does."""
    canonical = orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark").digest()


def note_definition(folder: Path, meaning: Mapping[str, Any]) -> None:
    """Keep a copy in a pipeline's folder, which is there; without one only a message says less."""
    try:
        if _kept(folder) != meaning:
            made = folder / f"{_FILE}.new"
            made.write_bytes(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS))
            made.replace(folder / _FILE)
    except OSError as error:
        log.debug("no copy of the definition in %s: %s", folder, error)


def changes_since(folder: Path, definition: bytes, now: Mapping[str, Any]) -> str:
    """Say what is different now from a definition of these 16 bytes; empty where no copy is of them."""
    was = _kept(folder)
    if was is None or definition_of(was) != definition:
        return ""
    return ", ".join(
        f"{key} was {_shown(was, key)} and is {_shown(now, key)}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    )


def _kept(folder: Path) -> dict[str, Any] | None:
    try:
        kept = orjson.loads((folder / _FILE).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return kept if isinstance(kept, dict) else None


def _shown(meaning: Mapping[str, Any], key: str) -> str:
    return orjson.dumps(meaning[key]).decode()[:_VALUE_CHARACTERS] if key in meaning else "not set"
