"""Reads a source topic by its verdicts, with whatever client of Kafka a program has already.

    clean = CleanFilter()
    clean.verdict(partition, offset, value)                  # of each record of the topic of verdicts, in order
    clean.record(partition, offset, timestamp, message)      # of each record of the source, in order
    for message in clean.take(partition): ...                # what is in the clean stream, in order

Both topics are read with ``isolation.level=read_committed``. What has no verdict yet is held back; what is
skipped is left out. docs/verdicts.md has both loops, for confluent-kafka and aiokafka.

Invariant: of each range all records were seen before the next one begins, or `take` raises.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from processor.errors import StopError
from schemas.verdicts.ranges import VerdictRanges, unspoken
from schemas.verdicts.record import CorruptVerdictError, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CleanFilter", "CleanPosition", "StopError", "VerdictRecord"]

Item = TypeVar("Item")


class CleanPosition(NamedTuple):
    """Where a program goes on in both topics.

    Attributes:
        source: The source offset after the last record that was decided on.
        verdicts: The offset of the first verdict record that is not done.
    """

    source: int
    verdicts: int


class _Held(NamedTuple, Generic[Item]):
    """A record of the source that was not decided on yet."""

    offset: int
    timestamp: int
    item: Item


@dataclass
class _Partition(Generic[Item]):
    """One source partition.

    Attributes:
        ranges: Follows its verdict records.
        verdicts: Those that are not done, with their offsets.
        after: The offset behind the last of them.
        judged_from: Where the ranges begin: what comes before it was never judged.
        held: Records that are not done.
        first: The offset of the first record that has come; -1: none has.
        fresh: Whether it begins with what the source still holds, and no range has had a record yet: what has
            expired before it is not lost to it.
        last: The offset of the last record that has come; -1: none has since the source is read from elsewhere.
        entered: Whether a range was begun with.
        begin: Where a program goes on: what is before it in the first range was taken by a run before.
        seen: How many records of the first range have come.
        timestamps: Theirs, XORed.
        skipped: Offsets that the first range skips.
        at: The source offset after the last record that was decided on.
        wanted: Where the source has to be read from next, in place of where it was; None: it goes on.
    """

    ranges: VerdictRanges
    verdicts: deque[tuple[int, VerdictRecord]] = field(default_factory=deque)
    held: deque[_Held[Item]] = field(default_factory=deque)
    begin: int | None = None
    seen: int = 0
    timestamps: int = 0
    skipped: set[int] = field(default_factory=set)
    at: int = 0
    wanted: int | None = None
    after: int = 0
    judged_from: int = 0
    first: int = -1
    last: int = -1
    fresh: bool = True
    entered: bool = False


class CleanFilter(Generic[Item]):
    """Holds records back until their verdicts are there, and leaves out what they skip.

    Args:
        checked: Whether records that have expired or have no verdict, or a source that is not the one that was
            judged, raise an error. Switch it off for a compacted source, and to go on behind what is missing.
    """

    def __init__(self, *, checked: bool = True) -> None:
        self._checked = checked
        self._partitions: dict[int, _Partition[Item]] = {}

    def _of(self, partition: int) -> _Partition[Item]:
        if partition not in self._partitions:
            self._partitions[partition] = _Partition(VerdictRanges(partition))
        return self._partitions[partition]

    def resume(self, partition: int, source: int, verdicts: int = 0) -> None:
        """Go on at a `position`: both topics of a partition are read from there on, whatever was given before.

        Nothing before ``source`` is returned, unless a reset has put it there again. If ``source`` lies within
        a range, `wanted` says where that begins: all of it has to come, to be compared.
        """
        known = self._partitions[partition] = _Partition(VerdictRanges(partition))
        known.begin = known.at = source
        known.after, known.fresh = verdicts, False

    def verdict(self, partition: int, offset: int, value: bytes | None) -> None:
        """Take the next record of the topic of verdicts.

        Raises:
            StopError: It is not whole, or does not go on where the one before ended, or the program.
        """
        known = self._of(partition)
        was = known.ranges.end if known.ranges.end is not None else known.begin
        if not was and not known.after:
            was = None  # Where nothing was read, a range may begin anywhere.
        try:
            if not self._checked:
                known.ranges.go_on_behind_lost(value)
            found = known.ranges.take(value)
        except CorruptVerdictError as error:
            raise StopError(f"verdicts of partition {partition}: {error}") from error
        self._require_next(known, offset, found)
        if self._checked and (told := unspoken(was, found)) is not None:
            known.ranges.end = was
            raise StopError(f"partition {partition}: {told}. CleanFilter(checked=False) goes on behind them")
        known.after = offset + 1
        known.verdicts.append((offset, found))
        if len(known.verdicts) == 1:
            self._enter(known)

    def _require_next(self, known: _Partition[Item], offset: int, found: VerdictRecord) -> None:
        """Compare the first record behind a `position` with it: between ranges the next begins at its source.

        One that goes on and lies before has others before it, that the program has not seen.
        """
        begin, first = known.begin, not known.entered and not known.verdicts
        if begin is None or not (self._checked and first and offset > known.after > 0):
            return
        if found.base < begin and not found.begins:
            known.ranges.end = None
            raise StopError(
                f"partition {known.ranges.partition}: the record at offset {offset} of the topic of verdicts "
                f"goes on at source offset {found.base}, and the program has come to {begin}: verdicts have "
                "expired unread behind a reset, or their topic was made anew. CleanFilter(checked=False) goes "
                "on"
            )

    def record(self, partition: int, offset: int, timestamp: int, item: Item) -> None:
        """Take the next record of the source; ``timestamp`` is in ms.

        What comes before `wanted` was asked is left out: the source is read again.

        Raises:
            StopError: It does not lie behind the record before.
        """
        known = self._of(partition)
        if known.wanted is not None:
            return
        if offset <= known.last:
            raise StopError(
                f"partition {partition}: source offset {offset} comes behind {known.last}. After a rebalance, "
                "or where the source is read again, tell the filter by `resume`"
            )
        known.last = offset
        if known.first < 0:
            known.first = offset
        known.held.append(_Held(offset, timestamp, item))

    def held(self, partition: int) -> int:
        """Return how many records wait for their verdicts: pause the source where they are many."""
        return len(self._of(partition).held)

    def wanted(self, partition: int) -> int | None:
        """Return where to seek to in the source, or None; said once.

        A reset has put records there again, or the program goes on within a range, which begins there.
        """
        known = self._of(partition)
        wanted, known.wanted = known.wanted, None
        return wanted

    def position(self, partition: int) -> CleanPosition:
        """Return where to go on: commit both once what `take` has returned is done with."""
        known = self._of(partition)
        return CleanPosition(known.at, known.verdicts[0][0] if known.verdicts else known.after)

    def take(self, partition: int) -> Iterator[Item]:
        """Yield the records of the clean stream that are there, in order.

        Raises:
            StopError: The source is not the one that was judged, or not whole any more.
        """
        known = self._of(partition)
        while known.verdicts:
            _, current = known.verdicts[0]
            if current.base == current.end or known.seen == current.sums.records:
                self._leave(known, current)
                continue
            if not known.held:
                return
            if known.held[0].offset >= current.end:
                self._leave(known, current)
                continue
            offset, timestamp, item = known.held.popleft()
            if offset < current.base:
                # It was never judged, or is one too many in a range before.
                self._require(known, current, right=offset < known.judged_from)
                continue
            known.seen += 1
            known.timestamps ^= timestamp & (2**64 - 1)
            known.at = max(known.at, offset + 1)
            if offset not in known.skipped and offset >= (known.begin or 0):
                yield item

    def _enter(self, known: _Partition[Item]) -> None:
        """Begin with the first range."""
        _, current = known.verdicts[0]
        known.seen = known.timestamps = 0
        known.skipped = set(current.skipped.tolist())
        first, known.entered = not known.entered, True
        if first or current.begins:
            known.judged_from = current.base
            self._go_back(known, current)
        known.at = max(known.begin or 0, current.base)

    def _go_back(self, known: _Partition[Item], current: VerdictRecord) -> None:
        """Have the source read again if the range that is begun with lies before where it is read."""
        if self._checked and not current.begins and known.begin is not None and current.base > known.begin:
            raise StopError(
                f"partition {known.ranges.partition}: the verdicts of source offsets {known.begin} to "
                f"{current.base - 1} have expired unread. CleanFilter(checked=False) goes on behind them"
            )
        if current.base < known.at:
            known.held.clear()
            known.wanted, known.first, known.last = current.base, -1, -1
            known.begin = None if current.begins else known.begin

    def _leave(self, known: _Partition[Item], current: VerdictRecord) -> None:
        """Finish the first range, and begin with the next."""
        came = known.seen, known.timestamps
        right = current.sums.records, current.sums.timestamps
        expired_before = known.fresh and known.seen < current.sums.records and known.first > current.base
        self._require(known, current, right=came == right or expired_before)
        known.fresh = known.fresh and not known.seen
        known.verdicts.popleft()
        known.at = max(known.at, current.end)
        if known.verdicts:
            self._enter(known)

    def _require(self, known: _Partition[Item], current: VerdictRecord, *, right: bool) -> None:
        if self._checked and not right:
            counts = f"{known.seen:,} came, {current.sums.records:,} were judged"
            raise StopError(
                f"partition {known.ranges.partition}: the records from {current.base} to {current.end - 1} "
                f"are not those that were judged ({counts}): they have expired, were compacted, or the source "
                "is another one. CleanFilter(checked=False) goes on"
            )
