"""The kinds of hops, and what is different about the work on each.

A slot works on one hop (`processor.pipeline.hops`), by the same steps, fences and positions whichever it is. It
asks a `HopKind` what differs:

    only      records are judged and go to the sink
    first     nothing is judged but whether it can be; what passes is dealt out over the internal topic's
              partitions, each record with its source ref, which names its partition and offset in the source
              (`processor.engine.repartition`); the state is a position
    second    the source ref is taken off before anything else sees the record; it is what ids are owned by and
              what receipts and messages name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from typing_extensions import override

from processor.engine import repartition
from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.extract.scopes import MOST_SCOPE_BYTES
from processor.engine.ids.judgement import IdJudgement
from processor.engine.receipts import IdGrounds
from processor.engine.verdict import Fault
from processor.errors import StopBeforeError, reset_command
from processor.judges.factory import mode_of
from processor.judges.ids import IdEvidence, evidence_of, make_id_extractor, worker_clock_ms
from processor.judges.judge import Judge
from processor.kafka.topics.index import index_fault, index_topic, route_index_topic
from processor.kafka.topics.plan import changelog_topic, limit_bytes, positions_topic
from processor.pipeline.hops import FirstHop, Hop, route_definition
from processor.pipeline.ports import RouteTopics, Topics
from processor.wire.encode import TooLargeError
from processor.wire.quarantine import mark_too_large, oversized, surely_fits
from processor.wire.repartition import Refs, RouteEncoder, take_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.batch.edits import Edits
    from processor.judges.judge import Evidence
    from processor.kafka.topics.plan import ClusterView
    from processor.wire.decode import Piece
    from processor.wire.encode import EncodedBatch, Encoder
    from schemas.config import InsertIdDedup, Pipeline, Settings


NO_LIMIT_BYTES = 2**31 - 1
"""More than any batch can have: brokers keep limits in an int32."""


class HopKind:
    """The only hop of a pipeline, or what all hops have in common.

    Attributes:
        upstream: See `Hop`. The records of an internal topic are nowhere else, so no part of it is passed over.
        only_positions: Whether its state is one position per partition and nothing else, and means the same
            in all.
    """

    only_positions = False

    def __init__(self, hop: Hop, topics: Topics) -> None:
        self.hop = hop
        self.topics = topics
        self.upstream = hop.upstream

    # ---------------------------------------------------------------- its state

    @property
    def deletes(self) -> bool:
        """Whether the slot deletes what nobody needs: of its changelog, and of an internal topic."""
        return self.hop.pipeline.dedup.trims_changelog

    @property
    def definition(self) -> bytes:
        """16 bytes that change when the meaning of its stored state changes."""
        return mode_of(self.hop.pipeline).definition()

    @property
    def meaning(self) -> dict[str, Any]:
        """What the definition is made of; empty where nobody keeps it."""
        return mode_of(self.hop.pipeline).meaning()

    @property
    def judged_by(self) -> str:
        """The keys of the config that the definition is made of, for messages."""
        return ", ".join(mode_of(self.hop.pipeline).judged_by())

    def judge(self, now_ms: Callable[[], int] = worker_clock_ms) -> Judge:
        """Return a judge for one partition, with no state yet; ``now_ms`` is the worker's clock."""
        return mode_of(self.hop.pipeline).judge(now_ms)

    # ---------------------------------------------------------------- its pieces

    def take_off(self, piece: Piece) -> Refs | None:
        """Make the records of a piece what they were before they were routed.

        Returns:
            What they carried, up to the first record that was not routed; None: none of this hop are.
        """
        return None if self.upstream is None else take_off(piece)

    def mark_too_large(self, encoder: Encoder, number: int, piece: Piece, evidence: Evidence) -> None:
        """Give the records of a source partition that are too large to go on their code, in ``evidence``."""
        del number
        mark_too_large(encoder, piece, evidence.fault, self.topics.sink_limit_bytes)

    def encode(
        self,
        encoder: Encoder,
        number: int,
        piece: Piece,
        evidence: Evidence,
        stays: NDArray[np.uint8],
        edits: Edits | None = None,
    ) -> dict[int, list[EncodedBatch]]:
        """Encode what passes of a source partition, some of it with edits, by the partition that it goes to.

        ``stays`` is uint8[n], 0: the record goes on.

        Raises:
            StopBeforeError: A record cannot go on its way.
        """
        del evidence
        if self.topics.sink is None:
            return {}
        return {number: encoder.encode(piece, stays, self.topics.sink_limit_bytes, edits)}

    # ---------------------------------------------------------------- what it says to people

    @property
    def named_source(self) -> str:
        """The topic that receipts and messages say records are from."""
        return self.upstream or self.topics.source

    def detail(self, code: Fault) -> str:
        """Say what a fault code means."""
        return _DETAILS[code].format(limit=self.topics.sink_limit_bytes, sink=self.topics.sink)

    def reset(self, to: str) -> str:
        """Say how its state is rebuilt from the source, from where the option ``to`` says."""
        return how_to_reset(self.hop.pipeline, to)

    def step_over(self, number: int, offset: int | str) -> str:
        """Say how a partition is made to go on at an offset."""
        if not self.hop.pipeline.routed:
            return reset_command(self.hop.name, f"--to-offset {number}:{offset}")
        # A reset does not know routes yet; what is deleted in front the worker says is gone, and goes on.
        return (
            f"stop the workers and have kafka-delete-records.sh delete {self.topics.source}:{number} up to "
            f"offset {offset}"
        )


class FirstHopKind(HopKind):
    """The hop to an internal topic.

    Invariant: a record is there exactly once, in the transaction that takes it out of the source, and equal ids
    stand there in the order in which a source partition has them.
    """

    only_positions = True
    deletes = False

    def __init__(self, hop: FirstHop, topics: RouteTopics) -> None:
        super().__init__(hop, topics)
        self._hop, self._topics = hop, topics
        self._encoder = RouteEncoder()

    @property
    @override
    def definition(self) -> bytes:
        return route_definition(self._hop, self._topics.internal_partitions)

    @property
    @override
    def meaning(self) -> dict[str, Any]:
        return {}

    @property
    @override
    def judged_by(self) -> str:
        return f"id, on_missing, the number of partitions of {self._topics.internal}"

    @override
    def judge(self, now_ms: Callable[[], int] = worker_clock_ms) -> Judge:
        del now_ms
        return RouteJudge(self._hop.dedup)

    @override
    def mark_too_large(self, encoder: Encoder, number: int, piece: Piece, evidence: Evidence) -> None:
        super().mark_too_large(encoder, number, piece, evidence)
        if self.topics.quarantine is None:
            return
        # The internal topic takes them with their source ref and route word, and a codec makes more of some.
        limit, fault = self._topics.internal_limit_bytes, evidence.fault
        rows = oversized(piece.columns, surely_fits(limit) - repartition.MORE_BYTES).tolist()
        if not rows:
            return
        _, word = repartition.targets(
            cast("IdEvidence", evidence).ids, fault, number, self._topics.internal_partitions
        )
        # A source ref that does not fit is named where it is written.
        least = np.minimum(piece.columns.offset, repartition.MOST_OFFSET)
        refs = Refs(least << repartition.PARTITION_BITS | number, word)
        for row in rows:
            if self._encoder.alone_bytes(piece, row, refs) > limit:
                fault[row] = Fault.TOO_LARGE

    @override
    def encode(
        self,
        encoder: Encoder,
        number: int,
        piece: Piece,
        evidence: Evidence,
        stays: NDArray[np.uint8],
        edits: Edits | None = None,
    ) -> dict[int, list[EncodedBatch]]:
        del encoder, edits
        topics = self._topics
        count, limit = topics.internal_partitions, topics.internal_limit_bytes
        ids, fault = cast("IdEvidence", evidence).ids, np.where(stays == 0, np.uint8(0), evidence.fault)
        # What goes on without being judged has no id to go by.
        ids = ids._replace(unjudged=ids.unjudged | (evidence.fault > fault))
        target, word = repartition.targets(ids, fault, number, count)
        try:
            refs = Refs(repartition.source_ref_of(number, piece.columns.offset), word)
            return self._encoder.encode(piece, target, refs, count, limit)
        except ValueError as error:
            far = piece.columns.offset > repartition.MOST_OFFSET
            offset = int(piece.columns.offset[far.argmax()])
            raise StopBeforeError(offset, f"{topics.source}:{number} cannot be routed: {error}") from error
        except TooLargeError as error:
            offset = int(piece.columns.offset[error.row])
            raise StopBeforeError(
                offset,
                f"{topics.source}:{number}:{offset}: on its way to the partition of its id the record is too "
                f"large: topic {topics.internal} needs max.message.bytes of at least {error.size_bytes} "
                f"(it has {limit}). Everything before it is committed. Raise that, set pipelines.quarantine "
                f"for pipeline {self.hop.pipeline.name}, or step over it: {self.step_over(number, offset + 1)}",
            ) from error

    @override
    def detail(self, code: Fault) -> str:
        said = super().detail(code)
        if code is not Fault.TOO_LARGE:
            return said
        return f"{said}, or above the {self._topics.internal_limit_bytes} of {self._topics.internal} on its way"


class RouteJudge(Judge[IdEvidence]):
    """Judges nothing: reads ids, by the hash that says where they go."""

    def __init__(self, dedup: InsertIdDedup) -> None:
        # A fault of a fingerprint is found here, too: what cannot be judged goes no further.
        self._extractor = make_id_extractor(dedup, ROUTE_KEY)

    @override
    def extract(self, columns: Columns) -> IdEvidence:
        return evidence_of(self._extractor, columns, kept=True)

    @override
    def judge(self, evidence: IdEvidence) -> IdGrounds:
        # What can be judged passes.
        judged = IdJudgement.begun(evidence.ids.fault)
        return IdGrounds(judged.verdict, evidence.ids, judged.owner, judged.expires_ms)


def kind_of(settings: Settings, hop: Hop, view: ClusterView) -> HopKind:
    """Return the kind of a hop, its topics being as ``view`` has them."""
    if isinstance(hop, FirstHop):
        return FirstHopKind(hop, first_topics(settings, hop, view))
    return HopKind(hop, topics_for(settings, hop, view))


def how_to_reset(pipeline: Pipeline, to: str) -> str:
    """Say how a pipeline's state is rebuilt from the source, from where the option ``to`` says."""
    if pipeline.routed:
        return "no command does that yet with route"
    return reset_command(pipeline.name, to)


def topics_for(settings: Settings, hop: Hop, view: ClusterView) -> Topics:
    """Return the topics of a hop to a sink, with what they take."""
    pipeline, quarantine, duplicates = hop.pipeline, hop.quarantine, hop.duplicates
    sink, verdicts = pipeline.sink if pipeline.writes_records else None, pipeline.verdicts
    changelog = changelog_topic(settings, pipeline)
    # Of the source's partition count, or of any where another hop reads the source.
    aside = view[quarantine].partitions if quarantine and hop.upstream else 2**31 - 1
    placed = sink, verdicts, duplicates, None if hop.upstream else quarantine
    written = [*filter(None, placed), changelog]
    index = usable_index(index_topic(settings, pipeline), view)
    return Topics(
        hop.source,
        sink,
        quarantine,
        changelog,
        # Without a sink nothing is too large: what the source has taken lies there.
        limit_bytes(view, sink) if sink else NO_LIMIT_BYTES,
        limit_bytes(view, quarantine) if quarantine else 0,
        limit_bytes(view, changelog),
        duplicates,
        limit_bytes(view, duplicates) if duplicates else 0,
        min(view[topic].partitions for topic in written),
        aside,
        index,
        view[index].partitions if index else 0,
        verdicts,
        limit_bytes(view, verdicts) if verdicts else 0,
    )


def first_topics(settings: Settings, hop: FirstHop, view: ClusterView) -> RouteTopics:
    """Return a first hop's topics with what they take."""
    positions, sink = positions_topic(settings, hop.pipeline.name), hop.pipeline.clean_topic
    index = usable_index(route_index_topic(settings, hop.pipeline), view)
    return RouteTopics(
        source=hop.source,
        sink=sink,
        quarantine=hop.quarantine,
        changelog=positions,
        sink_limit_bytes=limit_bytes(view, sink),
        quarantine_limit_bytes=limit_bytes(view, hop.quarantine) if hop.quarantine else 0,
        changelog_limit_bytes=limit_bytes(view, positions),
        width=view[positions].partitions,
        internal=hop.internal,
        internal_limit_bytes=limit_bytes(view, hop.internal),
        internal_partitions=view[hop.internal].partitions,
        quarantine_partitions=view[hop.quarantine].partitions if hop.quarantine else 1,
        index=index,
        index_partitions=view[index].partitions if index else 0,
    )


def usable_index(topic: str, view: ClusterView) -> str | None:
    """Return the name of a topic of marks; None where it is not there, or could refuse one."""
    return topic if topic in view and index_fault(view[topic].configs) is None else None


_DETAILS = {
    Fault.NONE: "",
    Fault.TOO_LARGE: "the record alone makes a batch above the {limit} bytes that {sink} takes",
    Fault.HEADER_MISSING: "the record lacks a header that it is judged by",
    Fault.HEADER_MALFORMED: "a header that the record is judged by has no value, or not of its form",
    Fault.KEY_MISSING: "the record has no key",
    Fault.VALUE_MISSING: "the record has no value",
    Fault.VALUE_NOT_JSON: "the value is not valid JSON",
    Fault.VALUE_MALFORMED: "the value does not begin with the five bytes of a schema registry",
    Fault.FIELD_MISSING: "the value has no such field",
    Fault.FIELD_TYPE: "the field has another type",
    Fault.OUT_OF_RANGE: "sequence or epoch is beyond 64 bits, or beyond wraps",
    Fault.ID_COLLISION: "the id is that of another record, with other content",
    Fault.SCOPE_TOO_LARGE: f"the key or header that scopes the record is above {MOST_SCOPE_BYTES:,} bytes",
}
