"""Keeps the hashed rows of a history in files, one per task, until they are folded.

::

    | place i64 | hash, low word u64 | hash, high word u64 | fingerprint u64 | time i64, ms | ...

Little-endian, 40 bytes per row. The place is the partition that the row is remembered in. A file gets its name
when it is whole: a task that is done again writes it again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from processor.engine.rest import ANYWHERE, Fault
from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from spark_sink.backfill.plan import HistoryPlan

ROW = np.dtype([("partition", "<i8"), ("hash", "<u8", 2), ("fingerprint", "<u8"), ("time", "<i8")])
NO_OFFSET = -1
_ROWS_AT_A_TIME = 1 << 20
"""40 MB, in the process that folds."""


class RowHashes(NamedTuple):
    """The ids of some rows.

    Attributes:
        hash: uint64[n, 2].
        fingerprint: uint64[n]; uint64[0]: there are none.
        time_ms: int64[n].
    """

    hash: NDArray[np.uint64]
    fingerprint: NDArray[np.uint64]
    time_ms: NDArray[np.int64]

    def encoded(self, some: NDArray[np.int64], partition: NDArray[np.int64]) -> bytes:
        """Return the rows as this module draws them."""
        made = np.empty(some.size, ROW)
        made["partition"], made["hash"], made["time"] = partition[some], self.hash[some], self.time_ms[some]
        made["fingerprint"] = self.fingerprint[some] if self.fingerprint.size else 0
        return made.tobytes()


class RowColumns(NamedTuple):
    """What was read of some rows.

    Attributes:
        ids: Their ids.
        fault: uint8[n], `Fault` codes of rows that cannot be judged.
        partition: int64[n], `ANYWHERE` where a row does not say it.
        offset: int64[n], `NO_OFFSET` where a row does not say it; int64[0]: no row does.
        sent_to: int64[n], the partition that an id is sent to; None: it stays in that of its row.
    """

    ids: RowHashes
    fault: NDArray[np.uint8]
    partition: NDArray[np.int64]
    offset: NDArray[np.int64]
    sent_to: NDArray[np.int64] | None = None

    @property
    def place(self) -> NDArray[np.int64]:
        """The partition that each is remembered in."""
        return self.partition if self.sent_to is None else self.sent_to


class HashedSplit(NamedTuple):
    """What came of one task.

    Attributes:
        rows: Rows that were read.
        beyond: Of them those at and behind the cut, left out.
        faults: Of them those that cannot be judged, left out.
        first_fault: Row and code of the first; None: there is none.
        ends: By partition, the highest offset and one more; 0 where there is none.
        taken: By partition that they are remembered in, rows that were not left out.
    """

    rows: int
    beyond: int
    faults: int
    first_fault: tuple[int, int] | None
    ends: list[int]
    taken: list[int]


class HashedRows:
    """Writes the rows of one task."""

    def __init__(self, plan: HistoryPlan, number: int, file: str) -> None:
        self._plan, self._file = plan, file
        self._path = hashed_file(plan.folder, number)
        self._hidden = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._rows = self._beyond = self._faults = 0
        self._first_fault: tuple[int, int] | None = None
        self._ends, self._taken = np.zeros(plan.partitions, np.int64), np.zeros(plan.places, np.int64)

    def write(self, blocks: Iterator[tuple[NDArray[np.int64], RowColumns]]) -> HashedSplit:
        """Write blocks of rows, each with its rows' numbers in the file.

        Raises:
            StopError: A row does not say of which partition it is, or of one that there is not.
        """
        # Ids stand in no output yet, but their hashes with the key beside them say which there are.
        descriptor = os.open(self._hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a mode
            stream.writelines(self._chosen(numbers, block) for numbers, block in blocks)
        self._hidden.replace(self._path)
        counts = self._rows, self._beyond, self._faults
        return HashedSplit(*counts, self._first_fault, self._ends.tolist(), self._taken.tolist())

    def _chosen(self, numbers: NDArray[np.int64], block: RowColumns) -> bytes:
        """Return the rows that count, counting the others."""
        self._rows += numbers.size
        good = block.fault == 0
        self._faults += int((~good).sum())
        if self._first_fault is None and not good.all():
            at = int(good.argmin())
            self._first_fault = int(numbers[at]), int(block.fault[at])
        if self._plan.needs_partition:
            self._require_placed(numbers, block, good)
        if self._plan.before is not None and block.offset.size:
            self._require_offsets(numbers, block, good)
        # Where a partition ends is said by rows that cannot be judged, too.
        placed = (block.partition >= 0) & (block.partition < self._plan.partitions)
        if block.offset.size:
            np.maximum.at(self._ends, block.partition[placed], block.offset[placed] + 1)
        beyond = good & self._beyond_cut(block)
        self._beyond += int(beyond.sum())
        some = np.flatnonzero(good & ~beyond)
        self._taken += np.bincount(block.place[some], minlength=self._plan.places)
        return block.ids.encoded(some, block.place)

    def _require_offsets(self, numbers: NDArray[np.int64], block: RowColumns, good: NDArray[np.bool_]) -> None:
        nowhere = good & (block.offset < 0)
        if nowhere.any():
            raise StopError(
                f"{self._file}, row {numbers[int(nowhere.argmax())]} has no offset: whether it lies before the "
                "cut is not known, and a record behind it that were taken for delivered would be lost. Take "
                "such rows out of the history, or leave --up-to-cut out if all of it was delivered"
            )

    def _beyond_cut(self, block: RowColumns) -> NDArray[np.bool_]:
        if self._plan.before is not None and block.offset.size:
            # Those of no partition there is cannot be judged.
            where = np.clip(block.partition, 0, self._plan.partitions - 1)
            return block.offset >= np.array(self._plan.before, np.int64)[where]
        if self._plan.before_ms is not None:
            return block.ids.time_ms >= self._plan.before_ms
        return np.zeros(block.fault.size, np.bool_)

    def _require_placed(self, numbers: NDArray[np.int64], block: RowColumns, good: NDArray[np.bool_]) -> None:
        nowhere = good & ((block.partition < 0) | (block.partition >= self._plan.partitions))
        if not nowhere.any():
            return
        at = int(nowhere.argmax())
        row, found = f"{self._file}, row {numbers[at]}", int(block.partition[at])
        if found != ANYWHERE:
            raise StopError(f"{row}: there is no partition {found}, the source has {self._plan.partitions}")
        what = "no partition" if self._plan.columns.partition is not None else "no key"
        if self._plan.route is None:
            why = "and in another one nobody would look for it"
        else:
            why = "and without it the offset says nothing"
        raise StopError(
            f"{row} has {what}: in which partition the record stood is not known, {why}. Give the column that "
            "says it: --columns partition=COL"
        )


def hashed_file(folder: str, number: int) -> Path:
    """Return the file of one task."""
    return Path(folder) / f"hashed-{number:05d}"


def read_hashed(file: Path) -> Iterator[NDArray[np.void]]:
    """Yield the rows of a task, some at a time."""
    with file.open("rb") as stream:
        while (some := np.fromfile(stream, ROW, _ROWS_AT_A_TIME)).size:
            yield some


def merged_fault(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return per row the first fault of two columns."""
    return np.where(first == Fault.NONE, second, first)


def read_whole(column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return int64[n] whole numbers, and bool[n], where there is none.

    Raises:
        ValueError: The column has others, or too large ones.
    """
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    try:
        column = column.cast(pa.int64())
    except pa.ArrowException as error:
        raise ValueError(f"no whole number ({error})") from error
    null = np.array(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
    return np.array(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.int64), null
