"""How do records get from the source to the partition of their id, and what is different about them there?

The two hops of ``route = "by-id"`` (`processor.pipeline.hops`). Both are a `SlotPipeline`: the same steps, the
same fences, the same state that says the position. What differs:

    first     nothing is judged but whether it can be; what passes is dealt out over the internal topic's
              partitions, each record with its place (`processor.engine.repartition`); the state is a position
    second    the place is taken off before anything else sees the record; it is what ids are owned by and what
              receipts and messages name

Invariant: a record is in the internal topic exactly once, in the transaction that takes it out of the source,
and equal ids stand there in the order in which a source partition has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from typing_extensions import override

from processor.engine import repartition
from processor.engine.ids.judgement import IdJudgement
from processor.engine.verdict import Fault
from processor.errors import StopError
from processor.judges.evidence import IdEvidence, InsertIdJudgement
from processor.judges.ids import make_id_extractor
from processor.judges.judge import Judge
from processor.kafka.topics.plan import limit_bytes, positions_topic
from processor.pipeline.hops import SUFFIX
from processor.pipeline.slot_pipeline import PieceOutcome, SlotPipeline, Topics, before
from processor.wire.encode import TooLargeError
from processor.wire.quarantine import oversized, surely_fits
from processor.wire.receipts import ANYWHERE, ReceiptEncoder
from processor.wire.repartition import RouteEncoder, take_off
from schemas.changelog.position import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.id_receipts import IdGrounds
    from processor.engine.receipts import Grounds
    from processor.judges.evidence import Evidence, Judgement
    from processor.kafka.topics.plan import ClusterView
    from processor.ops.metrics import Metrics
    from processor.pipeline.hops import FirstHop, SecondHop
    from processor.pipeline.slot_pipeline import OpenPartition, TransactionOutput
    from processor.pipeline.turns import Turns
    from processor.wire.decode import Decoder, Piece
    from processor.wire.encode import EncodedBatch, Encoder
    from schemas.config import InsertIdDedup, Settings

_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RouteTopics(Topics):
    """Those of a first hop; ``sink`` and its limit are of the pipeline's sink, which it does not write to."""

    internal: str = ""
    internal_limit_bytes: int = 0
    internal_partitions: int = 1
    quarantine_partitions: int = 1

    @property
    def passes_to(self) -> str:
        """See `Topics.passes_to`."""
        return self.internal

    @property
    def written(self) -> list[str]:
        """See `Topics.written`."""
        return [self.internal, *filter(None, (self.quarantine,)), self.changelog]

    def written_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        """See `Topics.written_from`: each source partition writes to all of the internal topic."""
        some = list(numbers)
        found = [(self.internal, number) for number in range(self.internal_partitions)]
        if self.quarantine is not None:
            found += [(self.quarantine, n) for n in sorted({n % self.quarantine_partitions for n in some})]
        return found + [(self.changelog, number) for number in some]


def first_topics(settings: Settings, hop: FirstHop, view: ClusterView) -> RouteTopics:
    """Return a first hop's topics with what they take."""
    positions = positions_topic(settings, hop.of)

    return RouteTopics(
        source=hop.source,
        sink=hop.sink,
        quarantine=hop.quarantine,
        changelog=positions,
        sink_limit_bytes=limit_bytes(view, hop.sink),
        quarantine_limit_bytes=limit_bytes(view, hop.quarantine) if hop.quarantine else 0,
        changelog_limit_bytes=limit_bytes(view, positions),
        width=view[positions].partitions,
        internal=hop.internal,
        internal_limit_bytes=limit_bytes(view, hop.internal),
        internal_partitions=view[hop.internal].partitions,
        quarantine_partitions=view[hop.quarantine].partitions if hop.quarantine else 1,
    )


class RouteJudge(Judge[IdEvidence]):
    """Judges nothing: reads ids, by the hash that says where they go."""

    def __init__(self, dedup: InsertIdDedup) -> None:
        self._extractor = make_id_extractor(dedup, repartition.ROUTE_KEY)

    @override
    def extract(self, columns: Columns) -> IdEvidence:
        ids = self._extractor.extract(columns)
        return IdEvidence(ids.fault, columns.data, ids, columns.offset, columns.timestamp)

    @override
    def judge(self, evidence: IdEvidence) -> InsertIdJudgement:
        # What can be judged passes.
        judged = IdJudgement.begun(evidence.ids)
        return InsertIdJudgement(judged.verdict, evidence.ids, judged.owner, judged.expires_ms)


class _HopPipeline(SlotPipeline):
    """What both hops say to people."""

    @property
    def _configured(self) -> str:
        return self.name.removesuffix(SUFFIX)

    def _step_over(self, number: int, offset: int | str) -> str:
        # A reset does not know routes yet; what is deleted in front the worker says is gone, and goes on.
        return (
            f"stop the workers and have kafka-delete-records.sh delete {self._topics.source}:{number} up to "
            f"offset {offset}"
        )


class FirstHopPipeline(_HopPipeline):
    """Takes chunks of the source in and deals their records out; arguments are `SlotPipeline`'s."""

    def __init__(
        self,
        name: str,
        topics: RouteTopics,
        output: TransactionOutput,
        decoder: Decoder,
        encoder: Encoder,
        metrics: Metrics,
        turns: Turns | None = None,
    ) -> None:
        super().__init__(name, topics, output, decoder, encoder, metrics, turns=turns)
        self._route = topics
        self._router = RouteEncoder()

    @property
    def _sink(self) -> str:
        return self._route.internal

    def _aside(self, partition: OpenPartition) -> int:
        return partition.number % self._route.quarantine_partitions

    def _extract(self, partition: OpenPartition, piece: Piece) -> Evidence:
        evidence = super()._extract(partition, piece)
        if self._topics.quarantine is not None:
            self._mark_too_large(partition, piece, evidence.fault)
        return evidence

    def _mark_too_large(self, partition: OpenPartition, piece: Piece, fault: NDArray[np.uint8]) -> None:
        """Give records that the internal topic cannot take, with their place, their code in ``fault``."""
        limit = self._route.internal_limit_bytes
        for row in oversized(piece.columns, surely_fits(limit) - repartition.MORE_BYTES).tolist():
            # One that cannot be named is told where it is written.
            place = (
                np.minimum(piece.columns.offset, repartition.MOST_OFFSET) << repartition.PARTITION_BITS
                | partition.number
            )
            if self._router.alone_bytes(piece, row, place) > limit:
                fault[row] = Fault.TOO_LARGE

    def _detail(self, code: Fault) -> str:
        said = super()._detail(code)
        if code is not Fault.TOO_LARGE:
            return said
        return f"{said}, or above the {self._route.internal_limit_bytes} of {self._route.internal} on its way"

    def _passed(
        self, partition: OpenPartition, piece: Piece, evidence: Evidence, judged: Judgement
    ) -> dict[int, list[EncodedBatch]]:
        del judged
        count, limit = self._route.internal_partitions, self._route.internal_limit_bytes
        target = repartition.targets(cast("IdEvidence", evidence).ids, evidence.fault, partition.number, count)
        try:
            place = repartition.place_of(partition.number, piece.columns.offset)
            return self._router.encode(piece, target, place, count, limit)
        except ValueError as error:
            raise StopError(f"{self._route.source}:{partition.number} cannot be routed: {error}") from error
        except TooLargeError as error:
            raise StopError(
                f"{self._where(partition, piece.columns, error.row)}: on its way to the partition of its id "
                f"the record is too large: topic {self._route.internal} needs max.message.bytes of at least "
                f"{error.size_bytes} (it has {limit})"
            ) from error


class SecondHopPipeline(_HopPipeline):
    """Takes chunks of the internal topic in and judges their records.

    Args:
        hop: Its config.
        topics: See `SlotPipeline`, as the other arguments.
        output: See there.
        decoder: See there.
        encoder: See there.
        metrics: See there.
        turns: See there.
    """

    _routed = True

    def __init__(
        self,
        hop: SecondHop,
        topics: Topics,
        output: TransactionOutput,
        decoder: Decoder,
        encoder: Encoder,
        metrics: Metrics,
        turns: Turns | None = None,
    ) -> None:
        super().__init__(hop.name, topics, output, decoder, encoder, metrics, turns=turns)
        self._receipts = ReceiptEncoder(hop.name, hop.routed_from)
        self._routed_from = hop.routed_from
        self._place = _NOTHING
        self._told: dict[int, int] = {}

    def _judge(self, partition: OpenPartition, piece: Piece) -> PieceOutcome:
        self._place = take_off(piece)
        row = self._place.size
        if row == len(piece.columns):
            return super()._judge(partition, piece)
        stop = StopError(
            f"{self._topics.source}:{partition.number}:{int(piece.columns.offset[row])}: the record "
            "does not say where it came from: somebody else has written to this internal topic. Everything "
            "before it is committed; see 'A foreign record in an internal topic' in docs/operations.md."
        )
        made = super()._judge(partition, before(piece, row))
        made.stop = made.stop or stop
        return made

    def _extract(self, partition: OpenPartition, piece: Piece) -> Evidence:
        evidence: IdEvidence = partition.judge.extract(piece.columns)
        return replace(evidence, source_ref=self._place)

    def _where(self, partition: OpenPartition, columns: Columns, row: int) -> str:
        del partition, columns
        number, offset = repartition.partition_and_offset(int(self._place[row]))
        return f"{self._routed_from}:{number}:{offset}"

    def _quarantine(
        self, partition: OpenPartition, piece: Piece, rows: NDArray[np.int64], fault: NDArray[np.uint8]
    ) -> PieceOutcome:
        """Stop: what cannot be judged has not come this far, unless the sink's limit has been lowered."""
        row = int(rows[0])
        code = Fault(int(fault[row]))
        stop = StopError(
            f"{self._where(partition, piece.columns, row)}: {code.code}, which it was not when it was routed: "
            f"{self._detail(code)}. Everything before it is committed. Set the limit of topic "
            f"{self._topics.sink} back."
        )
        return PieceOutcome({}, [], [], stop, row)

    def _write_receipts(
        self,
        partition: OpenPartition,
        piece: Piece,
        rows: NDArray[np.int64],
        grounds: Grounds | IdGrounds,
        limit_bytes: int,
    ) -> list[EncodedBatch]:
        del partition
        columns = replace(piece.columns, offset=self._place[: len(piece.columns)])
        return self._receipts.encode(ANYWHERE, columns, rows, grounds, limit_bytes)

    def used_up(self) -> dict[int, int]:
        """Return, by partition, the offset below which the internal topic is needed no more; each told once.

        The last batch taken in stays: by it the topic is known again (`processor.kafka.source_identity`).
        """
        found = {}
        for number, partition in self.partitions.items():
            offset = partition.position.batch_offset
            if not partition.moved and offset != NO_BATCH and self._told.get(number) != offset:
                found[number] = self._told[number] = offset
        return found
