"""Writes records as lines: shortened and escaped for people, whole and as JSON for programs.

Bytes of a record never reach a terminal as they are: what a terminal would take for a command is escaped.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import orjson
from rich.cells import cell_len, set_cell_size

from processor.config.visible import visible, visible_json
from processor.inspection.read.sentences import (
    quarantine_sentence,
    receipt_sentence,
    time_text,
    verdict_sentence,
)
from processor.kafka.topics.plan import Purpose
from processor.wire.quarantine import OURS, is_observed

if TYPE_CHECKING:
    from processor.inspection.read.readable import ReadableTopic
    from processor.inspection.topic_records import TopicRecord
    from processor.wire.quarantine import Header

_KEY_SHARE = 5
"""A key gets one of so many parts of a terminal's width at most."""
_SENTENCE_CHARACTERS = 1_000
"""More than any of ours has; of others nobody knows."""
_GAP = "  "


def json_line(record: TopicRecord) -> bytes:
    """Return the whole record as a JSON object; bytes that are no UTF-8 as ``{"base64": ...}``."""
    kind = "LogAppendTime" if record.append_time else "CreateTime"
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": kind if record.timestamp >= 0 else None,
        "key": _text_or_base64(record.key),
        "value": _text_or_base64(record.value),
        "headers": [[_text_or_base64(_bytes(name)), _text_or_base64(value)] for name, value in record.headers],
    }
    return visible_json(orjson.dumps(shown).decode()).encode()


class PeopleLines:
    """Writes a line per record of one topic.

    Args:
        topic: What its records are.
        width: Columns of the terminal; None: nothing is shortened.
    """

    def __init__(self, topic: ReadableTopic, width: int | None = None) -> None:
        self._topic = topic
        self._width = width
        self._widest = 0

    def line(self, record: TopicRecord) -> bytes:
        """Return the line: place, time, key, then a sentence where there is one, value and headers."""
        place = f"{record.partition}:{record.offset}"
        self._widest = max(self._widest, len(place))
        key = self._cut(self._visible(record.key), (self._width or 0) // _KEY_SHARE)
        head = _GAP.join([place.ljust(self._widest), time_text(record.timestamp), key])
        sentence, value, headers = self._content(record)
        if sentence is not None:
            head += _GAP + visible(sentence[:_SENTENCE_CHARACTERS])
        named = _GAP.join(
            f"{visible(_bytes(name))}={self._header(_bytes(name), text)}" for name, text in headers
        )
        return (head + self._rest(head, value, named)).encode()

    def _content(self, record: TopicRecord) -> tuple[str | None, str, list[Header]]:
        """Return the sentence, and what is shown of value and headers beside it."""
        purposes = self._topic.purposes
        if (
            Purpose.DUPLICATES in purposes
            and (said := receipt_sentence(record.value, wraps=self._topic.wraps)) is not None
        ):
            return said, "", record.headers
        if Purpose.VERDICTS in purposes and (said := verdict_sentence(record.value)) is not None:
            return said, "", record.headers
        value = self._visible(record.value)
        if Purpose.QUARANTINE in purposes and (said := quarantine_sentence(record.headers)) is not None:
            return said, value, record.headers[: -len(OURS) - is_observed(record.headers)]
        return None, value, record.headers

    def _rest(self, head: str, value: str, headers: str) -> str:
        """Return value and headers behind what stands before them, each with half of the room at least."""
        if self._width is not None:
            room = self._width - cell_len(head) - len(_GAP)
            both = len(_GAP) if value and headers else 0
            least = (room - both) // 2
            headers = self._cut(headers, max(least, room - both - cell_len(value)))
            value = self._cut(value, room - both - cell_len(headers))
        return "".join(_GAP + part for part in (value, headers) if part)

    def _visible(self, raw: bytes | None) -> str:
        if raw is None:
            return "null"
        # A character takes up to four bytes, and some have no width.
        return visible(raw if self._width is None else raw[: 8 * self._width]) or '""'

    def _header(self, name: bytes, value: bytes | None) -> str:
        if value is not None and len(value) == self._topic.numbers.get(name):
            return str(int.from_bytes(value, "big", signed=True))
        return self._visible(value)

    def _cut(self, text: str, columns: int) -> str:
        if self._width is None or cell_len(text) <= columns:
            return text
        return set_cell_size(text, columns - 1) + "…" if columns > 0 else ""


def _text_or_base64(raw: bytes | None) -> str | dict[str, str] | None:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(raw).decode()}


def _bytes(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode()
