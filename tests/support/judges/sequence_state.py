"""A partition of mode watermark without Kafka: its judge, its local store, and a changelog in a list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from processor.judges.watermark import WatermarkMode
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.encode import plain_batch
from schemas.changelog.position import LocalMark, Position
from schemas.changelog.values import POSITION_KEY
from schemas.config import WatermarkDedup
from tests.support.judges.id_state import STATE, ListedChangelog, Row
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns
    from processor.engine.receipts import ReceiptGrounds
    from processor.judges.judge import Judge
    from processor.state.kv.store import Store
    from tests.support.judges.rules import Rules
    from tests.support.kafka.topics import New


class SequencePartition:
    """A partition at work.

    Args:
        rules: By which it judges.
    """

    def __init__(self, rules: Rules) -> None:
        given = {"mode": "watermark", "sequence": rules.sequence, **rules.dedup}
        self.dedup = WatermarkDedup.model_validate(given)
        self.changelog = ListedChangelog()
        self.store: Store = MemoryStore()
        self.next_offset = 0

    def judge_of(self) -> Judge[Any]:
        """Return a new judge, with no state yet."""
        return WatermarkMode(self.dedup, "p").judge()

    def open(self, store: Store | None = None) -> Position | None:
        """Restore, from what is in the store, or in another one; what was staged is gone."""
        if store is not None:
            self.store = store
        self.judge = self.judge_of()
        self.table = Table(self.store, self.judge.log)
        position = asyncio.run(restore(self.table, self.changelog, 60, lambda _done, _total: None))
        self.table.flush()
        self.judge.load(self.table)
        self.next_offset = 0 if position is None else position.next_offset
        return position

    def take(self, some: Sequence[New]) -> ReceiptGrounds:
        """Judge the next records."""
        self.next_offset += len(some)
        return self.judge.judge(self.judge.extract(columns(some)))

    def commit(self) -> None:
        """Do what the pipeline does."""
        position = Position(self.next_offset, 0, 0, bytes(16), STATE, 4)
        changes = {**self.judge.changes(), POSITION_KEY: position.encode()}
        rows: list[Row] = []
        for batch in self.judge.changelog_batches(1_048_588):
            rows += columns_of(batch)[1]
        end = self.changelog.commit([*rows, *changes.items()])
        self.judge.committed()
        self.table.hold(changes, LocalMark(end, STATE))
        self.table.flush()


def columns(some: Sequence[New]) -> Columns:
    """Return records as columns."""
    batch = [(each.key, each.value, each.timestamp, each.headers) for each in some]
    return columns_of(plain_batch(batch) if batch else [])[0]
