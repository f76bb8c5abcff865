"""Reads spans of a topic's partitions, for programs that have no event loop: Spark's tasks, and who plans them.

Connections live in one thread per process, which is made when the first topic is opened, and are kept: a task
that reads a topic after another one finds them open.

Invariant: records are of the topic with the id that was asked for, or none come. What a topic that was made
again holds never stands in for the old one's.
"""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from typing_extensions import override

from processor.errors import RebuildError, StopError
from processor.kafka.client import Client, KafkaError, TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.options import client_options
from processor.kafka.reader import PartitionReader, ReadPolicy, StopReading
from processor.wire.decode import Decoder
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator

    from processor.engine.batch.columns import Columns
    from processor.kafka.fetch import OutOfRangeError
    from processor.kafka.offsets import Bounds
    from processor.wire.decode import Piece, UndecodableError
    from schemas.config import Kafka

T = TypeVar("T")
_CLIENT_ID = "seqmark-spark"
_ADVICE = "; start again when it can be reached"


class LogSpan(NamedTuple):
    """Offsets of one partition, ``start`` to before ``stop``."""

    partition: int
    start: int
    stop: int

    @property
    def offsets(self) -> int:
        """How many there are: at least as many as records."""
        return max(self.stop - self.start, 0)


class _AcceptLoss(ReadPolicy):
    """Goes on where offsets are gone, with the first that is there."""

    def __init__(self, client: Client, tp: TopicPartition) -> None:
        self._client, self._tp = client, tp

    @override
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        return _STOP.after_damage(name, error, stop)

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        first = (await bounds(self._client, [self._tp]))[self._tp].start
        return min(max(first, error.position + 1), stop)


_STOP = StopReading(
    damage="; nothing of this batch counts. Copy the topic without that batch, and read the copy",
    loss=": retention has removed what was not read yet. Accept the loss (`accept_loss`), or begin with a new "
    "checkpoint and a new output",
)


class TopicLog:
    """One topic, as long as it is the same one; `open` gives it.

    Attributes:
        topic: Its name.
        id: Its id as Kafka's tools write it; empty: brokers before 2.8 have none.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self.topic = topic
        self.id = _written(client.ids.get(topic, UNKNOWN_ID))

    @property
    def id_bytes(self) -> bytes:
        """Its id in 16 bytes, as it stands in other topics; zeros: not known."""
        return _read(self.id) if self.id else UNKNOWN_ID

    @classmethod
    def open(cls, kafka: Kafka, topic: str, topic_id: str = "") -> TopicLog:
        """Return the topic, connected; the same one again where this process has it open.

        Args:
            kafka: How the cluster is reached.
            topic: Its name.
            topic_id: Its id, where it has to be this one; empty: any.

        Raises:
            StopError: There is no such topic, it is another one, or no broker answers.
        """
        key = kafka.model_dump_json() + repr(kafka.sasl_plain_password), topic, topic_id
        with _OPENING:
            known = _OPEN.get((os.getpid(), *key))
            if known is not None and not known.lost:
                return known
            ids = {topic: _read(topic_id)} if topic_id else None
            opened = cls(_wait(_connected(kafka, topic, ids)), topic)
            opened.partitions()
            if known is not None:
                _wait(known.close())
            _OPEN[os.getpid(), *key] = opened
            return opened

    @property
    def lost(self) -> bool:
        """Whether it is gone, or another one by now, as far as is known."""
        return self.topic in self._client.lost

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def partitions(self) -> set[int]:
        """Ask for the topic as it is now, and return its partitions' numbers.

        Raises:
            StopError: There is no such topic, or it was made again.
        """
        _wait(self._client.refresh())
        found = self._client.partitions(self.topic)
        if self.lost:
            raise StopError(
                f"topic {self.topic} was deleted, or made anew: what was read had the id {self.id}. Going on "
                f"at the old offsets would leave out the beginning of the new one: begin with a new "
                f"checkpoint and a new output"
            )
        if not found:
            raise StopError(f"topic {self.topic} does not exist; create it, or correct the name")
        if not self.id:
            self.id = _written(self._client.ids.get(self.topic, UNKNOWN_ID))
        return found

    def bounds(self) -> dict[int, Bounds]:
        """Return where each partition begins and ends now.

        Raises:
            StopError: There is no such topic, it was made again, or a leader does not answer.
        """
        wanted = [TopicPartition(self.topic, number) for number in self.partitions()]
        return {tp.partition: each for tp, each in _wait(bounds(self._client, wanted)).items()}

    def start(self, number: int) -> int:
        """Return the first offset of a partition that is retained now.

        Raises:
            StopError: Its leader does not answer.
        """
        tp = TopicPartition(self.topic, number)
        return _wait(bounds(self._client, [tp]))[tp].start

    def read(self, span: LogSpan, *, accept_loss: bool = False) -> Iterator[Columns]:
        """Yield a span's committed records, some thousands at a time; each is good until the next one.

        Args:
            span: What to read.
            accept_loss: Leave out what retention has removed.

        Raises:
            StopError: Something of it cannot be read; says what to do.
        """
        for piece in self.pieces(span, accept_loss=accept_loss):
            yield piece.up_to(span.stop)[0]

    def steps(
        self, span: LogSpan, most_bytes: int, *, accept_loss: bool = False
    ) -> Generator[tuple[Columns, int]]:
        """Yield a span's committed records, and the offset after them, a fetch after the other; as `read` else.

        Args:
            span: What to read.
            most_bytes: Of a fetch; one whole batch comes at least.
            accept_loss: Leave out what retention has removed.
        """
        with closing(self.pieces(span, accept_loss=accept_loss, most_bytes=most_bytes)) as pieces:
            for piece in pieces:
                yield piece.up_to(span.stop)

    def pieces(
        self,
        span: LogSpan,
        *,
        accept_loss: bool = False,
        beside: bool = False,
        most_bytes: int | None = None,
    ) -> Generator[Piece]:
        """Yield pieces of a span; the last may go beyond it. As `read` otherwise.

        Args:
            span: What to read.
            accept_loss: Leave out what retention has removed.
            beside: Whether this thread reads other pieces meanwhile.
            most_bytes: Of one fetch, which then is not made before it is asked for; one whole batch comes at
                least. None: as suits a whole span.
        """
        tp = TopicPartition(self.topic, span.partition)
        policy = _AcceptLoss(self._client, tp) if accept_loss else _STOP
        reader = PartitionReader(
            self._client,
            _decoder(beside=beside),
            tp,
            policy,
            ahead=most_bytes is None,
            most_bytes=most_bytes,
        )
        coming = reader.pieces(span.start, span.stop)
        try:
            while (found := _wait(_next(coming))) is not None:
                yield found
        finally:
            _wait(coming.aclose())


def close_topics() -> None:
    """Close the connections to all topics that this process has open; for programs that go on without them."""
    with _OPENING:
        mine = [key for key in _OPEN if key[0] == os.getpid()]
        for key in mine:
            _wait(_OPEN.pop(key).close())


async def _next(coming: AsyncGenerator[Piece]) -> Piece | None:
    return await anext(coming, None)


async def _connected(kafka: Kafka, topic: str, ids: dict[str, bytes] | None) -> Client:
    return await Client.open(client_options(kafka), _CLIENT_ID, [topic], ids)


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run something in the thread of connections, and return what it does.

    Raises:
        StopError: Kafka cannot be reached, or says that the topic is another one.
    """
    try:
        return asyncio.run_coroutine_threadsafe(work, _loop()).result()
    except (KafkaError, TimeoutError) as error:
        raise StopError(f"cannot reach Kafka: {error!r}{_ADVICE}") from error
    except RebuildError as error:
        raise StopError(f"{error}{_ADVICE}, and begin with a new checkpoint if it was made anew") from error


_OPENING = threading.Lock()
_OPEN: dict[tuple[int, str, str, str], TopicLog] = {}
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_DECODERS: dict[tuple[int, bool], Decoder] = {}


def _loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop; a process that was forked has none of its parent's."""
    loop = _LOOPS.get(os.getpid())
    if loop is None:
        loop = _LOOPS[os.getpid()] = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="seqmark-kafka", daemon=True).start()
    return loop


def _decoder(*, beside: bool) -> Decoder:
    """Return this thread's decoder, or its second one: a buffer serves one reader at a time."""
    key = threading.get_ident(), beside
    return _DECODERS.get(key) or _DECODERS.setdefault(key, Decoder())


def _written(topic_id: bytes) -> str:
    return "" if topic_id == UNKNOWN_ID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _read(topic_id: str) -> bytes:
    return base64.urlsafe_b64decode(topic_id + "==")
