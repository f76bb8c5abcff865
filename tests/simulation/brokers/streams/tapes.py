"""Topics whose logs come to be once more, batch by batch, while others read them; and what stood in them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from processor.kafka.client import TopicPartition
from schemas.verdicts.record import VerdictRecord
from seqmark.in_memory.cluster import MemoryLog
from tests.simulation.brokers.kafka.cluster import Brokers, Luck
from tests.simulation.truth.oracle import read
from tests.support.wire import batches

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

SOURCE, VERDICTS = "source", "verdicts"


def as_text(topic_id: bytes) -> str:
    """Return a topic's id as places have it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


class Row(NamedTuple):
    """A record as the Spark source gives it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class Tape(MemoryLog):
    """A partition that holds some of a log, and gets the rest of it bit by bit.

    Attributes:
        whole: All of it.
        fetches: How many fetches have brought records.
    """

    def __init__(self, whole: MemoryLog) -> None:
        super().__init__(whole.start, whole.start)
        self.whole = whole
        self._coming = list(whole._batches)
        self._ended = {end: (who, first, end) for who, first, end in whole.aborted}
        self.fetches = 0

    @property
    def left(self) -> int:
        """How many batches are to come."""
        return len(self._coming)

    def play(self, count: int) -> None:
        """Let the next batches come."""
        for end, batch in self._coming[:count]:
            header = batches.HEADER.unpack_from(batch)
            base, attributes, producer_id = header[0], header[5], header[9]
            self._batches.append((end, batch))
            self.end = end
            if attributes & batches.CONTROL:
                self.open.pop(producer_id, None)
                self.aborted += [self._ended[base]] if base in self._ended else []
            elif attributes & batches.TRANSACTIONAL:
                self.open.setdefault(producer_id, base)
        del self._coming[:count]

    def play_to(self, offset: int) -> None:
        """Let come what lies before an offset, with the ends of its transactions."""
        while self.left and self.stable < offset:
            self.play(1)

    @override
    def fetch(self, position: int, most_bytes: int) -> tuple[bytes, list[tuple[int, int]]]:
        data, aborted = super().fetch(position, most_bytes)
        self.fetches += bool(data)
        return data, aborted

    def set_batch(self, at: int, batch: bytes) -> None:
        """Have another batch stand where one does."""
        self._batches[at] = self._batches[at][0], batch

    @property
    def raw(self) -> Sequence[tuple[int, bytes]]:
        """The batches that are there, each with the offset after it."""
        return self._batches


class Incarnation(NamedTuple):
    """What a topic of one id holds, when all of it has come; retention does not count.

    Attributes:
        id: Its id, as places of a stream have it.
        rows: By partition.
        said: Of a topic of verdicts, by partition, offsets and records.
    """

    id: str
    rows: Mapping[int, Sequence[Row]]
    said: Mapping[int, Sequence[tuple[int, VerdictRecord]]]


class TopicSeen(NamedTuple):
    """A topic at one moment: its id, and by partition the first offset and the last stable one."""

    id: str
    bounds: Mapping[int, tuple[int, int]]


class World:
    """A cluster of its own, with what was written elsewhere.

    Attributes:
        brokers: The cluster.
        incarnations: By id, all topics that there ever were.
        changed: By partition of the source, the ends of batches that were replaced by others.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.brokers = Brokers(dice, nodes=dice.choice((1, 1, 3)))
        self.brokers.luck = Luck(fetch_bytes=lambda: dice.choice((1, 1_000, 5_000, 1_000_000)))
        self.incarnations: dict[str, Incarnation] = {}
        self.changed: Mapping[int, frozenset[int]] = {}
        self._partitions: dict[str, int] = {}

    def create(
        self, topic: str, wholes: Sequence[MemoryLog], shown: int | None = None, topic_id: bytes | None = None
    ) -> None:
        """Create a topic that gets the content of some logs.

        Args:
            topic: Its name.
            wholes: Its partitions.
            shown: How many of them brokers know of to begin with; None: all.
            topic_id: Its id; None: a new one.
        """
        if topic in self.brokers.topics:
            self.brokers.delete(topic)
        self.brokers.create(topic, len(wholes), {})
        if topic_id is not None:
            self.brokers.topics[topic] = replace(self.brokers.topics[topic], topic_id=topic_id)
        self._partitions[topic] = len(wholes)
        self.changed = {}  # verdicts that are made now know of it
        elsewhere = Brokers(self.dice)
        elsewhere.logs = {TopicPartition(topic, number): whole for number, whole in enumerate(wholes)}
        found = {number: read(elsewhere, topic, number) for number in range(len(wholes))}
        rows = {n: [Row(r.offset, r.key, r.value, r.timestamp) for r in some] for n, some in found.items()}
        said = {}
        if topic == VERDICTS:
            said = {n: [(r.offset, VerdictRecord.decode(r.value)) for r in some] for n, some in found.items()}
        mine = self.id_of(topic)
        self.incarnations[mine] = Incarnation(mine, rows, said)
        for number, whole in enumerate(wholes):
            self.brokers.logs[TopicPartition(topic, number)] = Tape(whole)
        if shown is not None:
            self.show(topic, shown)

    def show(self, topic: str, partitions: int | None = None) -> None:
        """Have brokers know of so many partitions of a topic; None: of all."""
        known = self.brokers.topics[topic]
        number = self._partitions[topic] if partitions is None else partitions
        self.brokers.topics[topic] = replace(known, partitions=number)

    def id_of(self, topic: str) -> str:
        """Return a topic's id of now as text; empty: it is not there."""
        found = self.brokers.topics.get(topic)
        return "" if found is None else as_text(found.topic_id)

    def now(self, topic: str) -> Incarnation:
        """Return what a topic of now comes to hold."""
        return self.incarnations[self.id_of(topic)]

    def seen(self, topic: str) -> TopicSeen:
        """Look at a topic."""
        numbers = range(self.brokers.topics[topic].partitions)
        tapes = {number: self.tape(topic, number) for number in numbers}
        return TopicSeen(self.id_of(topic), {n: (tape.start, tape.stable) for n, tape in tapes.items()})

    def tape(self, topic: str, number: int) -> Tape:
        """Return a partition's log."""
        found = self.brokers.logs[TopicPartition(topic, number)]
        assert isinstance(found, Tape)
        return found

    def tapes(self, topic: str) -> list[Tape]:
        """Return the logs of a topic's partitions, also of those that brokers do not know of yet."""
        return [self.tape(topic, number) for number in range(self._partitions[topic])]

    def wholes(self, topic: str) -> list[MemoryLog]:
        """Return the logs of a topic as they come to be; of one that has changed as they are."""
        return [tape.whole if tape.left else tape for tape in self.tapes(topic)]

    # ---------------------------------------------------------------- what goes on

    def play(self, topic: str, number: int, count: int) -> None:
        """Let the next batches of a partition come; what verdicts speak of is there before them."""
        tape = self.tape(topic, number)
        tape.play(count)
        if topic == VERDICTS:
            said = self.now(VERDICTS).said[number]
            end = max((verdict.end for at, verdict in said if at < tape.end), default=0)
            self.tape(SOURCE, number).play_to(end)

    def play_all(self) -> None:
        """Let all come that is still to come."""
        for topic in sorted(self._partitions):
            self.show(topic)
            for number, tape in enumerate(self.tapes(topic)):
                self.play(topic, number, tape.left)

    def play_some(self) -> None:
        """Let something come somewhere."""
        topic = self.dice.choice(sorted(self._partitions))
        number = self.dice.randrange(self._partitions[topic])
        self.play(topic, number, self.dice.choice((1, 2, 5, 20)))

    def trim(self, topic: str, share: float) -> None:
        """Let retention take the beginning of a partition."""
        tape = self.dice.choice(self.tapes(topic))
        tape.delete_before(tape.start + int((tape.stable - tape.start) * share))

    def change(self, number: int) -> None:
        """Have another batch stand in the source, which nobody has judged."""
        tape = self.tape(SOURCE, number)
        aborted = [(first, end) for _, first, end in tape.aborted]
        places = [
            at
            for at, (end, batch) in enumerate(tape.raw)
            if end <= tape.stable
            and not batches.HEADER.unpack_from(batch)[5] & batches.CONTROL
            and not any(first < end <= last for first, last in aborted)
        ]
        if not places:
            return
        at = self.dice.choice(places)
        batch = tape.raw[at][1]
        header = list(batches.HEADER.unpack_from(batch))
        header[11] += 1  # the first sequence: of no interest to anybody, but covered by the CRC
        tape.set_batch(at, batches.sealed(batches.HEADER.pack(*header) + batch[batches.HEADER.size :]))
        end = tape.raw[at][0]
        self.changed = {**self.changed, number: self.changed.get(number, frozenset()) | {end}}
