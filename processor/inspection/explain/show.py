"""Lays a story out for people: the sentence, then a table of what is known.

Whatever came out of records is escaped where it is printed, and shortened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from processor.config.visible import visible
from processor.inspection.explain.story import Outcome
from processor.inspection.read.sentences import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.inspection.explain.story import PassedOwner, ShownRecord, Story

_MOST_SHOWN = 160
"""Characters of a key or a value: two lines of a terminal."""
_MOST_HEADERS = 8
_SEQUENCE = {"sequence": "its sequence", "watermark": "the sequence watermark before it", "epoch": "its epoch"}


def rows(story: Story, *, contents: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table: what it is, and what is known of it.

    Args:
        story: The answer.
        contents: Whether keys, values, headers, ids and sequences may be in it.
    """
    yield "verdict", _verdict(story)
    yield "pipeline", f"{story.pipeline}{f', mode {story.mode}' if story.mode else ''}"
    if story.source is not None and story.source != story.asked:
        yield "asked for", f"{story.asked} ({story.role})"
    if story.record is not None:
        yield from _record("the record", story.record, contents=contents)
    if contents:
        yield from _compared(story)
    elif story.grounds.code is not None:
        yield "cannot be judged", story.grounds.code
    if story.owner is not None:
        yield from _passed(story.owner, contents=contents)
    yield from _times(story)
    if story.verdict is not None:
        place = "it is left out" if story.clean is None else f"source position {story.clean}"
        yield "in the clean stream", f"{place}, said by verdict record {story.verdict}"
    clean = None if story.verdict is not None else story.clean
    for name, ref in (("clean", clean), ("receipt", story.receipt), ("quarantine", story.quarantine)):
        if ref is not None:
            yield f"in {name}", str(ref)
    yield from _around(story)


def _times(story: Story) -> Iterator[tuple[str, str]]:
    if story.clock_ms is not None:
        yield "the clock's reading when its id was remembered", time_text(story.clock_ms)
    if story.expires_ms is not None:
        least = "not before " if story.expires_least else ""
        yield "passes again from", f"{least}{time_text(story.expires_ms)} of the partition's clock"


def _around(story: Story) -> Iterator[tuple[str, str]]:
    if story.position is not None:
        yield "judged up to", f"offset {story.position}"
    if story.certificate is not None:
        yield "last certificate", story.certificate
    for each in story.earlier:
        yield "an earlier run", f"{each.outcome.value}: {each.ref}"
    for note in story.notes:
        yield "note", note
    for problem in story.problems:
        yield "wrong", problem


def _verdict(story: Story) -> str:
    said = story.outcome.value.replace("_", " ")
    if story.outcome is Outcome.COLLISION and story.grounds.action:
        said += f" ({story.grounds.action})"
    return f"{said}, observed" if story.observed else said


def _record(name: str, record: ShownRecord, *, contents: bool) -> Iterator[tuple[str, str]]:
    yield name, f"{record.ref}, {time_text(record.timestamp_ms)}"
    if not contents:
        return
    yield "  key", _short(record.key)
    yield "  value", _short(record.value)
    if record.headers:
        some = record.headers[:_MOST_HEADERS]
        said = ", ".join(f"{_short(header)}={_short(content)}" for header, content in some)
        more = len(record.headers) - len(some)
        yield "  headers", said + (f" and {more} more" if more else "")


def _compared(story: Story) -> Iterator[tuple[str, str]]:
    grounds = story.grounds
    for name, words in _SEQUENCE.items():
        if (number := getattr(grounds, name)) is not None:
            yield words, str(number)
    if grounds.scope:
        yield "its scope", _short(grounds.scope)
    if grounds.id is not None:
        yield "its id", visible(_cut(", ".join(orjson.dumps(part).decode() for part in grounds.id)))
    if grounds.fingerprint is not None:
        yield (
            "its fingerprint",
            f"{grounds.fingerprint}, that of the record that had passed {grounds.owner_fingerprint}",
        )
    if grounds.new_id is not None:
        yield "its new id", grounds.new_id
    if grounds.code is not None:
        yield "cannot be judged", f"{grounds.code}{f': {grounds.detail}' if grounds.detail else ''}"


def _passed(owner: PassedOwner, *, contents: bool) -> Iterator[tuple[str, str]]:
    name = "compared with"
    if owner.backfill is not None:
        yield name, f"a record of backfill {owner.backfill}"
    elif owner.record is not None:
        yield from _record(name, owner.record, contents=contents)
    elif owner.ref is not None:
        yield name, str(owner.ref)
    if owner.clean is not None:
        # Of verdicts alone the clean stream is the source.
        yield "  in the clean stream" if owner.clean == owner.ref else "  in clean", str(owner.clean)
    if owner.differs is not None and contents:
        yield "  differs in", ", ".join(map(visible, owner.differs)) or "nothing: the same bytes"
    if owner.note:
        yield "  note" if owner.ref is not None else name, owner.note


def _short(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    # A character takes up to four bytes.
    return _cut(visible(raw[: 4 * _MOST_SHOWN])) if raw else '""'


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
