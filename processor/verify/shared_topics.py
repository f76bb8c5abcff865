"""Leaves out the records of other pipelines, in a topic that several write to.

Pipelines may share a topic of receipts or of quarantined records: both say where they come from. A certificate
leaves out what another pipeline has written, which that one's certificate checks. Only what says clearly that
it is another's is left out; everything else has to be explained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from processor.engine.batch.columns import Columns
from processor.wire.quarantine import read_record
from processor.wire.receipts import receipt_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from schemas.config import Pipeline

_SOURCE = b"seqmark.source"


class Others(Protocol):
    """Finds records of other pipelines."""

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        """Return bool[n], True where another pipeline has written the record."""
        ...


def others(pipeline: Pipeline, all_pipelines: Iterable[Pipeline]) -> dict[str, Others]:
    """Return by topic what finds the records of other pipelines; a topic that is not shared is not in it."""
    rest = [each for each in all_pipelines if each.name != pipeline.name]
    found: dict[str, Others] = {}
    receipts = [each for each in rest if each.duplicates is not None and each.duplicates == pipeline.duplicates]
    if receipts:
        found[str(pipeline.duplicates)] = _Receipts(receipts)
    held = [each for each in rest if each.quarantine is not None and each.quarantine == pipeline.quarantine]
    if held:
        found[str(pipeline.quarantine)] = _Quarantined(held)
    return found


def without(columns: Columns, others: Others) -> Columns:
    """Return the records that are not another's; their bytes are not copied."""
    rows = np.flatnonzero(~others(columns))
    if rows.size == len(columns):
        return columns
    return Columns(
        columns.data,
        columns.offset[rows],
        columns.timestamp[rows],
        columns.body[rows],
        columns.end[rows],
        columns.key[rows],
        columns.key_length[rows],
        columns.value[rows],
        columns.value_length[rows],
        columns.headers[rows],
    )


class _Receipts:
    """Finds receipts of other pipelines by their first bytes, as a worker writes them."""

    def __init__(self, pipelines: Iterable[Pipeline]) -> None:
        self._begin = [
            np.frombuffer(receipt_prefix(each.name, each.source), np.uint8).copy() for each in pipelines
        ]

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        theirs = np.zeros(len(columns), np.bool_)
        for begin in self._begin:
            rows = np.flatnonzero(columns.value_length >= begin.size)
            at = columns.value[rows, np.newaxis] + np.arange(begin.size)
            theirs[rows[(columns.data[at] == begin).all(axis=1)]] = True
        return theirs


class _Quarantined:
    """Finds quarantined records of other pipelines by the source that their last header names."""

    def __init__(self, pipelines: Iterable[Pipeline]) -> None:
        self._sources = {each.source.encode() for each in pipelines}

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        return np.array([self._theirs(columns, row) for row in range(len(columns))], np.bool_)

    def _theirs(self, columns: Columns, row: int) -> bool:
        name, content = (read_record(columns, row)[3] or [(b"", None)])[-1]
        return name == _SOURCE and (content or b"").rsplit(b":", 2)[0] in self._sources
