"""What does the worker ask of whoever judges a partition, and what is it told?

A `Judge` joins an extractor, an engine and the layout of their state. It is the seam for modes and scopes: a
new one is a new `Judge`, nothing around it changes. It holds the staged state, which runs ahead of the table
by what the open transaction has judged (trap 11: records see what came earlier in the same transaction); when
a transaction fails the judge is dropped with everything else and loaded anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from processor.engine.id_receipts import IdGrounds
from processor.engine.receipts import Grounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.ids import Ids
    from processor.state.state_log import StateLog
    from processor.state.table import Table
    from processor.wire.encode import EncodedBatch


@dataclass(slots=True)
class Evidence:
    """What the records of some columns are judged by.

    Attributes:
        sequence: int64[n]; int64[0] in mode insert-id.
        fault: uint8[n], `Fault` codes; more may be written into it before judging.
        epoch: int64[n], where the definition has one.
        scope: Where scopes stand, where there are many: int64[n] begin and int64[n] size in ``data``.
        data: uint8[m], of the columns: good as long as they are.
        ids: In mode insert-id; its faults are those of ``fault``.
        offset: int64[n], in mode insert-id.
        timestamp: int64[n], in mode insert-id.
        place: int64[n], what an id's owner is called where that is not its offset
        (`processor.engine.repartition`).
    """

    sequence: NDArray[np.int64]
    fault: NDArray[np.uint8]
    epoch: NDArray[np.int64] | None = None
    scope: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    data: NDArray[np.uint8] | None = None
    ids: Ids | None = None
    offset: NDArray[np.int64] | None = None
    timestamp: NDArray[np.int64] | None = None
    place: NDArray[np.int64] | None = None

    @property
    def owner(self) -> NDArray[np.int64] | None:
        """What the owner of an id is called: int64[n], in mode insert-id."""
        return self.offset if self.place is None else self.place

    def before(self, row: int) -> Evidence:
        """Return that of the records before ``row``."""
        return Evidence(
            self.sequence[:row],
            self.fault[:row],
            None if self.epoch is None else self.epoch[:row],
            None if self.scope is None else (self.scope[0][:row], self.scope[1][:row]),
            self.data,
            None if self.ids is None else self.ids.before(row),
            None if self.offset is None else self.offset[:row],
            None if self.timestamp is None else self.timestamp[:row],
            None if self.place is None else self.place[:row],
        )

    def after(self, row: int) -> Evidence:
        """Return that of the records from ``row`` on, in mode insert-id."""
        assert self.ids is not None and self.offset is not None and self.timestamp is not None  # noqa: S101, PT018 - it is
        return Evidence(
            self.sequence,
            self.fault[row:],
            data=self.data,
            ids=self.ids.after(row),
            offset=self.offset[row:],
            timestamp=self.timestamp[row:],
            place=None if self.place is None else self.place[row:],
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts and what they were based on.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        watermark: int64[n], as it stood before each record in its scope; 0 where there was none. int64[0] in
            mode insert-id.
        known: bool[n], whether there was one; None where the judge does not tell.
        epoch: int64[n], the scope's epoch before each record; None where the definition has none.
        owner: int64[n], in mode insert-id: of a duplicate, the offset of the record that passed; -1 otherwise,
            and where nobody knows.
        expires_ms: int64[n], in mode insert-id: of a duplicate, when its id expires; 0 likewise.
    """

    verdict: NDArray[np.uint8]
    watermark: NDArray[np.int64]
    known: NDArray[np.bool_] | None = None
    epoch: NDArray[np.int64] | None = None
    owner: NDArray[np.int64] | None = None
    expires_ms: NDArray[np.int64] | None = None

    def grounds(self, evidence: Evidence) -> Grounds | IdGrounds:
        """Return what receipts say, of the records that were judged by ``evidence``."""
        if evidence.ids is None or self.owner is None or self.expires_ms is None:
            return Grounds(self.verdict, evidence.sequence, self.watermark, evidence.epoch)
        return IdGrounds(self.verdict, evidence.ids, self.owner, self.expires_ms)


class ClockStats(NamedTuple):
    """What the clock of a partition in mode insert-id has met.

    Attributes:
        clock_ms: As committed; None before the first record.
        behind: Records with a timestamp below it.
        ahead: Records with one further ahead than is believed.
        false_positive_rate: At which a new id is now taken for an old one by the filters; None: there are none.
    """

    clock_ms: int | None
    behind: int
    ahead: int
    false_positive_rate: float | None = None


class Judge(Protocol):
    """Judges the records of one source partition, in offset order."""

    @property
    def log(self) -> StateLog | None:
        """What the table keeps and restores in bulk; None: everything goes through `load` and `changes`."""
        ...

    def load(self, table: Table) -> None:
        """Take the state that is committed."""
        ...

    def extract(self, columns: Columns) -> Evidence:
        """Read what the records are judged by; touches no state."""
        ...

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge, and stage the state after the last record."""
        ...

    def changes(self) -> dict[bytes, bytes | None]:
        """Return what is staged beyond the last `committed`, as changelog keys and values."""
        ...

    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        """Return what is staged in bulk, one record a changed scope, in batches of at most ``limit_bytes``.

        Raises:
            StopError: One record alone is larger.
        """
        ...

    def restate(self) -> None:
        """Stage the whole state, whether it has changed or not: what is written next is all there is."""
        ...

    def committed(self) -> None:
        """Note that the changes are committed."""
        ...

    def size(self) -> tuple[int, int]:
        """Return how many scopes there are, or ids, and how many bytes they take."""
        ...

    def times(self) -> ClockStats | None:
        """Return what the partition's clock says and has said since the last call; None: it has none."""
        ...

    def watermarks(self) -> Iterable[int]:
        """Return what the metric shows: at most one number a partition."""
        ...
