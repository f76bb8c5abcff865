"""Plans what a stream reads of a topic, from one place to the next; pure.

Invariant: a plan is the same whenever it is made again. Where each partition begins and ends stands in the
places, and none is left out or read again without a word: a partition that a place lacks would count as one
that is added, and an end that goes back would come twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.kafka.plain.topic_log import LogSpan
from processor.kafka.plain.verdict_log import NOWHERE, VerdictSpan
from spark_sink.source.place import SourcePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.kafka.plain.verdict_log import VerdictBounds

_AGAIN = "; start again"
_NO_AVAILABLE_NOW = (
    "max_offsets_per_trigger does not go with the trigger availableNow: this Spark asks for the end before it "
    "says where the stream goes on. Use processingTime, or leave the option out. Nothing was planned"
)
_UNPLAN = (
    ". Nothing of this batch has run: remove its plan, the file with the highest number in the folder "
    "`offsets` of the checkpoint, and start again"
)


class StreamPlanner:
    """Plans one stream, as long as its process lives.

    Args:
        latest: Whether a stream without a checkpoint begins at the ends.
        accept_loss: Whether a partition that has lost its end is read on from there.
    """

    def __init__(self, *, latest: bool, accept_loss: bool) -> None:
        self._latest, self._accept_loss = latest, accept_loss
        self._began: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._at: SourcePlace | None = None
        self._guessed = False

    def end(self, topic: str, topic_id: str, bounds: Mapping[int, tuple[int, int]]) -> SourcePlace:
        """Return the place at the topic's end.

        Args:
            topic: Its name.
            topic_id: Its id.
            bounds: Of its partitions, now: the first offset that is retained, and the last stable one.

        Raises:
            StopError: A partition is missing that this process has seen, or has lost its end.
        """
        ends = {number: stable for number, (_, stable) in bounds.items()}
        self._require_whole(topic, self._seen, ends, _AGAIN)
        self._seen |= ends
        # Those that are added later begin at their first record.
        known = ends if self._latest and not self._began else {}
        for number, (start, _) in bounds.items():
            self._first.setdefault(number, start)
            self._began.setdefault(number, known.get(number, start))
        return SourcePlace(topic, topic_id, ends, dict(self._began), dict(self._first))

    def goes_on(self) -> dict[int, int]:
        """Return where each partition of the last `end` is read on from, for an end that is cut short of it.

        Spark 4.0 asks for an end and does not say where the stream is. It tells of each batch (`spans`), and of
        the last one again when it starts over a checkpoint. So where it has told nothing there is none, but for
        the trigger `availableNow`, which asks for an end first, and once more before it plans a batch.

        Raises:
            StopError: The trigger is `availableNow`.
        """
        if self._at is not None:
            return {number: self._at.next.get(number, first) for number, first in self._first.items()}
        if self._guessed:
            raise StopError(_NO_AVAILABLE_NOW)
        self._guessed = True
        return dict(self._began)

    def spans(self, begins: SourcePlace, ends: SourcePlace) -> list[LogSpan]:
        """Return what is read from one place to the next.

        Args:
            begins: Where the batch before ended.
            ends: Where this one ends.

        Raises:
            StopError: The end lacks a partition, or goes back in one; or a partition was added, and what it
                held has expired unread.
        """
        first = ends.began if begins.initial else begins.next
        if self._guessed and self._at is None and not begins.initial:
            raise StopError(_NO_AVAILABLE_NOW)  # it was taken for a stream without a checkpoint
        self._require_whole(ends.topic, first, ends.next, _UNPLAN)
        self._seen |= ends.next
        self._at = ends
        # Retention may have moved on since it was planned.
        known = {**ends.first, **first}
        for number in ends.next.keys() - first.keys():
            # The stream stood when it was added: all of it was to be read.
            if known[number] > 0 and not (begins.initial or self._accept_loss):
                raise StopError(
                    f"{ends.topic}:{number} was added, and begins at offset {known[number]}: retention has "
                    f"removed what was not read yet. Accept the loss (`accept_loss`), or begin with a new "
                    f"checkpoint and a new output"
                )
        return [LogSpan(number, known[number], stop) for number, stop in ends.next.items()]

    def _require_whole(
        self, topic: str, before: Mapping[int, int], now: Mapping[int, int], advice: str
    ) -> None:
        if gone := before.keys() - now.keys():
            number = min(gone)
            raise StopError(
                f"{topic}:{number} was read up to {before[number]}, and Kafka's answer has no such partition: "
                f"a broker that has just started may not know all{advice}"
            )
        back = [number for number, stop in now.items() if stop < before.get(number, stop)]
        if back and not self._accept_loss:
            number = min(back)
            raise StopError(
                f"{topic}:{number} ends at {now[number]}, and was read up to {before[number]}: it has lost its "
                f"end, and what comes there now has offsets that were read. Accept the loss (`accept_loss`), "
                f"and it goes on at {now[number]}; or begin with a new checkpoint and a new output"
            )


class VerdictPlanner:
    """Plans a stream that is read by verdicts: their topic is planned, and what is read of the source follows.

    Args:
        latest: As of `StreamPlanner`.
        accept_loss: Likewise.
    """

    def __init__(self, *, latest: bool, accept_loss: bool) -> None:
        self._verdicts = StreamPlanner(latest=latest, accept_loss=accept_loss)
        self._first: dict[int, int] = {}

    def end(
        self, source: SourcePlace, verdicts: SourcePlace, bounds: Mapping[int, VerdictBounds]
    ) -> SourcePlace:
        """Return the place where the verdicts end.

        Args:
            source: Has name and id of the source.
            verdicts: Those of the topic of verdicts.
            bounds: Of their partitions, now.

        Raises:
            StopError: As of `StreamPlanner.end`, of the topic of verdicts.
        """
        logs = {number: (each.first, each.after) for number, each in bounds.items()}
        inner = self._verdicts.end(verdicts.topic, verdicts.id, logs)
        for number, each in bounds.items():
            self._first.setdefault(number, each.start)
        stops = {number: each.stop for number, each in bounds.items()}
        return source._replace(next=stops, began=dict(self._first), first=dict(self._first), verdicts=inner)

    def spans(self, begins: SourcePlace, ends: SourcePlace) -> list[VerdictSpan]:
        """Return what is read from one place to the next.

        Raises:
            StopError: As of `StreamPlanner.spans`, of the topic of verdicts.
        """
        planned = self._verdicts.spans(begins.in_verdicts(), ends.in_verdicts())
        fresh = begins.initial
        return [
            VerdictSpan(
                number,
                ends.first[number] if fresh else begins.next.get(number, NOWHERE),
                ends.next[number],
                first,
                after,
                fresh=fresh,
            )
            for number, first, after in planned
        ]
