"""A changelog partition as what restores a state sees it, and what is read of it whatever its state means.

`processor.kafka.reader` has it in Kafka. A reset may change what records are judged by: then the state in
the changelog cannot be read by the judge of now, and need not be. Two records of it are enough, its *head*: the
position and the origin. A certificate needs no more either.
"""

from __future__ import annotations

from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from processor.errors import StopError
from schemas.changelog.ids import IDS_KEY, ORIGIN_COPY_KEY, IdState
from schemas.changelog.position import Origin, Position
from schemas.changelog.values import BROUGHT_KIND, ORIGIN_KEY, POSITION_KEY, CorruptStateError
from schemas.changelog.watermark import brought_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

LAST_RECORDS = 16
"""Offsets at a changelog's end that are read first: the last commit's state, position and end."""


class ChangelogBounds(NamedTuple):
    """Offsets of a changelog partition."""

    start: int
    stable: int
    end: int


class Changelog(Protocol):
    """Reads one changelog partition."""

    name: str
    """``topic:partition``, for messages."""

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends now."""
        ...

    def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        """Yield committed records, good until the next await, and the position after them, up to ``stop``."""
        ...


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
    async with aclosing(_heads(changelog, start, stop, head)) as heads:
        async for each in heads:
            head = each
    return head


async def _heads(
    changelog: Changelog, start: int, stop: int, head: ChangelogHead = NOTHING_READ
) -> AsyncGenerator[ChangelogHead]:
    """Yield the head, after each part that is read."""
    async for found, _ in changelog.columns(start, stop):
        # A fetch brings what lies behind, too.
        columns = found.rows(0, int(found.offset.searchsorted(stop)))
        position, origin, copy = (_last(columns, key) for key in (POSITION_KEY, ORIGIN_KEY, ORIGIN_COPY_KEY))
        with whole(changelog):
            if origin is not None:
                head = ChangelogHead(None, Origin.decode(origin))
            elif copy is not None and head.origin is None:
                # What stood in front was deleted; the state goes on.
                head = ChangelogHead(head.position, Origin.decode(copy))
            if position is not None:
                # Of one transaction the origin comes first.
                head = ChangelogHead(Position.decode(position), head.origin)
        yield head


async def origin_of(changelog: Changelog, state_id: bytes) -> Origin | None:
    """Return where the state ``state_id``, which is the changelog's last, begins; None: nobody tells.

    Whatever compaction or deleting has left: the newest origin stays where it was, its copies come behind any
    number of positions, and that of the first commit may be gone. So all is read until a position of the state
    stands behind one; an origin in front of another state's position is that state's.

    Raises:
        StopError: It is corrupt.
        RebuildError: It is not to be had.
    """
    limits, head = await changelog.bounds(), NOTHING_READ
    async with aclosing(_heads(changelog, limits.start, limits.stable)) as heads:
        async for head in heads:
            if head.origin is not None and _is_of(head.position, state_id):
                return head.origin
    return None


def _is_of(position: Position | None, state_id: bytes) -> bool:
    return position is not None and position.state_id == state_id


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


@contextmanager
def whole(changelog: Changelog) -> Iterator[None]:
    """Stop where a value is corrupt: there is no second copy of what it knew."""
    try:
        yield
    except CorruptStateError as error:
        raise StopError(f"{changelog.name}: {error}; restore the topic from a copy") from error


def rows_under(columns: Columns, *keys: bytes) -> NDArray[np.int64]:
    """Return the rows, in order, of the records under some keys of one byte."""
    short = np.flatnonzero(columns.key_length == 1)
    return short[np.isin(columns.data[columns.key[short]], np.frombuffer(b"".join(keys), np.uint8))]


def brought_rows(columns: Columns) -> NDArray[np.int64]:
    """Return the rows, in order, of the blocks of scopes that a backfill has brought."""
    rows = np.flatnonzero(columns.key_length == len(brought_key(0)))
    found: NDArray[np.int64] = rows[columns.data[columns.key[rows]] == BROUGHT_KIND[0]]
    return found


async def read_brought(changelog: Changelog, start: int, stop: int) -> list[tuple[bytes, bytes]]:
    """Return key and value of the blocks of scopes that the state of now began with.

    Raises:
        RebuildError: It is not to be had.
    """
    found: list[tuple[bytes, bytes]] = []
    async for some, _ in changelog.columns(start, stop):
        columns = some.rows(0, int(some.offset.searchsorted(stop)))
        begin = -1
        if (origins := rows_under(columns, ORIGIN_KEY)).size:
            found, begin = [], int(origins[-1])
        rows = brought_rows(columns)
        found += [(key, value or b"") for key, value in columns.items(rows[rows > begin])]
    return found


async def read_secret(changelog: Changelog) -> bytes | None:
    """Return the key of the ids' hash, as the last record that is whole says it; None: nobody knows it.

    A record that is corrupt is passed over: it may be why the state begins again.

    Raises:
        RebuildError: It is not to be had.
    """
    limits, secret = await changelog.bounds(), None
    async for columns, _ in changelog.columns(limits.start, limits.stable):
        for _, value in columns.items(rows_under(columns, IDS_KEY)):
            with suppress(CorruptStateError):
                secret = IdState.decode(value or b"").secret
    return secret


def _last(columns: Columns, key: bytes) -> bytes | None:
    rows = rows_under(columns, key)
    return columns.items(rows[-1:])[0][1] if rows.size else None
