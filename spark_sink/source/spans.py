"""Says what of a topic is read: offsets of it, or verdict records. As text, what a batch is read again by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from processor.kafka.plain.topic_log import LogSpan
from processor.kafka.plain.verdict_log import NOWHERE, VerdictSpan

__all__ = ["NOWHERE", "LogSpan", "SourceSpan", "VerdictSpan", "read_spans", "written_spans"]

if TYPE_CHECKING:
    from collections.abc import Sequence

SourceSpan = LogSpan | VerdictSpan


def written_spans(spans: Sequence[SourceSpan]) -> str:
    """Return spans as text."""
    return json.dumps(spans)


def read_spans(text: str) -> list[SourceSpan]:
    """Return what `written_spans` was given."""
    return [_read(fields) for fields in json.loads(text)]


def _read(fields: list[Any]) -> SourceSpan:
    return VerdictSpan(*fields) if len(fields) == len(VerdictSpan._fields) else LogSpan(*fields)
