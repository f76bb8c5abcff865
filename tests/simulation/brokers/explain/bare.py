"""What of a record an answer shows that must not show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from processor.inspection.explain.show import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from processor.inspection.explain.story import Story
    from tests.simulation.brokers.explain.fates import Known

_PLACES = re.compile(
    r"[a-z-]+:\d+(:\d+)?|\d{4}-\d\d-\d\dT[\d:.]+Z|offsets? \d+|partitions? \d+|\d+ equal records|UTF-8"
)
"""All numbers that an answer without contents may have: where something stands, and when it was."""
_NUMBERS = {"partition", "offset", "timestamp", "clock", "expires_at", "position"}
LEAST = 3
"""Letters of an id that are not there by chance."""


def shown(known: Known, story: Story) -> Iterator[str]:
    """Yield what comes out of the record where nothing of it may be."""
    bare = {"rows": list(rows(story, contents=False)), "story": story.as_json(contents=False)}
    yield from kept_back(known, bare, story.asked.offset)


def kept_back(known: Known, answer: Mapping[str, Any], offset: int) -> Iterator[str]:
    """Yield what of a source record is in an answer that may not show it."""
    record = known.records.get(offset)
    contents = [] if record is None else [record.key, record.value, *(value for _, value in record.headers)]
    names = [each.decode(errors="replace") for each in contents if each is not None and len(each) >= LEAST]
    for text in _texts(answer):
        left = _PLACES.sub("", text)
        if re.search(r"\d", left) or any(name in left for name in names):
            yield f"without contents it says {text!r}"


def _texts(found: Any) -> Iterator[str]:
    """Yield all texts of an answer, and the numbers that are no place and no time."""
    for name, each in found.items() if isinstance(found, dict) else enumerate(found):
        if isinstance(each, dict | list | tuple):
            yield from _texts(each)
        elif isinstance(each, str):
            yield each
        elif isinstance(each, int) and not isinstance(each, bool) and name not in _NUMBERS:
            yield f"{name} {each}"
