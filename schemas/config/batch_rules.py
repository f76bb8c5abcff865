"""Finds values of the batches that are wrong together.

As in `schemas.config.rules`, which calls this: rules look at right values only, so that a wrong one does not
hide the others.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from schemas.config.batches import TOPIC_COLUMNS, TOPIC_TIME, BatchInput, BatchOutput, BatchRename, TopicInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Where = tuple[str | int, ...]
Violation = tuple[Where, str]


def batch_violations(
    batches: Sequence[Mapping[str, Any]], written: Sequence[Mapping[str, Any]]
) -> Iterator[Violation]:
    """Yield every broken rule of the batches.

    Args:
        batches: Right values of them.
        written: The same as they were written: a key with a wrong value is not a missing one.
    """
    for index, (batch, table) in enumerate(zip(batches, written, strict=True)):
        for where, message in [*_columns(batch), *_types(batch, table), *_collisions(batch, table)]:
            yield ("batches", index, *where), message
    yield from _folders(batches)


def _columns(batch: Mapping[str, Any]) -> Iterator[Violation]:
    parts = batch.get("id", [])
    for number, column in enumerate(parts):
        if column in parts[:number]:
            yield ("id", number), f"is {column} once more: a column makes an id once"
    for column in batch.get("normalise", {}):
        if parts and column not in parts:
            yield ("normalise", column), f"must be a column of the id: {', '.join(parts)}"
    if not isinstance(batch.get("input"), TopicInput):
        return
    for number, column in enumerate(parts):
        if column in TOPIC_COLUMNS:
            yield ("id", number), f"is {column}: an id is made of fields of the records' values"
    if (time := batch.get("event_time")) in TOPIC_COLUMNS and time != TOPIC_TIME:
        yield ("event_time",), f"is {time}, which is no time: write {TOPIC_TIME}, or a field of the values"


def _types(batch: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[Violation]:
    source = batch.get("input")
    if isinstance(source, BatchInput) and source.format != "json":
        for key in ("columns", "schema"):
            if key in written:
                yield (key,), f'has no effect with format "{source.format}": its files say their types'


def _collisions(batch: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[Violation]:
    action = batch.get("on_collision")
    if action is None:
        return
    if "fingerprint" not in written:
        for key in ("on_collision", "rename", "rename_first"):
            if key in written:
                yield (key,), "needs fingerprint: without it nothing tells a collision from a duplicate"
        return
    if action == "quarantine" and "quarantine" not in written:
        yield ("on_collision",), '"quarantine" needs a folder for it: set quarantine'
    if action == "rename":
        yield from _rename(batch, written)
        return
    for key in ("rename", "rename_first"):
        if written.get(key):
            yield (key,), f'has no effect with on_collision "{action}"; write on_collision = "rename"'


def _rename(batch: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[Violation]:
    parts, rename = batch.get("id", []), batch.get("rename")
    if isinstance(rename, BatchRename) and rename.to not in parts:
        yield ("rename", "to"), f"must be a column of the id: {', '.join(parts)}"
    elif len(parts) > 1 and "rename" not in written:
        yield ("rename",), f"is needed, for the id has several columns: write rename = {{ to = {parts[0]!r} }}"
    elif parts:
        to = rename.to if isinstance(rename, BatchRename) else parts[0]
        if to in batch.get("normalise", {}):
            yield ("normalise", to), "cannot be normalised: the column gets new ids, which count as they are"


def _folders(batches: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """What is written has a place of its own; what is read may be shared, but is not what the batch writes."""
    seen: list[tuple[Where, str, bool]] = []
    for index, batch in enumerate(batches):
        for where, path, writes in _places(batch):
            here: Where = ("batches", index, *where)
            for other, there, written in seen:
                if (writes or written) and _overlap(path, there):
                    yield here, f"lies in or around {'.'.join(map(str, other))}; each needs a folder of its own"
                    break
            seen.append((here, path, writes))


def _places(batch: Mapping[str, Any]) -> Iterator[tuple[Where, str, bool]]:
    source, output = batch.get("input"), batch.get("output")
    if isinstance(source, BatchInput):
        yield ("input", "path"), source.path, False
    if isinstance(output, BatchOutput):
        yield ("output", "path"), output.path, True
    for key in ("duplicates", "quarantine"):
        if batch.get(key) is not None:
            yield (key,), batch[key], True


def _overlap(one: str, other: str) -> bool:
    first, second = (posixpath.normpath(each) + "/" for each in (one, other))
    return first.startswith(second) or second.startswith(first)
