"""Reads from a changelog's end whether there is a state, or a backfill that is not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.state.belonging import require_own
from processor.state.changelog import LAST_RECORDS, read_head, rows_under, whole
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.ids import IDS_KEY, IdState
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY

if TYPE_CHECKING:
    from processor.state.changelog import Changelog, ChangelogBounds


class FoundState(NamedTuple):
    """What a changelog partition ends with.

    Attributes:
        position: Of its state; None: it has none.
        backfill: The name of the backfill that the state began with; empty where there was none.
        progress: Of a backfill that is not whole.
    """

    position: Position | None = None
    backfill: str = ""
    progress: BackfillProgress | None = None


async def find(
    changelog: Changelog, limits: ChangelogBounds, application: str, pipeline: str, *, sequences: bool = False
) -> FoundState:
    """Return what a changelog ends with: each transaction ends with a position or with how far it has come.

    Args:
        changelog: Of a partition.
        limits: Of it.
        application: Whose it must be.
        pipeline: Likewise.
        sequences: It is of mode watermark, where only the state's beginning names the backfill.

    Raises:
        StopError: It is corrupt, or another pipeline's.
        RebuildError: It cannot be read.
    """
    count = LAST_RECORDS
    while True:
        start = max(limits.start, limits.stable - count)
        found = FoundState()
        async for columns, _ in changelog.columns(start, limits.stable):
            with whole(changelog):
                rows = rows_under(columns, POSITION_KEY, IDS_KEY, BACKFILL_KEY)
                for key, value in columns.items(rows):
                    found = _after(found, key, value or b"")
        if found.position is not None:
            require_own(found.position, application, pipeline, changelog.name)
            if sequences:
                head = await read_head(changelog, limits.start, limits.stable)
                found = found._replace(backfill="" if head.origin is None else head.origin.backfill)
        if found.position is not None or found.progress is not None or start == limits.start:
            return found
        count *= LAST_RECORDS


def _after(found: FoundState, key: bytes, value: bytes) -> FoundState:
    if key == BACKFILL_KEY:
        return FoundState(progress=BackfillProgress.decode(value))
    if key == IDS_KEY:
        return found._replace(backfill=IdState.decode(value).backfill)
    return FoundState(Position.decode(value), found.backfill)
