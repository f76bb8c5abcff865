"""Reads the position and the origin in a changelog, whatever its state means.

A reset may change what records are judged by. Then the state in the changelog cannot be read by the judge of
now, and need not be: two records of it are enough. A certificate needs no more either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import StopError
from schemas.changelog.ids import ORIGIN_COPY_KEY
from schemas.changelog.position import Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY, CorruptStateError

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns
    from processor.state.changelog import Changelog

LAST_RECORDS = 16
"""Offsets at a changelog's end that are read first: the last commit's state, position and end."""


class ChangelogHead(NamedTuple):
    """The last of each; None: there is none."""

    position: Position | None = None
    origin: Origin | None = None


NOTHING_READ = ChangelogHead()


async def read_head(
    changelog: Changelog, start: int, stop: int, head: ChangelogHead = NOTHING_READ
) -> ChangelogHead:
    """Return what stands in a changelog between two offsets, after ``head``.

    Raises:
        StopError: It is corrupt.
        RebuildError: It is not to be had.
    """
    async for found, _ in changelog.columns(start, stop):
        # A fetch brings what lies behind, too.
        columns = found.rows(0, int(found.offset.searchsorted(stop)))
        try:
            position, origin = _last(columns, POSITION_KEY), _last(columns, ORIGIN_KEY)
            copy = _last(columns, ORIGIN_COPY_KEY)
            if origin is not None:
                head = ChangelogHead(None, Origin.decode(origin))
            elif copy is not None and head.origin is None:
                # What stood in front was deleted; the state goes on.
                head = ChangelogHead(head.position, Origin.decode(copy))
            if position is not None:
                # Of one transaction the origin comes first.
                head = ChangelogHead(Position.decode(position), head.origin)
        except CorruptStateError as error:
            raise StopError(f"{changelog.name}: {error}; restore the topic from a copy") from error
    return head


async def last_position(changelog: Changelog) -> Position | None:
    """Return the last position in a changelog; None where there is none."""
    limits = await changelog.bounds()
    count = LAST_RECORDS
    while True:
        start = max(limits.start, limits.stable - count)
        position = (await read_head(changelog, start, limits.stable)).position
        if position is not None or start == limits.start:
            return position
        count *= LAST_RECORDS


def _last(columns: Columns, key: bytes) -> bytes | None:
    """Return the last value under a key of one byte; a position is written with every commit."""
    named = np.flatnonzero(columns.key_length == len(key))
    rows = named[columns.data[columns.key[named]] == key[0]]
    return columns.items(rows[-1:])[0][1] if rows.size else None
