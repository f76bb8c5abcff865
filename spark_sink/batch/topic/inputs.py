"""Chooses the part of a topic that a run reads, by what the commits say of earlier ones.

A run reads each partition from where the last committed run over the same topic ended to its last stable
offset. That position stands in the commit, and so counts with the rows or not at all. What is made again from a
date on is read from what is retained up to the position, and moves it nowhere.

Invariant: a topic is known by its id, not by its name; one that was deleted and created again is another.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

from processor.errors import StopError
from spark_sink.batch.inputs import DIGITS
from spark_sink.batch.table.commits import RUN, TopicSpan
from spark_sink.batch.topic.staged import TopicFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spark_sink.batch.table.commits import Commit, InputStamp, Snapshot
    from spark_sink.batch.tasks.inspect import Footer
    from spark_sink.batch.topic.source import BatchTopicReader, TopicBounds

_MOST_OFFSET = 1 << 40
"""As many rows as a file can have where they are judged. A partition of 10,000 records per second has as many
after three years, one of a million after twelve days."""


_FOLDER = "topic"
"""In staging."""


class TopicInputs:
    """What one run reads of a topic.

    Args:
        reader: Of the topic.
        snapshot: What counts.
        since: The date from which on results are made again; None: none are.
        say: Told of what is lost.

    Attributes:
        span: What is read, as the commit has it.
        expired: Offsets that retention has taken before a run could read them.

    Raises:
        StopError: The topic is not there, has lost its end, or cannot be read again.
    """

    stamps: tuple[InputStamp, ...] = ()
    constants = ()

    logged = None

    def __init__(
        self, reader: BatchTopicReader, snapshot: Snapshot, since: str | None, say: Callable[[str], None]
    ) -> None:
        self._reader, self._snapshot, self._since, self._say = reader, snapshot, since, say
        self._state = state = reader.look()
        self._position = _position(snapshot, state, say)
        if gone := self._position.keys() - state.bounds.keys():
            number = min(gone)
            raise StopError(
                f"{state.topic}:{number} was read up to {self._position[number]} by a run that has committed, "
                "and Kafka's answer has no such partition: a broker that has just started may not know all; "
                "start again"
            )
        self.expired = 0
        spans = {number: self._span(number, *bounds) for number, bounds in sorted(state.bounds.items())}
        if since is not None and not self._position:
            raise StopError(
                f"no run has read topic {state.topic} yet, so there is nothing to make again: leave --from out"
            )
        self.span = TopicSpan(state.topic, state.topic_id, spans)

    def _span(self, number: int, start: int, stable: int) -> tuple[int, int]:
        # A partition that no run knew was added since: nothing of it has been read.
        name, at = f"{self._state.topic}:{number}", self._position.get(number, 0 if self._position else None)
        if max(stable, at or 0) >= _MOST_OFFSET:
            raise StopError(f"{name} has offsets beyond {_MOST_OFFSET:,}, which a batch cannot order")
        if at is not None and at > stable:
            raise StopError(
                f"{name} ends at {stable}, and a run that has committed has read it up to {at}: it has lost "
                "its end. What comes there now would have offsets that are taken; name another output"
            )
        if self._since is not None:
            return (start, start) if at is None else (min(start, at), at)
        if at is not None and at < start:
            self.expired += start - at
            self._say(
                f"retention has removed the offsets {at} to {start - 1} of {name}, which no run has read: they "
                f"are lost, and this one goes on at {start}"
            )
        return max(start, at or 0), max(start, stable)

    @property
    def names(self) -> list[str]:
        """What stands for the base name of a file, in the order in which rows of one time are judged."""
        return sorted(f"{self.span.topic}-{number}" for number in self.span.partitions)

    def files(self, staging: Path) -> list[Path]:
        """Return where its partitions are put aside, in the order of `names`."""
        return [staging / _FOLDER / each for each in self.names]

    @property
    def undated(self) -> set[str]:
        """Inputs of which rows without a date are made again: none, for such rows come to the same again."""
        return set()

    def identity(self) -> str:
        """Return the name of a run over it; what retention takes does not change what is made again."""
        spans = self.span.partitions
        known = [[each, *(spans[each][1:] if self._since else spans[each])] for each in sorted(spans)]
        told = json.dumps([self.span.topic, self.span.topic_id, known])
        return hashlib.sha256(told.encode()).hexdigest()[:DIGITS]

    def latest(self) -> Commit | None:
        """Return the last run over the topic where nothing has come since; None: something has, or none was."""
        if self._since is not None or any(start < stop for start, stop in self.span.partitions.values()):
            return None
        return _last_run(self._snapshot, self._state)

    def require_same(self, commit: Commit) -> None:
        """Refuse a committed run's name for another topic; records that came later are for the next run.

        Raises:
            StopError: Names the difference.
        """
        before, now = commit.topic, self.span
        if before is None:
            differs = f"files, and not topic {now.topic}"
        elif before.topic != now.topic:
            differs = f"topic {before.topic}, and not {now.topic}"
        elif not before.is_of(now.topic, now.topic_id):
            differs = f"a topic {before.topic} that was deleted; this one was created later"
        else:
            later = sum(stop - max(start, 0) for start, stop in now.partitions.values())
            if later and self._since is None:
                self._say(f"{later:,} offsets came after that: they are for a run of another name")
            return
        raise StopError(
            f"run {commit.run} has committed over {differs}. Give this run a name of its own, or leave --run "
            "out"
        )

    def stage(self, staging: Path) -> list[Footer]:
        """Put the records aside; return what the files have, in the order of `names`.

        Raises:
            StopError: They cannot be read.
        """
        self._say(f"reading {self.span.offsets:,} offsets of topic {self.span.topic}")
        spans, folder = self.span.partitions, staging / _FOLDER
        folder.mkdir()
        with ExitStack() as opened:
            written = {
                number: opened.enter_context(TopicFile(folder / f"{self.span.topic}-{number}"))
                for number in spans
            }
            self._reader.read(self._state, spans, lambda number, block: written[number].take(block))
        footers = {f"{self.span.topic}-{number}": each.footer for number, each in written.items()}
        return [footers[name] for name in self.names]

    def require_unchanged(self) -> None:
        """Do nothing: what was put aside does not change."""


def _last_run(snapshot: Snapshot, state: TopicBounds) -> Commit | None:
    runs = (each for each in reversed(snapshot.commits) if each.kind == RUN and each.topic is not None)
    return next((each for each in runs if each.topic and each.topic.is_of(state.topic, state.topic_id)), None)


def _position(snapshot: Snapshot, state: TopicBounds, say: Callable[[str], None]) -> dict[int, int]:
    """Return by partition the offset up to which committed runs have read the topic; empty: none has."""
    last = _last_run(snapshot, state)
    if last is not None and last.topic is not None:
        return {number: stop for number, (_, stop) in last.topic.partitions.items()}
    if any(each.topic is not None and each.topic.topic == state.topic for each in snapshot.commits):
        say(f"topic {state.topic} was deleted and created again since the last run: it is read from its start")
    return {}
