"""Judges the rows of one bucket of ids, and puts the verdicts aside by split: step 6.

A row that passes and that nothing collides with is the common case, and has no entry: what is not mentioned is
kept as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.rest import RestRows, Verdict, judge_rows
from spark_sink.batch.staging import (
    HIGH,
    KEYS,
    LOW,
    OLD,
    OLD_NAME,
    PRINT,
    ROW,
    TIME,
    VERDICTS,
    read_names,
    read_part,
    staged,
    write_parted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan, Split
    from spark_sink.batch.staging import Name

_ROW_BITS = 40
"""Of a place: a file has fewer than 10^12 rows; a run, and what matches, come of fewer than 8 million files."""


class JudgedBucket(NamedTuple):
    """What became of the rows of a bucket; ``renamed`` of them get new ids."""

    duplicates: int
    collisions: int
    renamed: int


def judge(plan: RunPlan, bucket: int, splits: Sequence[Split], probed: int) -> JudgedBucket:
    """Put the verdicts of a bucket aside.

    Args:
        plan: Of the run.
        bucket: Its number.
        splits: All of the run.
        probed: In how many parts the table was looked at.
    """
    new = [read_part(staged(plan.staging, KEYS, each.number), bucket) for each in splits]
    split = np.repeat(np.array([each.number for each in splits], np.int64), [len(each) for each in new])
    keys = np.concatenate([np.zeros((0, 5), np.int64), *new])
    old, old_names = _remembered(plan, bucket, probed)
    of_split = {each.number: (plan.names[each.file], plan.run) for each in splits}
    names = sorted({*of_split.values(), *old_names})
    number = {name: at for at, name in enumerate(names)}
    # Files are in the order of their names, those of equal names in the order of the run.
    file = np.array([each.file for each in splits], np.int64)[split] if len(splits) else split
    rank = np.array([number[name] for name in old_names], np.int64)
    prints = plan.exclude is not None
    said = judge_rows(
        _rows(keys, file, prints=prints),
        _rows(old, rank[old[:, OLD_NAME]] if len(old) else np.zeros(0, np.int64), prints=prints),
        plan.window_us,
        keep_collisions=plan.on_collision not in {"quarantine", "drop"},
    )
    told = np.flatnonzero((said.verdict != Verdict.PASS) | (said.collided & plan.rename_first))
    count, owner = len(keys), said.owner[told]
    ours = (owner >= 0) & (owner < count)
    theirs = owner >= count
    owner_name, owner_row = np.full((2, told.size), -1, np.int64)
    own = np.array([number[of_split[each.number]] for each in splits], np.int64)
    owner_name[ours], owner_row[ours] = own[split[owner[ours]]], keys[owner[ours], ROW]
    found = old[owner[theirs] - count]
    owner_name[theirs], owner_row[theirs] = rank[found[:, OLD_NAME]], found[:, ROW]
    verdict = said.verdict[told].astype(np.int64)
    columns = keys[told, ROW], verdict, owner_name, owner_row, said.collided[told].astype(np.int64)
    rows = np.stack(columns, axis=1)
    write_parted(staged(plan.staging, VERDICTS, bucket), rows, split[told], len(splits), names)
    duplicates, collisions = (
        int((said.verdict == each).sum()) for each in (Verdict.DUPLICATE, Verdict.COLLISION)
    )
    firsts = int(said.collided.sum()) if plan.rename_first else 0
    return JudgedBucket(duplicates, collisions, collisions + firsts if plan.renamed is not None else 0)


def _remembered(plan: RunPlan, bucket: int, probed: int) -> tuple[NDArray[np.int64], list[Name]]:
    """Return the rows of earlier runs of a bucket, and the names that they have numbers of."""
    parts: list[NDArray[np.int64]] = [np.zeros((0, 6), np.int64)]
    names: dict[Name, int] = {}
    for each in range(probed):
        file = staged(plan.staging, OLD, each)
        rows = read_part(file, bucket)
        if not len(rows):
            continue
        numbers = np.array([names.setdefault(name, len(names)) for name in read_names(file)], np.int64)
        rows[:, OLD_NAME] = numbers[rows[:, OLD_NAME]]
        parts.append(rows)
    return np.concatenate(parts), list(names)


def _rows(keys: NDArray[np.int64], file: NDArray[np.int64], *, prints: bool) -> RestRows:
    hashes = np.ascontiguousarray(keys[:, [LOW, HIGH]]).view(np.uint64)
    marks = np.ascontiguousarray(keys[:, PRINT]).view(np.uint64) if prints else np.zeros(0, np.uint64)
    place = (file << _ROW_BITS) | keys[:, ROW]
    return RestRows(hashes, marks, np.ascontiguousarray(keys[:, TIME]), place)
