"""Turns one piece of a chunk into what becomes of it: batches for the sink, for quarantine, and receipts.

Everything between the decoder and the output is here, in this order: read what the records are judged by, put
aside what cannot be judged, judge the rest, encode what passes, write receipts for what is dropped. It awaits
nothing, because the piece's columns lie in buffers that the next piece uses, of whichever slot
(`processor.wire.decode`). What it returns holds nothing of them.

Invariant: what stands before a record that cannot go on is judged and encoded as if the piece ended there. Only
judging tells whether an id is known with other content, or how large a receipt is, and it cannot be taken back:
then the slot is rebuilt, and its next try ends a piece before that record, which is judged when all before it
is committed.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from processor.engine import repartition
from processor.engine.quarantine import QuarantineText
from processor.engine.verdict import RECEIPTED, Fault, Verdict
from processor.errors import RebuildError, StopBeforeError, StopError
from processor.pipeline.collisions import CollisionWork
from processor.pipeline.complaints import Complaints
from processor.pipeline.verdicts import VerdictPart
from processor.wire.decode import Piece
from processor.wire.encode import TooLargeError, equal_runs
from processor.wire.quarantine import codec_of, detailed, oversized, quarantine_batches, surely_fits
from processor.wire.receipts import ANYWHERE, ReceiptEncoder
from processor.wire.repartition import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.receipts import ReceiptGrounds
    from processor.judges.ids import IdEvidence
    from processor.judges.judge import Evidence, Judge
    from processor.pipeline.hop_kinds import HopKind
    from processor.wire.encode import EncodedBatch, Encoder

# A pipeline with ``observe`` sends all that the sink takes as it came: what would be dropped leaves its receipt
# and what would be quarantined a copy, and both say so. On a second hop a record that cannot be judged goes on,
# whatever the config says by now: the hop before has left the copy, and else it would be nowhere but there.
#
# Invariant: nothing here changes what is judged, or what is remembered.


@dataclass(frozen=True, slots=True)
class Passage:
    """What goes on of one piece.

    Attributes:
        observes: Whether the pipeline does.
        stops: Whether there is no quarantine, so that a worker stops before what should go there.
        too_large: bool[n], which records the sink does not take as they came.
        let_by: bool[n], which the hop before has let pass, though they cannot be judged.
    """

    observes: bool
    stops: bool
    too_large: NDArray[np.bool_]
    let_by: NDArray[np.bool_]

    @classmethod
    def of(cls, kind: HopKind, fault: NDArray[np.uint8]) -> Self:
        """Return that of a piece before it is judged; ``fault`` is uint8[n], `Fault` codes."""
        too_large = fault == Fault.TOO_LARGE
        let_by = (fault != 0) & ~too_large & (kind.upstream is not None)
        return cls(kind.hop.pipeline.observe, kind.topics.quarantine is None, too_large, let_by)

    def before(self, row: int) -> Self:
        """Return that of the records before a row."""
        return replace(self, too_large=self.too_large[:row], let_by=self.let_by[:row])

    @property
    def observed(self) -> NDArray[np.bool_] | None:
        """bool[n], which records pass as they came whatever is judged; None: none."""
        return ~self.too_large if self.observes else None

    def aside(self, fault: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return uint8[n], the faults of what goes into quarantine, or is stopped at where there is none."""
        if self.observes and self.stops:
            return np.where(self.too_large, fault, np.uint8(Fault.NONE))
        return np.where(self.let_by, np.uint8(Fault.NONE), fault)

    def pass_let_by(self, verdict: NDArray[np.uint8], fault: NDArray[np.uint8]) -> None:
        """Have those that were let by count as passed: the hop before has counted why they cannot be judged."""
        verdict[self.let_by] = Verdict.PASS
        fault[self.let_by] = Fault.NONE

    def stays(self, judged: ReceiptGrounds) -> NDArray[np.uint8]:
        """Return uint8[n], 0: the record goes on."""
        if not self.observes:
            return judged.stays
        return np.where(self.too_large, np.uint8(Verdict.QUARANTINE), np.uint8(Verdict.PASS))


log = logging.getLogger(__name__)


@dataclass(slots=True)
class PieceOutcome:
    """What became of one piece.

    Attributes:
        sink: Batches of what passes, by the partition that they go to.
        verdicts: Records by verdict.
        faults: Records by fault code.
        next_offset: The position after the piece, or of the record where it stops.
        batch: The row of the last source batch with a record that was judged; None: there is none.
        part: What a verdict record says of it; None: nobody writes one.
        stop: Why the slot cannot go on behind that; None: it can.
        again: Whether the rest of the chunk has to be taken once more, after a commit.
        size_bytes: Of its records, inflated.
        fault: uint8[n], `Fault` codes of all records.
    """

    sink: dict[int, list[EncodedBatch]]
    quarantine: list[EncodedBatch]
    receipts: list[EncodedBatch]
    verdicts: NDArray[np.int64]
    faults: NDArray[np.int64]
    next_offset: int
    batch: NDArray[np.int64] | None
    part: VerdictPart | None = None
    stop: StopError | None = None
    again: bool = False
    size_bytes: int = 0
    fault: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))


class PieceWork:
    """Works on the pieces of one slot; the encoder is shared by the worker's slots."""

    def __init__(self, kind: HopKind, encoder: Encoder) -> None:
        self._kind = kind
        self._topics = kind.topics
        self._encoder = encoder
        observes = kind.hop.pipeline.observe
        self._complaints = Complaints(kind.hop.pipeline)
        self._receipts = ReceiptEncoder(kind.hop.name, kind.named_source, observed=observes)

    def is_long(self, piece: Piece) -> bool:
        """Whether a record may have to be compressed as hard as can be to go into quarantine: about 1 MB/s."""
        limit = surely_fits(self._topics.quarantine_limit_bytes)
        return self._topics.quarantine is not None and bool(oversized(piece.columns, limit).size)

    def outcome(
        self,
        number: int,
        judge: Judge,
        piece: Piece,
        stops_before: dict[int, int],
        *,
        committed: bool,
        most_bytes: float = math.inf,
    ) -> PieceOutcome:
        """Decide over the newest piece of a decoder and encode what passes; stages the state of its judge.

        Args:
            number: The partition.
            judge: The partition's.
            piece: Its next records.
            stops_before: By partition, an offset before which all is to be committed: noted by one try of the
                slot, and heeded by the next.
            committed: Whether the slot has taken nothing since its last commit.
            most_bytes: Of the records, inflated, but one at least; the rest of the chunk comes after a commit.

        Raises:
            StopError: The slot has to stop before these records, and has committed all before them.
            RebuildError: The local state is not whole; or the slot has to stop, and the next try knows where.
        """
        part, size = piece, _bytes_of(piece)
        if size > most_bytes:
            ends = piece.columns.end - piece.columns.body[0]
            cut = max(1, int(np.searchsorted(ends, most_bytes, side="right")))
            part = before(piece, cut) if cut < len(ends) else piece
        try:
            made = self._outcome(number, judge, part, stops_before.get(number, -1), committed=committed)
        except StopBeforeError as error:
            if committed and error.offset == int(piece.columns.offset[0]):
                raise
            stops_before[number] = error.offset
            where = f"offset {error.offset} of partition {number}"
            message = f"to commit what comes before {where}, for there it has to stop"
            raise RebuildError("stopping", message) from error
        made.again |= part is not piece and made.stop is None
        made.size_bytes = _bytes_of(part)
        return made

    def _outcome(
        self, number: int, judge: Judge, piece: Piece, stop_before: int, *, committed: bool
    ) -> PieceOutcome:
        refs = self._kind.take_off(piece)
        source_ref = None if refs is None else refs.source
        stop: StopError | None = None
        if source_ref is not None and source_ref.size < len(piece.columns):
            stop = self._foreign(number, piece, source_ref.size)
            piece = before(piece, source_ref.size)
        evidence: Evidence = judge.extract(piece.columns)
        if refs is not None:
            routed = cast("IdEvidence", evidence)
            routed.owner, routed.route = refs
        self._kind.mark_too_large(self._encoder, number, piece, evidence)
        passage = Passage.of(self._kind, evidence.fault)
        collisions = CollisionWork(judge, self._kind.named_source)
        collisions.mark_too_large(self._encoder, piece, evidence, self._topics.sink_limit_bytes)
        noted = np.flatnonzero(piece.columns.offset == stop_before)
        cut = int(noted[0]) if noted.size and noted[0] >= committed else None
        if cut is not None:
            stop = None
            piece, passage = before(piece, cut), passage.before(cut)
            evidence = evidence.part(slice(cut))
        quarantine, refused, row = self._put_aside(number, piece, evidence.fault, passage, source_ref)
        if refused is not None:
            stop = refused
            piece, passage = before(piece, row), passage.before(row)
            evidence = evidence.part(slice(row))
        aside = evidence.fault != 0
        judged = judge.judge(evidence)
        if ((evidence.fault != 0) > aside).any():
            quarantine = self._all_put_aside(number, piece, evidence.fault, passage, source_ref)
        passage.pass_let_by(judged.verdict, evidence.fault)
        edits = collisions.edits(number, piece.columns, evidence, judged, source_ref, passage.observed)
        stays, part = passage.stays(judged), None
        if self._topics.verdicts is not None:
            part = VerdictPart.of(piece, judged.verdict, stays, evidence.fault)
        return PieceOutcome(
            self._kind.encode(self._encoder, number, piece, evidence, stays, edits),
            quarantine,
            self._receipts_of(number, piece, judged, source_ref),
            np.bincount(judged.verdict, minlength=len(Verdict)),
            np.bincount(evidence.fault, minlength=len(Fault)),
            piece.next_offset,
            piece.batches[-1] if len(piece.batches) else None,
            part,
            stop,
            again=cut is not None and stop is None,
            fault=evidence.fault,
        )

    def _where(self, number: int, piece: Piece, row: int, source_ref: NDArray[np.int64] | None) -> str:
        """Name a record to people."""
        offset = int(piece.columns.offset[row])
        if source_ref is not None:
            number, offset = repartition.partition_and_offset(int(source_ref[row]))
        return f"{self._kind.named_source}:{number}:{offset}"

    # ---------------------------------------------------------------- what cannot be judged

    def _put_aside(
        self,
        number: int,
        piece: Piece,
        fault: NDArray[np.uint8],
        passage: Passage,
        source_ref: NDArray[np.int64] | None,
    ) -> tuple[list[EncodedBatch], StopError | None, int]:
        """Encode the faulty records for quarantine; where one cannot go there, say why, and its row.

        What is observed passes without a copy then.
        """
        rows = np.flatnonzero(passage.aside(fault))
        if not rows.size:
            return [], None, 0
        if self._topics.quarantine is None:
            row = int(rows[0])
            return [], self._unjudgeable(number, piece, row, Fault(int(fault[row])), source_ref), row
        quarantined = partial(
            self._quarantined, number, piece, fault=fault, passage=passage, source_ref=source_ref
        )
        batches: list[EncodedBatch] = []
        while True:
            try:
                return batches + quarantined(rows), None, 0
            except TooLargeError as error:
                batches += quarantined(rows[rows < error.row])
                needs = (
                    f"and is too large for it: topic {self._topics.quarantine} needs max.message.bytes of at "
                    f"least {error.size_bytes} (it has {self._topics.quarantine_limit_bytes})"
                )
                where, code = (
                    self._where(number, piece, error.row, source_ref),
                    Fault(int(fault[error.row])).code,
                )
                if passage.observed is None or not passage.observed[error.row]:
                    what = f"{where}: the record goes to quarantine ({code}) {needs}"
                    return batches, StopError(f"{what}. Everything before it is committed."), error.row
                log.warning(
                    "%s: the record passes, observed; its copy goes to quarantine (%s) %s", where, code, needs
                )
                rows = rows[rows > error.row]

    def _all_put_aside(
        self,
        number: int,
        piece: Piece,
        fault: NDArray[np.uint8],
        passage: Passage,
        source_ref: NDArray[np.int64] | None,
    ) -> list[EncodedBatch]:
        """Encode for quarantine again, with those that only judging has told.

        Raises:
            StopBeforeError: The first one cannot go there.
        """
        quarantine, refused, row = self._put_aside(number, piece, fault, passage, source_ref)
        if refused is not None:
            raise StopBeforeError(int(piece.columns.offset[row]), str(refused))
        return quarantine

    def _quarantined(
        self,
        number: int,
        piece: Piece,
        rows: NDArray[np.int64],
        fault: NDArray[np.uint8],
        passage: Passage,
        source_ref: NDArray[np.int64] | None,
    ) -> list[EncodedBatch]:
        limit = self._topics.quarantine_limit_bytes
        any_of = {code: (self._kind.detail(code), self._complaints.of_any(code)) for code in Fault}
        details = {code: ": ".join(filter(None, said)) for code, said in any_of.items()}

        def written(number: int, piece: Piece, rows: NDArray[np.int64]) -> list[EncodedBatch]:
            text = QuarantineText.of(details, f"{self._kind.named_source}:{number}:".encode())
            said = self._complaints.of_some(piece.columns, rows, fault)
            return quarantine_batches(piece, rows, *detailed(text, fault, said), limit, passage.observed)

        if source_ref is None:
            return written(number, piece, rows)
        # Of those that were routed each is named by where it came from.
        partitions, offsets = places(source_ref[: len(piece.columns)])
        columns = piece.columns.over(piece.columns.table._replace(offset=offsets))
        came = replace(piece, columns=columns)
        runs = equal_runs(partitions[rows])
        return [each for a, b in runs for each in written(int(partitions[rows[a]]), came, rows[a:b])]

    def _unjudgeable(
        self, number: int, piece: Piece, row: int, code: Fault, source_ref: NDArray[np.int64] | None
    ) -> StopError:
        where, configured = self._where(number, piece, row, source_ref), self._kind.hop.pipeline.name
        sink, limit = self._topics.sink, self._topics.sink_limit_bytes
        need = self._encoder.alone_bytes(piece.columns, row, codec_of(piece, row))
        if code is Fault.TOO_LARGE and need <= limit:
            return StopError(
                f"{where}: {code.code}: its id is known with other content, and with a tag or a new id topic "
                f"{sink} does not take it (max.message.bytes {limit}). Everything before it is committed. "
                f"Raise that, set pipelines.quarantine for pipeline {configured}, or step over it: "
                f"{self._kind.step_over(number, int(piece.columns.offset[row]) + 1)}"
            )
        if source_ref is not None:
            # It could be judged when it was routed, unless the sink's limit has been lowered.
            return StopError(
                f"{where}: {code.code}, which it was not when it was routed: "
                f"{self._kind.detail(code)}. Everything before it is committed. Set the limit of topic "
                f"{sink} back."
            )
        if code is Fault.TOO_LARGE:
            return StopError(
                f"{where}: {code.code}: topic {sink} needs max.message.bytes of at least {need} "
                f"(it has {limit}), or set pipelines.quarantine for pipeline {configured}"
            )
        return StopError(
            f"{where}: the record cannot be judged: {code.code} ({self._kind.detail(code)}). Everything "
            f"before it is committed. Set a quarantine topic for pipeline {configured} to go on, or step "
            f"over it: {self._kind.step_over(number, int(piece.columns.offset[row]) + 1)}"
        )

    def _foreign(self, number: int, piece: Piece, row: int) -> StopError:
        return StopError(
            f"{self._topics.source}:{number}:{int(piece.columns.offset[row])}: the record "
            "does not say where it came from: somebody else has written to this internal topic. Everything "
            "before it is committed; see 'A foreign record in an internal topic' in docs/operations.md."
        )

    # ---------------------------------------------------------------- what is dropped

    def _receipts_of(
        self, number: int, piece: Piece, judged: ReceiptGrounds, source_ref: NDArray[np.int64] | None
    ) -> list[EncodedBatch]:
        """Encode a receipt for each record that is dropped.

        Raises:
            StopBeforeError: The duplicates topic does not take one.
        """
        if self._topics.duplicates is None:
            return []
        rows = np.flatnonzero(RECEIPTED[judged.verdict])
        if not rows.size:
            return []
        limit = self._topics.duplicates_limit_bytes
        columns = piece.columns
        if source_ref is not None:
            table = columns.table._replace(offset=source_ref[: len(columns)])
            number, columns = ANYWHERE, columns.over(table)
        try:
            return self._receipts.encode(number, columns, rows, judged, limit)
        except TooLargeError as error:
            raise StopBeforeError(
                int(piece.columns.offset[error.row]),
                f"{self._where(number, piece, error.row, source_ref)}: the receipt "
                f"of this dropped record is too large, even without its key: topic {self._topics.duplicates} "
                f"needs max.message.bytes of at least {error.size_bytes} (it has {limit}). "
                "Everything before it is committed.",
            ) from error


def _bytes_of(piece: Piece) -> int:
    columns = piece.columns
    return int(columns.end[-1] - columns.body[0]) if len(columns) else 0


def before(piece: Piece, row: int) -> Piece:
    """Return the part of a piece before ``row``; the position after it is that record's offset."""
    count = int(np.searchsorted(piece.first_row, row, side="left"))
    first_row = np.append(piece.first_row[:count], row) if count else np.zeros(1, np.int64)
    whole = piece.whole[:count].copy()
    if count and first_row[-1] != piece.first_row[count]:
        whole[count - 1] = False
    return Piece(
        piece.columns.rows(0, row),
        piece.raw,
        piece.batches[:count],
        first_row,
        whole,
        int(piece.columns.offset[row]),
    )
