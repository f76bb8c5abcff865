"""A partition's state as Kafka has committed it.

A `Table` is a partition's changelog-backed state. It is read when a partition is assigned, and written only
after the transaction that carries the same changes has committed, so it can lag what Kafka knows and never
lead it. A state that leads loses records: a replayed record would be a duplicate of itself and be dropped.

There is no rollback: when a transaction fails the table is closed, opened again and restored.

What is small is written at each commit. State in bulk (a `StateLog`) says when it is due: until then changes
are only held, the local state lags the changelog by that, and its mark says so.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from processor.state.state_log import NO_BULK
from schemas.changelog.position import LocalMark, Position
from schemas.changelog.values import LOCAL_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from processor.state.kv.store import Store
    from processor.state.state_log import StateLog


class Table:
    """One partition's committed state.

    Attributes:
        store: Where it survives; closed with the table.
        log: State in bulk.
        changelog_end: Where the changelog ended when it was restored.
    """

    def __init__(self, store: Store, log: StateLog = NO_BULK) -> None:
        self.store = store
        self.log = log
        self.changelog_end = 0
        self._held: dict[bytes, bytes | None] = {}
        self._mark: LocalMark | None = None
        self._written_at_s: float | None = None

    def position(self) -> Position | None:
        """Return how far the source is judged; None: this partition has no state yet.

        Raises:
            CorruptStateError: The stored value is not whole.
        """
        value = self._held.get(POSITION_KEY) or self.store.get(POSITION_KEY)
        return None if value is None else Position.decode(value)

    def mark(self) -> LocalMark | None:
        """Return how far the changelog has been applied; None: nothing of it. Raises as `position`."""
        value = self.store.get(LOCAL_KEY)
        return None if value is None else LocalMark.decode(value)

    def load_log(self) -> Generator[None, None, None]:
        """Have the log read what is in the store, step by step; in whatever thread.

        Raises:
            CorruptStateError: It is not whole, or of another form.
        """
        # Closed whatever comes: a store cannot be thrown away while somebody reads in it.
        with closing(self.store.items(b"")) as items:
            yield from self.log.load(items)

    def apply(self, changes: Mapping[bytes, bytes | None], mark: LocalMark) -> None:
        """Take over what the changelog has committed, with the mark, in one write."""
        self.hold(changes, mark)
        self.flush()

    def hold(self, changes: Mapping[bytes, bytes | None], mark: LocalMark) -> None:
        """Take over what the changelog has committed up to ``mark``; the log has it already. Writes nothing."""
        self._held.update(changes)
        self._mark = mark
        self.log.reached(mark.changelog_offset)

    def stage(self, values: Mapping[bytes, bytes | None] | None = None) -> None:
        """Write what the log has so far, and ``values``, without a mark.

        A crash before `flush` leaves nothing to believe.
        """
        erased = self.log.erased()
        self.store.write({**(values or {}), **self.log.write(sweeping=False)}, erased)

    def due(self, now_s: float) -> bool:
        """Whether what is held should be written now."""
        if self._written_at_s is None:
            self._written_at_s = now_s
        return self.log.due(now_s - self._written_at_s)

    def flush(self, now_s: float | None = None) -> None:
        """Write all that is held and all that is new in the log, with the mark, in one write."""
        self._written_at_s = now_s
        if self._mark is None:
            return
        erased, bulk = self.log.erased(), self.log.write()
        self.store.write({**self._held, **bulk, LOCAL_KEY: self._mark.encode()}, erased)
        self._held, self._mark = {}, None

    def clear(self) -> None:
        """Forget everything: the changelog is the authority and can be read again."""
        self.store.clear()
        self.rewind()

    def rewind(self) -> None:
        """Forget all that is not in the store: what is held, and what the log has in memory."""
        self._held, self._mark = {}, None
        self.log.clear()

    def close(self) -> None:
        """Release the store."""
        self.store.close()
