"""Looks up when the events of a topic were: reads a record batch where it is asked to, by the kernels."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.events import EventReader
from processor.kafka.plain.topic_log import LogSpan
from spark_sink.source.planning.cut import KnownTimes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

    from processor.engine.events import Columns
    from processor.kafka.plain.topic_log import TopicLog
    from spark_sink.source.partials import PartialPlan

_ONE_BATCH = 1
"""So many bytes at most, and one batch at least, is one batch."""
_FETCH_BYTES = 1024 * 1024
_NONE = np.empty(0, np.int64)


class TopicTimes:
    """The `spark_sink.source.planning.cut.EventTimes` of a topic.

    Args:
        log: The topic.
        events: Which records are events, and which field is their time.
        accept_loss: As of `TopicLog.read`.
    """

    def __init__(self, log: TopicLog, events: PartialPlan, *, accept_loss: bool) -> None:
        self._log, self._events, self._accept_loss = log, events, accept_loss
        self._reader = EventReader(events.rules)

    def look(self, partition: int, start: int, stop: int) -> KnownTimes:
        """Return what lies from ``start`` on, up to the first record batch with an event, ``stop`` at most.

        Raises:
            StopError: As of `TopicLog.read`.
        """
        at = start
        # Behind a batch without an event may be many of those: they come some at a time.
        for most in (_ONE_BATCH, _FETCH_BYTES):
            with closing(self._read(partition, at, stop, most)) as found:
                for each in found:
                    at = each.after
                    if each.times.size or at >= stop:
                        return each._replace(start=start)
                    if most == _ONE_BATCH:
                        break
        return KnownTimes.of(start, stop, _NONE, _NONE)

    def sweep(self, partition: int, start: int, stop: int) -> Iterator[KnownTimes]:
        """Yield all that lies from ``start`` to before ``stop``, one stretch behind the other.

        Raises:
            StopError: As of `TopicLog.read`.
        """
        with closing(self._read(partition, start, stop, _FETCH_BYTES)) as found:
            yield from found

    def _read(self, partition: int, start: int, stop: int, most_bytes: int) -> Generator[KnownTimes]:
        steps = self._log.steps(LogSpan(partition, start, stop), most_bytes, accept_loss=self._accept_loss)
        at = start
        with closing(steps):
            for columns, after in steps:
                yield KnownTimes.of(at, after, *self._found(columns))
                at = after

    def _found(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offsets and times of the events; the columns are good until the next step."""
        if not len(columns):
            return _NONE, _NONE
        events = self._reader.read(columns)
        time = events.fields[self._events.time]
        rows = np.flatnonzero(self._events.counts(events, columns) & time.valid)
        return columns.offset[rows], time.numbers[rows].astype(np.int64)
