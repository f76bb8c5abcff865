"""Draws the archive over event time: raw rows against clean ones above, what was dropped below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.demo.batch.archive import COLLISIONS_AT_REST, COPIES_AT_REST, RowKind, all_rows
from processor.demo.picture import CLEAN, MUTED, RAW, Cleaning, TimeBand, draw_cleaning

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from processor.demo.batch.archive import ArchiveRow
    from processor.demo.batch.runs import ArchiveRuns

_STEP_MS = 3_600_000
_LABELS = {RowKind.COPY: "copies within a run", RowKind.COPY_ACROSS: "copies of earlier runs"}


def draw_archive(runs: ArchiveRuns, path: Path, title: str) -> None:
    """Write the picture; the ending of ``path`` says whether as SVG or PNG."""
    kept = runs.checked.fate
    there = {id(each) for each in kept}
    dropped = [row for row in all_rows(runs.days) if id(row) not in there]
    raw, clean = _times(all_rows(runs.days)), _times(kept)
    bands = [
        TimeBand(_LABELS[kind], colour, _times(row for row in dropped if row.kind is kind))
        for kind, colour in zip(COPIES_AT_REST, MUTED, strict=False)
    ]
    collided = _times(row for row in kept if row.kind in COLLISIONS_AT_REST)
    said = f"kept under new ids, for theirs were taken: {collided.size:,}"
    shown = Cleaning(
        TimeBand(f"raw files: {raw.size:,} rows", RAW, raw),
        TimeBand(f"clean table: {clean.size:,} rows", CLEAN, clean),
        bands,
        TimeBand(said, CLEAN, collided),
        _STEP_MS,
        "an hour",
        "%d %b %H:%M",
    )
    draw_cleaning(shown, path, title)


def _times(rows: Iterable[ArchiveRow]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the times of the rows that have one."""
    return np.array([row.time_ms for row in rows if row.time_ms >= 0], np.int64)
