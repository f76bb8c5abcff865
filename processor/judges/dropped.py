"""Looks whether the contents of dropped records have passed, for a sample: those that have not are lost.

Content is equal as it is for fingerprints: that of a JSON value by `processor.engine.extract.json_content`, any
other by its bytes. The sample is a share of all numbers (`processor.engine.watermark.dropped`). It is halved
where what passed outgrows its memory, or hashing the time it may take: a stream that goes on for ever is looked
at for ever. What passed before this process began to judge is not known to it.

Invariant: nothing here is judged by, and nothing here raises: the first thing that goes wrong switches it off,
and says so once.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.siphash import KEY_BYTES, words_of_key
from processor.engine.extract.json_content import Content, hash_bytes
from processor.engine.extract.json_matches import AUTO, JsonRules
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers
from processor.engine.verdict import Fault
from processor.engine.watermark.dropped import LEVELS, JudgedNumbers, compare, drawn, keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

log = logging.getLogger(__name__)

SLOTS = 2**14
"""256 KB for each pipeline of a worker."""
READ_SLOTS = 2**17
"""2 MB, where a topic is read once from its beginning to its end."""
FULL = 0.7
"""Beyond that share of slots, probing takes long."""
SLOT_BYTES = 256
"""Of values are hashed for each slot before the share is halved: 5 ms of a worker's time, on each level."""
ROW_BYTES, CALL_BYTES = 100, 25_000
"""What a record takes more, and a call: 1.1 ns a byte all of them."""
BYTES_PER_S = 2**20
"""More may be hashed as time passes: 0.12 % of a core."""
MOST_LEVEL = 40
SHOWN = 2
"""Positions that are kept as examples."""
_NO_TAG, _NO_EPOCH = np.zeros(0, np.uint32), np.zeros(0, np.int64)
_NOTHING = Pointers.of(())
_READ = JsonRules(lenient=True, framing=AUTO)
"""What stands around a value says nothing new: a copy may come under another schema."""
_OF_PARTITIONS, _OF_LOOKS = 0xD6E8FEB86659FD93, 0xA24BAED4963EE407


class ComparedDrops(NamedTuple):
    """What was found of dropped records.

    Attributes:
        counts: int64[LEVELS, 2], by the depth of their numbers: how many were looked at, and how many of those
            have a content that never passed. From a level on it is a sample of all that were dropped.
        unseen_at: Offsets of the first of those.
    """

    counts: NDArray[np.int64]
    unseen_at: list[int]

    def totals(self, level: int = 0) -> tuple[int, int]:
        """Return how many were looked at of a level's share, and how many of those never passed."""
        looked_at, unseen = self.counts[level:].sum(axis=0).tolist()
        return looked_at, unseen


class PassedContents:
    """What has passed of one pipeline, of the numbers in its share.

    Args:
        slots: A power of two.
        key: 16 bytes, by which the sample is drawn; None: nobody knows them.
        clock: Seconds.

    Attributes:
        level: The share is 2^-level of all numbers.
        key: uint64[2].
        off: Whether it has failed.
    """

    def __init__(
        self, slots: int = SLOTS, key: bytes | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.key = words_of_key(os.urandom(KEY_BYTES) if key is None else key)
        self.level = 0
        self.off = False
        self._looks = 0
        self._table = np.zeros((slots, 2), np.uint64)
        self._count = 0
        # Kept: an array of more than 128 KB costs a page fault for each 4 KB when it is made.
        self._rows, self._lots = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        self._clock, self._at_s = clock, clock()
        self._most_bytes = self._bytes_left = float(slots * SLOT_BYTES)

    @classmethod
    def of_one_reading(cls, slots: int = READ_SLOTS) -> PassedContents:
        """Return one for a topic that is read once: the same sample each time, however long that takes."""
        return cls(slots, bytes(KEY_BYTES), lambda: 0.0)

    def next_look(self) -> int:
        """Return a number that nobody had before."""
        self._looks += 1
        return self._looks

    def fail(self, error: Exception) -> None:
        """Switch off; called with whatever goes wrong."""
        if not self.off:
            self.off = True
            log.warning("dropped records are not looked at any more, nothing else is off: %r", error)

    def take(
        self,
        columns: Columns,
        records: JudgedNumbers,
        salt: np.uint64,
        floors: NDArray[np.int64],
        found: ComparedDrops,
    ) -> None:
        """Compare and remember records of one partition, of this salt and these floors; add what is found."""
        if (most := records.sequence.size) > self._rows.size:
            self._rows, self._lots = np.empty(most, np.int64), np.empty(most, np.uint64)
        while True:
            count = drawn(records, salt, self.level, self._rows, self._lots)
            if not count:
                return
            rows, lots = self._rows[:count], self._lots[:count]
            if self._spends(columns.value_length[rows]):
                break
        contents = _contents(columns, rows, self.key)
        unseen, row = np.zeros(rows.size, np.bool_), 0
        while row < rows.size:
            room = self._room()
            drew = records, rows, lots, contents, row, floors, salt, self.level
            row, came = map(int, compare(self._table, room, *drew, found.counts, unseen))
            self._count += came
        more = SHOWN - len(found.unseen_at)
        found.unseen_at.extend(columns.offset[rows[unseen][:more]].tolist())

    def _spends(self, values: NDArray[np.int64]) -> bool:
        """Count values of these lengths as hashed; where that is too much, halve the share and return False."""
        now_s, most = self._clock(), self._most_bytes
        self._bytes_left = min(most, self._bytes_left + (now_s - self._at_s) * BYTES_PER_S)
        self._at_s = now_s
        cost = int(np.maximum(values, 0).sum()) + ROW_BYTES * values.size + CALL_BYTES
        if self._bytes_left < min(cost, most) and self.level < MOST_LEVEL:
            self._halve()
            return False
        self._bytes_left -= cost
        return True

    def _room(self) -> int:
        """Return how many contents may come, after halving the share where the table is full."""
        most = int(self._table.shape[0] * FULL)
        while self._count >= most:
            if self.level == MOST_LEVEL:
                raise RuntimeError(f"no room for more contents in a sample of level {self.level}")
            self._halve()
        return most - self._count

    def _halve(self) -> None:
        self.level += 1
        self._bytes_left = self._most_bytes
        kept = np.zeros_like(self._table)
        self._count = int(keep(self._table, self.level, kept))
        self._table = kept


class DropCheck:
    """Compares what is dropped of one partition.

    Args:
        passed: Of the pipeline.
        partition: Its number.
        floors: What may have passed of it before, see `processor.engine.watermark.dropped`.
        again: Whether numbers come again: then what passed before this look has nothing to do with them.
    """

    def __init__(
        self, passed: PassedContents, partition: int, floors: NDArray[np.int64], *, again: bool = False
    ) -> None:
        self._passed, self._partition = passed, partition
        self._floors = floors
        self._found = _nothing_found()
        self._salt = self._salted(passed.next_look() if again else 0)

    def _salted(self, look: int) -> np.uint64:
        own = self._partition * _OF_PARTITIONS + look * _OF_LOOKS
        return np.uint64((int(self._passed.key[0]) + own) % 2**64)

    def begin_anew(self) -> None:
        """Take note that something has passed unseen: of each number it may be the next content."""
        self._salt = self._salted(self._passed.next_look())
        self._floors = np.full((1, 2), np.iinfo(np.int64).max)

    def saw(
        self,
        columns: Columns,
        tag: NDArray[np.uint32] | None,
        sequence: NDArray[np.int64],
        epoch: NDArray[np.int64] | None,
        verdict: NDArray[np.uint8],
    ) -> None:
        """Take records that were judged, the next ones in offset order; see `JudgedNumbers`."""
        tag, epoch = (_NO_TAG if tag is None else tag), (_NO_EPOCH if epoch is None else epoch)
        if self._passed.off:
            return
        records = JudgedNumbers(tag, sequence, epoch, verdict)
        try:
            self._passed.take(columns, records, self._salt, self._floors, self._found)
        except Exception as error:  # noqa: BLE001 - a statistic must never end a worker
            self._passed.fail(error)

    def take(self) -> ComparedDrops:
        """Return what was found since the last time."""
        found, self._found = self._found, _nothing_found()
        return found


def _nothing_found() -> ComparedDrops:
    return ComparedDrops(np.zeros((LEVELS, 2), np.int64), [])


def _contents(columns: Columns, rows: NDArray[np.int64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return uint64[k], hashes of the contents of some records' values; 0 where there is none."""
    at, length = columns.value[rows], columns.value_length[rows]
    hashed = Content(0, key, np.zeros((rows.size, 2), np.uint64))
    other = look_up(columns.data, at, length, _NOTHING, hashed, _READ).fault == Fault.VALUE_NOT_JSON
    if other.any():
        as_bytes = Content(0, key, np.zeros((int(np.count_nonzero(other)), 2), np.uint64))
        hash_bytes(columns.data, at[other], length[other], as_bytes)
        hashed.hash[other] = as_bytes.hash
    return hashed.hash[:, 0].copy()
