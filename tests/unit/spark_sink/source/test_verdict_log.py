"""How far a source was judged is never told by a verdict record that was not the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from processor.kafka.offsets import Bounds
from processor.kafka.plain.verdict_log import NOWHERE, VerdictLog
from processor.wire.decode import Chunk
from schemas.verdicts.record import VerdictRecord
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.kafka.plain.topic_log import LogSpan, TopicLog
    from processor.wire.decode import Piece

RECORDS = 3


class Log:
    """A topic with a verdict record per ten source offsets, of which retention takes some as it is read.

    Args:
        gone: What begins the topic once its first record was read.
    """

    topic, id_bytes = "verdicts", bytes(16)

    def __init__(self, gone: int) -> None:
        self._start, self._gone = 0, gone

    def bounds(self) -> dict[int, Bounds]:
        """Return what there is."""
        return {0: Bounds(self._start, RECORDS, RECORDS)}

    def start(self, number: int) -> int:
        """Return the first record that is retained."""
        assert not number
        return self._start

    def pieces(self, span: LogSpan, **_: bool) -> Iterator[Piece]:
        """Read on with what is there by then."""
        for at in range(span.start, span.stop):
            if at >= self._start:
                said = VerdictRecord(0, 10 * at, 10 * at + 10).encode()
                raw = batches.by_hand([batches.simple(at, said)])
                yield from batches.DECODER.pieces(Chunk(self.topic, 0, at, raw, ()))
                self._start = max(self._start, self._gone)


def end_of(gone: int) -> int:
    """Return where the verdicts of a topic end."""
    log = cast("TopicLog", Log(gone))
    return VerdictLog(log, log).bounds({})[0].stop


def test_the_last_range_says_it_also_where_others_expire_as_it_is_looked_for() -> None:
    assert [end_of(gone) for gone in range(RECORDS)] == [10 * RECORDS] * RECORDS


def test_where_the_last_one_expires_as_it_is_looked_for_nothing_says_it() -> None:
    assert end_of(RECORDS) == NOWHERE
