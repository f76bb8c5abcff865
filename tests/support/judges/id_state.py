"""A partition of mode insert-id without Kafka: its judge, its local store, and a changelog in a list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.judges.exact import ExactIds
from processor.judges.insert_id import BloomIds
from processor.state.changelog import ChangelogBounds
from processor.state.clock_history import ClockHistory
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.encode import plain_batch
from schemas.changelog.position import LocalMark, Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.config import InsertIdDedup
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from processor.engine.batch.columns import Columns
    from processor.engine.receipts import IdGrounds
    from processor.judges.ids import IdJudge
    from processor.state.kv.store import Store

STATE = b"state id 16 byte"
ORIGIN = Origin(0, 0).encode()
NOW_MS = 1_000_000
AHEAD_MS = 300
Row = tuple[bytes, bytes | None]


class Came(NamedTuple):
    """A record: its key, which is its id, its timestamp and its value."""

    key: bytes | None
    timestamp: int
    value: bytes = b"v"


class ListedChangelog:
    """A changelog in a list; None is what has an offset and no record: the marker of a transaction."""

    name = "p-changelog:0"

    def __init__(self) -> None:
        self.rows: list[Row | None] = []
        self.start = 0

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends."""
        return ChangelogBounds(self.start, len(self.rows), len(self.rows))

    async def read(self, start: int, stop: int) -> AsyncIterator[tuple[list[Row], int]]:
        """Yield what stands at each offset, and the next."""
        for at in range(start, stop):
            row = self.rows[at]
            yield ([] if row is None else [row]), at + 1

    async def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        """Yield the same as columns."""
        async for items, after in self.read(start, stop):
            columns = columns_of(items)[0]
            columns.offset[:] = after - 1
            yield columns, after

    def commit(self, rows: Sequence[Row]) -> int:
        """Add a transaction; return the offset behind its last record."""
        self.rows += rows
        end = len(self.rows)
        self.rows.append(None)
        return end

    def offsets(self, kind: bytes) -> list[int]:
        """Return where the records of a kind stand."""
        return [at for at, row in enumerate(self.rows) if row is not None and row[0].startswith(kind)]


class IdPartition:
    """A partition at work.

    Args:
        dedup: Keys of the definition beside mode, id and window.
    """

    def __init__(self, **dedup: Any) -> None:
        given = {"mode": "insert-id", "id": [{"from": "key"}], "max_ahead": AHEAD_MS, **dedup}
        # Windows of some ms: the config has whole seconds, the model of it takes what it is given.
        self.dedup = InsertIdDedup.model_construct(**_validated(given))
        self.changelog = ListedChangelog()
        self.store: Store = MemoryStore()
        self.now_ms = NOW_MS
        self.next_offset = 0
        self.limit_bytes = 1_048_588
        self.open()

    def open(self, store: Store | None = None, *, exact: bool = False) -> Position | None:
        """Restore, from what is in the store, or in another one; what was staged is gone.

        Args:
            store: The other one.
            exact: As a reset does: by the exact backend, whatever the worker has.
        """
        if store is not None:
            self.store = store
        kind = ExactIds if exact or self.dedup.backend == "exact" else BloomIds
        self.judge: IdJudge = kind(self.dedup, lambda: self.now_ms)
        self.table = Table(self.store, self.judge.log)
        position = asyncio.run(restore(self.table, self.changelog, 60, lambda _done, _total: None))
        self.table.flush()
        self.judge.load(self.table)
        self.next_offset = 0 if position is None else position.next_offset
        return position

    def take(self, some: Sequence[Came]) -> IdGrounds:
        """Judge the next records."""
        columns = self.columns(some)
        self.next_offset += len(some)
        return self.judge.judge(self.judge.extract(columns))

    def columns(self, some: Sequence[Came]) -> Columns:
        """Return records as columns, from the next offset on."""
        found, _ = columns_of(plain_batch([(each.key, each.value, 0, ()) for each in some]) if some else [])
        found.timestamp[:] = [each.timestamp for each in some]
        found.offset[:] = self.next_offset + np.arange(len(some))
        return found

    def commit(self, *, locally: bool = True) -> None:
        """Do what the pipeline does; ``locally`` false: the process ends before step 6."""
        position = Position(self.next_offset, 0, 0, bytes(16), STATE, 4)
        changes = {**self.judge.changes(), POSITION_KEY: position.encode()}
        origin = not self.changelog.rows
        rows: list[Row] = [(ORIGIN_KEY, ORIGIN)] if origin else []
        for batch in self.judge.changelog_batches(self.limit_bytes):
            assert batch.size <= self.limit_bytes
            rows += columns_of(batch)[1]
        end = self.changelog.commit([*rows, *changes.items()])
        if locally:
            self.judge.committed()
            if origin:
                self.judge.log.note_origin(ORIGIN)
            self.table.hold(changes, LocalMark(end, STATE))
            self.table.flush()

    def restate(self, origin: Origin) -> None:
        """Do what a reset does: restore without any local state, and write all of it behind an origin."""
        self.open(MemoryStore(), exact=True)
        noted = ClockHistory(self.changelog, self.changelog.start, arrival=False)
        asyncio.run(noted.read(len(self.changelog.rows)))
        assert isinstance(self.judge, ExactIds)
        self.judge.recall(noted.limits() if noted.known_from == 0 else None)
        self.judge.restate()
        position = Position(self.next_offset, 0, 0, bytes(16), b"another 16 bytes", 4)
        changes = {**self.judge.changes(), POSITION_KEY: position.encode()}
        rows: list[Row] = [(ORIGIN_KEY, origin.encode())]
        for batch in self.judge.changelog_batches(self.limit_bytes):
            assert batch.size <= self.limit_bytes
            rows += columns_of(batch)[1]
        self.changelog.commit([*rows, *changes.items()])

    def recording(self) -> ClockHistory:
        """Return what the changelog says of the clock."""
        noted = ClockHistory(self.changelog, self.changelog.start, arrival=self.dedup.time == "arrival")
        asyncio.run(noted.read(len(self.changelog.rows)))
        return noted

    def trim(self) -> bool:
        """Delete what may be deleted in front; returns whether there was something."""
        offset = self.judge.log.take_trim_offset()
        # An older disk knows places that are deleted already: that may be asked for again.
        if offset is None or offset <= self.changelog.start:
            return False
        self.changelog.start = offset
        return True


def _validated(given: dict[str, Any]) -> dict[str, Any]:
    """Return right values by name, whatever the window."""
    window = given.pop("window", 1000)
    bucket = given.get("bloom", {}).pop("bucket", None)
    right = InsertIdDedup.model_validate({**given, "window": "1s", "max_ahead": "1s"})
    found = {name: getattr(right, name) for name in InsertIdDedup.model_fields}
    if bucket is not None:
        found["bloom"] = right.bloom_options.model_copy(update={"bucket": bucket})
    return {**found, "window": window, "max_ahead": given["max_ahead"]}
