"""Reads a source by its verdicts with the product's readers: what they give, and what they have to refuse."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from processor.errors import StopError
from processor.kafka.offsets import Bounds
from processor.kafka.plain.verdict_log import NOWHERE, VerdictLog, VerdictSpan
from processor.wire.decode import Chunk, Decoder
from schemas.verdicts.record import VerdictRecord
from seqmark.in_memory.cluster import MemoryLog
from tests.simulation.truth.oracle import read, records_of
from tests.support.judges.outcomes import plain
from tests.support.wire import batches
from tests.support.worker.verdicts import clean_by

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from processor.kafka.plain.topic_log import LogSpan, TopicLog
    from processor.wire.decode import Piece
    from tests.simulation.brokers.kafka.cluster import Brokers
    from tests.support.kafka.topics import New, Record

_BESIDE = Decoder()


class TopicInMemory:
    """A `processor.kafka.plain.topic_log.TopicLog` over brokers in memory."""

    def __init__(self, brokers: Brokers, topic: str, instead: MemoryLog | None = None) -> None:
        self.topic, self.id_bytes = topic, brokers.topics[topic].topic_id
        self._numbers = range(brokers.topics[topic].partitions)
        self._brokers, self._instead = brokers, instead

    def _log(self, number: int) -> MemoryLog:
        return self._instead or self._brokers.log(self.topic, number)

    def bounds(self) -> dict[int, Bounds]:
        logs = {number: self._log(number) for number in self._numbers}
        return {number: Bounds(log.start, log.stable, log.end) for number, log in logs.items()}

    def start(self, number: int) -> int:
        return self._log(number).start

    def pieces(self, span: LogSpan, *, accept_loss: bool = False, beside: bool = False) -> Iterator[Piece]:
        log, decoder = self._log(span.partition), _BESIDE if beside else batches.DECODER
        if span.start < log.start and not accept_loss:
            raise StopError("retention has removed what was not read yet")
        at = max(span.start, log.start)
        data, aborted = log.fetch(at, 2**62)
        for piece in decoder.pieces(Chunk(self.topic, span.partition, at, data, aborted)):
            if at >= span.stop:
                return
            at = piece.next_offset
            yield piece


def tampered(log: MemoryLog, start: int, stop: int) -> MemoryLog | None:
    """Return a copy of a log in which a batch between two offsets is another one; None: there is none."""
    found = MemoryLog(log.start, log.end, dict(log.open), list(log.aborted), list(log._batches))
    gone = [(first, end) for _, first, end in log.aborted]
    for at, (end, batch) in enumerate(log._batches):
        header = list(batches.HEADER.unpack_from(batch))
        if header[5] & batches.CONTROL or not start <= header[0] <= end <= stop:
            continue
        if any(first <= header[0] < last for first, last in gone):
            continue
        header[11] += 1  # the first sequence: of no interest to anybody, but covered by the CRC
        found._batches[at] = end, batches.sealed(batches.HEADER.pack(*header) + batch[batches.HEADER.size :])
        return found
    return None


def verdicts_in(brokers: Brokers, number: int) -> list[tuple[int, VerdictRecord]]:
    """Return offset and content of a partition's verdict records."""
    return [(each.offset, VerdictRecord.decode(each.value)) for each in read(brokers, "verdicts", number)]


def clean(said: Sequence[tuple[int, VerdictRecord]], records: Sequence[Record]) -> list[New]:
    """Return what a naive reader takes."""
    return [plain(each) for each in clean_by((verdict for _, verdict in said), records)]


def has_gap(said: Sequence[tuple[int, VerdictRecord]]) -> bool:
    """Say whether verdicts begin again behind offsets that have none."""
    return any(after.begins and after.base > before.end for (_, before), (_, after) in pairwise(said))


def require_readable(dice: random.Random, brokers: Brokers, number: int, records: Sequence[Record]) -> None:
    """What is read by verdicts is the clean stream, in one go or two; what is not whole is refused."""
    said = verdicts_in(brokers, number)
    wanted, gap = clean(said, records), has_gap(said)
    source, log = TopicInMemory(brokers, "source"), brokers.log("verdicts", number)
    reader = _reader(brokers, source)
    bounds = reader.bounds({})[number]
    assert bounds.stop == said[-1][1].end, "the end of the last range"
    whole = VerdictSpan(number, bounds.start, bounds.stop, log.start, log.stable, fresh=True)
    if gap:
        _require_refused(reader, whole, "offsets that have no verdict")
    found = _taken(reader, whole, number, accept_loss=gap)
    assert found == wanted, f"{len(found)} records are read by verdicts, {len(wanted)} wanted"
    cut = dice.randrange(len(said))
    offset, last = said[cut]
    first = VerdictSpan(number, bounds.start, last.end, log.start, offset + 1, fresh=True)
    second = VerdictSpan(number, last.end, bounds.stop, offset + 1, log.stable, fresh=False)
    in_two = [each for span in (first, second) for each in _taken(reader, span, number, accept_loss=gap)]
    assert in_two == wanted, f"{len(in_two)} records are read in two goes, {len(wanted)} wanted"
    if cut + 2 < len(said) and not said[cut + 1][1].begins and not said[cut + 2][1].begins:
        later = second._replace(first=said[cut + 2][0])
        if said[cut + 1][1].base < said[cut + 1][1].end:
            _require_refused(reader, later, "verdicts behind a gap")
    for at, verdict in said[1:]:
        if verdict.begins and verdict.base > bounds.start:
            lost = VerdictSpan(number, NOWHERE, bounds.stop, at, log.stable, fresh=False)
            _require_refused(reader, lost, "verdicts that begin where others have expired")
    other = None if gap else tampered(brokers.log("source", number), said[0][1].base, bounds.stop)
    if other is not None:
        _require_refused(_reader(brokers, TopicInMemory(brokers, "source", other)), whole, "another source")


def _reader(brokers: Brokers, source: TopicInMemory) -> VerdictLog:
    return VerdictLog(cast("TopicLog", source), cast("TopicLog", TopicInMemory(brokers, "verdicts")))


def _taken(reader: VerdictLog, span: VerdictSpan, number: int, *, accept_loss: bool) -> list[New]:
    found: list[Any] = []
    for columns in reader.read(span, accept_loss=accept_loss):
        found += records_of(columns, number)
    return [plain(each) for each in found]


def _require_refused(reader: VerdictLog, span: VerdictSpan, what: str) -> None:
    try:
        for _ in reader.read(span):
            pass
    except StopError:
        return
    raise AssertionError(f"a reader goes on over {what}")
