"""What records of a quarantine are judged by beside the rules, when they are judged again.

They come out of their order. In mode `watermark` a number below the watermark may be of a record that was never
seen, and of one that was quarantined it mostly is. So such a record passes, unless its number is one of those
that are known to have passed. Nothing is lost by that; a copy may pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from processor.engine.ids.clock import Readings, by_arrival, by_records
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.receipts import Grounds


@dataclass(frozen=True, slots=True)
class Redriving:
    """Where and when some records are judged again.

    Attributes:
        position: The first source offset that is not taken in: they are judged as if they came before it.
        limit_ms: How far they can move the partition's clock, see `processor.judges.judge.Judge.limit_ms`.
        own_trace: bool[n], of which the state may remember the record itself: a reset has judged them, by the
            rules of now, when it made the state, and they stood in quarantine.
        numbers: Of those that were judged again and left quarantine since the state began; more come in.
    """

    position: int
    limit_ms: int
    own_trace: NDArray[np.bool_]
    numbers: set[Hashable] = field(default_factory=set)

    def by_number(self, judged: Grounds, numbers: Sequence[Hashable]) -> Grounds:
        """Let pass, of records judged by their sequence, those of which nobody knows that they have passed.

        ``numbers`` has what each was judged by, one after the other.
        """
        verdict = judged.verdict
        for row, number in enumerate(numbers):
            kept = verdict[row] == Verdict.LATE or (verdict[row] == Verdict.DUPLICATE and self.own_trace[row])
            if kept:
                verdict[row] = Verdict.DUPLICATE if number in self.numbers else Verdict.PASS
            self.numbers.add(number)
        return judged


@dataclass(frozen=True, slots=True)
class LimitedClock:
    """A `processor.engine.ids.clock.PartitionClock` of which nothing is noted but its limit, by the note.

    Attributes:
        limit_ms: By the records' timestamps what they can move it to; by arrival what it reads.
        arrival: Which of the two.
    """

    limit_ms: int
    arrival: bool

    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """See `PartitionClock.read`."""
        del offset
        if self.arrival:
            return by_arrival(clock_ms, fault, self.limit_ms)
        return by_records(clock_ms, timestamp_ms, fault, self.limit_ms, 0)
