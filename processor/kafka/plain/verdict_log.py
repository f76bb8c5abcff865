"""Reads the clean stream out of a source topic by its verdicts, for programs that have no event loop.

Spark's tasks, and who plans them. What is read follows from offsets of the topic of verdicts alone: the ranges
of those records, in their order, each from the source without the offsets that it skips.

Invariant: nothing beyond the last range is read, and a range whose records are not those that were judged ends
the reading with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import StopError
from processor.kafka.plain.topic_log import LogSpan, TopicLog
from processor.wire.range_sums import RangeSums
from processor.wire.verdict_walk import VerdictRun, VerdictWalk, values_of
from schemas.verdicts.ranges import VerdictRanges, unspoken
from schemas.verdicts.record import CorruptVerdictError, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from schemas.config import Kafka

NOWHERE = -1
"""Where no verdict says how far the source was judged."""
_FIRST_STEP = 8
"""Offsets looked at for the last verdict record: it stands before the marker of its transaction."""


class VerdictSpan(NamedTuple):
    """What some verdict records of a partition let pass.

    Attributes:
        partition: Of both topics.
        start: The source offset where the range before ended, or `NOWHERE`, as of a partition that was added;
            of a fresh span the first one that was retained when it was planned.
        stop: Where the last range ends, or `NOWHERE`.
        first: The first offset in the topic of verdicts.
        after: The offset behind the last there.
        fresh: Whether the stream begins with it: what had expired by then is not lost. What expires of a
            partition that is added later is.
    """

    partition: int
    start: int
    stop: int
    first: int
    after: int
    fresh: bool

    @property
    def offsets(self) -> int:
        """How many offsets of the source there are, about; 0: there is nothing to read."""
        return max(self.stop - self.start, 1) if self.after > self.first else 0


class VerdictBounds(NamedTuple):
    """A partition now.

    Attributes:
        first: The first offset of the topic of verdicts that is retained.
        after: The last stable one.
        start: The first offset of the source that is retained.
        stop: Where the last range ends; `NOWHERE`: there is none.
    """

    first: int
    after: int
    start: int
    stop: int


class VerdictLog:
    """A source topic and the topic of its verdicts, each as long as it is the same one.

    Attributes:
        source: The source.
        verdicts: The topic of verdicts.
    """

    def __init__(self, source: TopicLog, verdicts: TopicLog) -> None:
        self.source, self.verdicts = source, verdicts

    @classmethod
    def open(
        cls, kafka: Kafka, source: str, verdicts: str, source_id: str = "", verdicts_id: str = ""
    ) -> VerdictLog:
        """Return both topics, connected; see `TopicLog.open`.

        Raises:
            StopError: One does not exist, is another one, or no broker answers.
        """
        return cls(TopicLog.open(kafka, source, source_id), TopicLog.open(kafka, verdicts, verdicts_id))

    def bounds(self, known: dict[int, VerdictBounds]) -> dict[int, VerdictBounds]:
        """Return where each partition is now.

        Args:
            known: What was answered before; keeps what is found, so that a record is looked at once.

        Raises:
            StopError: A topic does not exist, was made again, or the last record is no verdict; or the answer
                lacks a partition that has verdicts.
        """
        there = self.source.bounds()
        for number, log in self.verdicts.bounds().items():
            if number not in there and log.stable:
                raise StopError(
                    f"{self.source.topic}:{number} has verdicts, and Kafka's answer has no such partition: a "
                    f"broker that has just started may not know all; start again"
                )
            start = there[number].start if number in there else 0
            before = known.get(number)
            if before is not None and before.after == log.stable:
                known[number] = before._replace(first=log.start, start=start)
            else:
                stop = self._last_end(number, log.start, log.stable)
                known[number] = VerdictBounds(log.start, log.stable, start, stop)
        return dict(known)

    def _last_end(self, number: int, start: int, stable: int) -> int:
        """Return where the last range ends; looks backwards from the end, over ever more offsets.

        `NOWHERE` where there is none, or retention takes it as it is looked for.
        """
        at, step = stable, _FIRST_STEP
        while at > start:
            begin, end, last = max(start, at - step), NOWHERE, NOWHERE
            for columns in self._records(LogSpan(number, begin, at), accept_loss=True):
                for offset, value in values_of(columns):
                    try:
                        end, last = VerdictRecord.decode(value).end, offset
                    except CorruptVerdictError as error:
                        raise self._wrong(number, offset, error) from error
            if end != NOWHERE:
                # Where retention has taken it meanwhile, those behind it may be gone that were not read.
                return end if self.verdicts.start(number) <= last else NOWHERE
            at, step = begin, step * 8
        return NOWHERE

    def _records(self, span: LogSpan, *, accept_loss: bool) -> Iterator[Columns]:
        """Yield the records of the topic of verdicts, some at a time."""
        for piece in self.verdicts.pieces(span, accept_loss=accept_loss, beside=True):
            yield piece.up_to(span.stop)[0]

    def _wrong(self, number: int, offset: int, error: CorruptVerdictError) -> StopError:
        return StopError(f"{self.verdicts.topic}:{number}:{offset}: the verdict record: {error}")

    def read(self, span: VerdictSpan, *, accept_loss: bool = False) -> Iterator[Columns]:
        """Yield what a span lets pass, some thousands at a time; each is good until the next one.

        Args:
            span: What to read.
            accept_loss: Leave out what retention or compaction has removed, from either topic.

        Raises:
            StopError: Something of it cannot be read, or is not what was judged; says what to do.
        """
        for run in self._runs(span, accept_loss=accept_loss):
            yield from self._passed(span, run.verdicts, accept_loss=accept_loss)

    def _runs(self, span: VerdictSpan, *, accept_loss: bool) -> Iterator[VerdictRun]:
        """Yield the span's verdict records, several at a time whose ranges follow each other."""
        number = span.partition
        name, ranges = f"{self.verdicts.topic}:{number}", VerdictRanges(number, self.source.id_bytes)
        lost = accept_loss and self.verdicts.start(number) > span.first
        if not (span.fresh or lost or span.start == NOWHERE):
            ranges.end = span.start
        # The stream had come somewhere, and the ranges that said where have expired.
        forgotten = span.start == NOWHERE and span.first > 0 and not span.fresh

        def accept(offset: int, value: bytes) -> VerdictRecord | None:
            was = ranges.end
            found = _taken(ranges, value, accept_loss=accept_loss)
            if found is None:
                return None
            told = unspoken(was, found)
            if forgotten and was is None and found.begins and found.base > self.source.start(number):
                told = (
                    f"a range begins anew at source offset {found.base}, and those before it have expired: "
                    "nobody knows whether all offsets before it had a verdict"
                )
            if not accept_loss and told is not None:
                raise StopError(
                    f"{name}:{offset}: {told}. `accept_loss` (`seqmark aggregate --accept-loss`) goes on "
                    "behind them"
                )
            return found

        walk = VerdictWalk(name, accept)
        for columns in self._records(LogSpan(number, span.first, span.after), accept_loss=accept_loss):
            yield from walk.runs(columns)
        yield from walk.rest()
        if not accept_loss and span.stop not in {NOWHERE, ranges.end}:
            raise StopError(
                f"{self.verdicts.topic}:{number}: its records before offset {span.after} end at source offset "
                f"{ranges.end}, and ended at {span.stop} when this was planned: the topic has lost records. "
                f"Begin with a new checkpoint and a new output"
            )

    def _passed(
        self, span: VerdictSpan, some: Sequence[VerdictRecord], *, accept_loss: bool
    ) -> Iterator[Columns]:
        """Yield what ranges that follow each other let pass, and compare what was read with what was judged."""
        first = self.source.start(span.partition)
        seen, stop = RangeSums(), some[-1].end
        start = max(some[0].base, first, span.start if span.fresh else 0)
        skipped = np.concatenate([each.skipped for each in some])
        if start < stop:
            part = LogSpan(span.partition, start, stop)
            for piece in self.source.pieces(part, accept_loss=accept_loss):
                seen.take(piece, stop)
                columns, _ = piece.up_to(stop)
                if len(columns):
                    yield _without(columns, skipped)
        cuts = [some[0].base, *(each.end for each in some)]
        for found, sums in zip(some, seen.sums(cuts), strict=True):
            gone = found.sums.records - sums.records
            began = span.fresh and found.base < span.start
            had = began and gone > 0 and (first <= span.start or found.end <= span.start)
            # Of a compacted source a batch is another one.
            same = (sums.records, sums.timestamps) == (found.sums.records, found.sums.timestamps)
            if sums == found.sums or (accept_loss and (gone > 0 or same)) or had:
                continue
            raise self._differs(span, found, gone, first)

    def _differs(self, span: VerdictSpan, found: VerdictRecord, gone: int, first: int) -> StopError:
        where = f"{self.source.topic}:{span.partition}"
        if gone > 0 and found.base < first:
            start, stop = max(found.base, span.start if span.fresh else 0), min(first, found.end)
            records = f"{gone}" if start == found.base else f"up to {min(gone, stop - start)}"
            return StopError(
                f"{where}: of offsets {start} to {stop - 1}, {records} records are gone: "
                f"retention has removed what was not read yet. Accept the loss (`accept_loss`), or begin with "
                f"a new checkpoint and a new output"
            )
        return StopError(
            f"{where}: offsets {found.base} to {found.end - 1} are not what was judged: {self.verdicts.topic} "
            f"speaks of {found.sums.records:,} records, and there are {found.sums.records - gone:,}, or "
            f"others. The topic was changed, compacted or made anew, or the verdicts are another's; nothing of "
            f"this batch counts. `accept_loss` goes on where records are missing"
        )


def _taken(ranges: VerdictRanges, value: bytes, *, accept_loss: bool) -> VerdictRecord | None:
    """Return the next verdict record; None: with ``accept_loss``, one of a source that is gone.

    Raises:
        CorruptVerdictError: It is not right.
    """
    if accept_loss:
        found = VerdictRecord.decode(value)
        if ranges.is_other(found):
            ranges.end = NOWHERE  # what follows has to begin
            return None
        ranges.go_on_behind_lost(value)
    return ranges.take(value)


def _without(columns: Columns, skipped: NDArray[np.int64]) -> Columns:
    """Return the columns without some offsets, which rise."""
    begin, end = skipped.searchsorted((columns.offset[0], columns.offset[-1] + 1)).tolist()
    if begin == end:
        return columns
    part, offsets = skipped[begin:end], columns.offset
    # Of a compacted source some are gone.
    rows = offsets.searchsorted(part)
    stays = np.ones(offsets.size, np.bool_)
    stays[rows[offsets[rows] == part]] = False
    kept = np.flatnonzero(stays)
    return columns.over(type(columns.table)(*(each.take(kept) for each in columns.table)))
