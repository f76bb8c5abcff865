"""Keeps the last warnings and errors of a process, for who looks at it without its log.

They are kept as the page and `/status.json` show them: bounded, with control characters escaped, and without
the secrets of the config, wherever a library has put them. What says the same as one that is kept counts as
that. What is logged holds no values of records (`processor.pipeline.complaints`); of an exception only the
kind is kept, for nobody knows what its words hold.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, SecretStr
from typing_extensions import override

from processor.config.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = 30
TEXT_CHARACTERS = 1_500
"""More than the longest message with its command; a topic's name alone may have 249."""
_SHORTEST_SECRET = 4
"""A shorter one would blot out words."""
MASK = "**********"


@dataclass(slots=True)
class Trouble:
    """A warning or an error.

    Attributes:
        at_ms: When it was said last.
        level: Of the log: warning, error or critical.
        text: What happened, where, and what to do.
        times: How often it was said since it is kept.
    """

    at_ms: int
    level: str
    text: str
    times: int = 1


def secrets_of(settings: BaseModel) -> frozenset[str]:
    """Return the texts of all secrets in a config that are long enough to be looked for."""
    return frozenset(text for text in _secrets(settings) if len(text) >= _SHORTEST_SECRET)


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _secrets(each)


class Troubles(logging.Handler):
    """The newest troubles; logging feeds it while `heard`."""

    def __init__(self, secrets: frozenset[str] = frozenset()) -> None:
        super().__init__(logging.WARNING)
        # The longest first: one may be a part of another.
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._kept: dict[tuple[str, str], Trouble] = {}

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Keep what Seqmark itself says while the block runs; what libraries say, it says in better words."""
        ours = logging.getLogger("processor")
        ours.addHandler(self)
        try:
            yield
        finally:
            ours.removeHandler(self)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info and (kind := record.exc_info[0]) is not None:
                text = f"{text} ({kind.__name__}; the log has more)"
            self.add(record.levelname.lower(), text, int(record.created * 1000))
        except Exception:  # noqa: BLE001 - as logging itself has it: to log must not fail
            self.handleError(record)

    def add(self, level: str, text: str, at_ms: int | None = None) -> None:
        """Keep what went wrong."""
        at_ms = int(time.time() * 1000) if at_ms is None else at_ms
        key = (level, self._shown(text))
        # The newest stands last, however old its first time is.
        trouble = self._kept.pop(key, None) or Trouble(at_ms, *key, times=0)
        trouble.at_ms, trouble.times = at_ms, trouble.times + 1
        self._kept[key] = trouble
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def _shown(self, text: str) -> str:
        # Before it is cut: half a secret is one, too.
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        text = visible(text, "\n")
        return text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}…"

    def newest(self) -> list[Trouble]:
        """Return what is kept, the newest first."""
        return list(self._kept.values())[::-1]
