"""Shows the value that was given for a key, unless it is a secret or could be one.

Not shown are, whatever is wrong with them: values of secret keys and of keys whose name speaks of one, what
stands as a secret elsewhere in the config or in the environment, addresses with a user in them, texts that name
a password, and what is no word and far from each of the few words that a key takes. What is shown is short, and
of characters that do nothing to a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from processor.config.visible import visible_json
from schemas.config.reference import choices, declared, holds_secret
from schemas.near import near

if TYPE_CHECKING:
    from processor.config.lines import KeyPath

MOST_SHOWN = 60
"""Characters of a text; as wide as the line has room for beside what is wrong with it."""
_LEAST_SECRET = 4
"""Characters; a shorter text is found in too many others."""
_SECRET_KEY = re.compile(r"pas+w|pass|pwd|secret|token|credential|jaas|private|api_?key", re.IGNORECASE)
# user:password@host, with or without a scheme; a secret in a query or a list of options; a key in PEM.
_SECRET_TEXT = re.compile(
    r":.*@|(?:pas+w|pass|pwd|secret|token|credential|api_?key)\w*\s*[=:]|-----BEGIN", re.DOTALL | re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]*")
_MISSING = object()


class Echo:
    """What was given, by key.

    Args:
        tables: The config as it was given, file and environment as one.
        environ: The environment: what it names as secret is shown nowhere.
    """

    def __init__(self, tables: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._tables = tables
        found = [*_secrets(tables, ()), *(text for name, text in environ.items() if _SECRET_KEY.search(name))]
        self._secrets = {text for text in found if len(text) >= _LEAST_SECRET}

    def value(self, path: KeyPath) -> Any:
        """Return what was given for a key; None: nothing."""
        found = _at(self._tables, path)
        return None if found is _MISSING else found

    def shown(self, path: KeyPath) -> str | None:
        """Return what was given for a key as TOML has it; None: nothing, or it is better not shown."""
        value = self.value(path)
        if value is None or _is_secret(path):
            return None
        if isinstance(value, Mapping):
            return "a table"
        if isinstance(value, list):
            return "a list"
        if not isinstance(value, str):
            return str(value).lower() if isinstance(value, bool) else _plain(value)
        return quoted(value) if self._harmless(path, value) else None

    def _harmless(self, path: KeyPath, text: str) -> bool:
        if _SECRET_TEXT.search(text) or any(secret in text for secret in self._secrets):
            return False
        few = choices(path)
        return not few or _WORD.fullmatch(text) is not None or near(text, few) is not None


def quoted(text: str) -> str:
    """Return a text in quotes, cut where it is long."""
    cut = text[:MOST_SHOWN]
    whole = visible_json(json.dumps(cut, ensure_ascii=False))
    return whole if cut == text else f'{whole[:-1]}…" ({len(text):,} characters)'


def _plain(value: Any) -> str:
    """Return a number or a time, cut where it is long."""
    try:
        text = str(value)
    except ValueError:  # of more digits than Python writes in tens
        text = hex(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text):,} characters)"


def secret_name(key: str) -> bool:
    """Return whether a key's name speaks of a secret."""
    return _SECRET_KEY.search(key) is not None


def secret_text(text: str) -> bool:
    """Return whether a text may hold a secret, by its form."""
    return _SECRET_TEXT.search(text) is not None


def _is_secret(path: KeyPath) -> bool:
    named = any(isinstance(step, str) and secret_name(step) for step in path)
    return named or any(map(holds_secret, declared(path)))


def _secrets(value: Any, path: KeyPath) -> Iterator[str]:
    """Yield each text that stands below a secret key."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _secrets(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _secrets(below, (*path, number))
    elif isinstance(value, str) and _is_secret(path):
        yield value


def _at(value: Any, path: KeyPath) -> Any:
    for step in path:
        inside = step in value if isinstance(value, Mapping) else _has(value, step)
        if not inside:
            return _MISSING
        value = value[step]
    return value


def _has(value: Any, step: str | int) -> bool:
    return isinstance(value, list) and isinstance(step, int) and step < len(value)
