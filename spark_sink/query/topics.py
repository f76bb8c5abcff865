"""Tells whether a topic is still the one that was read, by Kafka's id of it (KIP-516).

A topic that was deleted and created again has the same name, and as soon as it has grown the same offsets:
going on at the old ones would leave out its beginning. Kafka's Java client in Spark's JVM is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none

from processor.errors import StopError
from schemas.config.absent import absent_topic
from spark_sink.query.sources import client_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from schemas.config import Settings, Sink

TIMEOUT_S = 60
"""For an answer of the broker: as long as the client itself tries again (`default.api.timeout.ms`)."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What the client says where the broker knows no ids: 16 zero bytes."""


class TopicNow(NamedTuple):
    """A topic as it is now."""

    id: str | None
    """None: the broker knows no ids (Kafka before 2.8)."""
    partitions: int


class SourceTopic:
    """The topic that an aggregate reads; asked by a client of its own, which is closed at exit."""

    def __init__(self, spark: SparkSession, settings: Settings, sink: Sink) -> None:
        self._sink, self._by_verdicts = sink.name, sink.verdicts is not None
        self._pipelines = settings.pipelines
        self.name = sink.topic
        self._jvm: Any = spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        properties = self._jvm.java.util.Properties()
        for name, value in client_options(settings.kafka).items():
            properties.setProperty(name, value)
        self._admin: Any = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._admin.close()

    def now(self) -> TopicNow:
        """Return what the topic is now.

        Raises:
            StopError: There is no such topic, or the broker does not answer.
        """
        asked = self._jvm.java.util.Collections.singletonList(self.name)
        found = self._answer(lambda: self._admin.describeTopics(asked).allTopicNames()).get(self.name)
        named = str(found.topicId().toString())
        return TopicNow(None if named == _NO_ID else named, found.partitions().size())

    def earliest(self) -> dict[str, int]:
        """Return the first offset that is there, by partition, as Spark writes it down.

        Raises:
            StopError: Kafka does not answer, or the topic is gone.
        """
        specs = self._jvm.java.util.HashMap()
        for number in range(self.now().partitions):
            place = self._jvm.org.apache.kafka.common.TopicPartition(self.name, number)
            specs.put(place, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
        found = self._answer(lambda: self._admin.listOffsets(specs).all())
        return {str(place.partition()): found.get(place).offset() for place in specs}

    def require(self, known: str | None, *, partitions: int | None = None) -> None:
        """Refuse a topic that is not the one that is known.

        Args:
            known: Id of the topic that was read; None: any.
            partitions: How many it may have; None: any number.

        Raises:
            StopError: It is another one, has more partitions or is gone, or Kafka does not answer.
        """
        found, number = self.now()
        if partitions is not None and number > partitions:
            raise StopError(
                f"aggregate {self._sink}: topic {self.name} has {number} partitions now, and "
                f"max_offsets_per_trigger bounds the batches of a single one only. Nothing is lost: start "
                f"again, and all that is there is one batch"
            )
        if is_another(known, found):
            onward = "To go on with all that it holds, beside what is counted already: seqmark aggregate "
            onward = "" if self._by_verdicts else f"{onward}--accept-loss. "
            raise StopError(
                f"aggregate {self._sink}: topic {self.name} was deleted and made anew: the aggregate has read "
                f"the one with the id {known}, now it is {found}. Going on at the old offsets would leave out "
                f"its beginning. {onward}To count anew: remove output, checkpoint and aside folder"
            )

    def _answer(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask().get(TIMEOUT_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
        except Py4JJavaError as error:
            text = str(error.java_exception.toString())
            if "UnknownTopicOrPartition" in text:
                said = absent_topic(self.name, self._pipelines, self._existing())
            else:
                said = f"the broker does not answer for topic {self.name}; start again when it does ({text})"
            raise StopError(f"aggregate {self._sink}: {said}") from None

    def _existing(self) -> list[str]:
        """Return the names of the topics that this user may see; nothing where Kafka does not say."""
        try:
            names = self._admin.listTopics().names()
            return [str(name) for name in names.get(TIMEOUT_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)]
        except Py4JJavaError:
            return []


def is_another(known: str | None, found: str | None) -> bool:
    """Say whether two ids are those of two topics; one that is not known may be any."""
    return known is not None and found is not None and known != found
