"""What records are judged by (evidence), and what is said of them and why (judgements)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.engine.receipts import Grounds, IdGrounds

if TYPE_CHECKING:
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
    from processor.engine.receipts import ReceiptGrounds


@dataclass(slots=True)
class Evidence(ABC):
    """What every mode knows of the records of some columns.

    Attributes:
        fault: uint8[n], `Fault` codes; more may be written into it before judging.
        data: uint8[m], of the columns: good as long as they are.
    """

    fault: NDArray[np.uint8]
    data: NDArray[np.uint8]

    @abstractmethod
    def before(self, row: int) -> Self:
        """Return that of the records before ``row``."""

    @abstractmethod
    def after(self, row: int) -> Self:
        """Return that of the records from ``row`` on."""


@dataclass(slots=True)
class SequenceEvidence(Evidence):
    """What mode ``watermark`` judges by.

    Attributes:
        sequence: int64[n].
        epoch: int64[n], where the definition has one.
        scope: Where scopes stand in ``data``, int64[n] begin and int64[n] size, where there are many.
    """

    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64] | None = None
    scope: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @override
    def before(self, row: int) -> SequenceEvidence:
        return self._part(slice(row))

    @override
    def after(self, row: int) -> SequenceEvidence:
        return self._part(slice(row, None))

    def _part(self, rows: slice) -> SequenceEvidence:
        epoch = None if self.epoch is None else self.epoch[rows]
        scope = None if self.scope is None else (self.scope[0][rows], self.scope[1][rows])
        return SequenceEvidence(self.fault[rows], self.data, self.sequence[rows], epoch, scope)


@dataclass(slots=True)
class IdEvidence(Evidence):
    """What mode ``insert-id`` judges by.

    Attributes:
        ids: With the faults that ``fault`` has.
        offset: int64[n].
        timestamp: int64[n].
        source_ref: int64[n], names an id's owner where that is not its offset (`processor.engine.repartition`).
    """

    ids: Ids
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    source_ref: NDArray[np.int64] | None = None

    @property
    def owner(self) -> NDArray[np.int64]:
        """int64[n], what names each record as the owner of its id."""
        return self.offset if self.source_ref is None else self.source_ref

    @override
    def before(self, row: int) -> IdEvidence:
        return self._part(slice(row), self.ids.before(row))

    @override
    def after(self, row: int) -> IdEvidence:
        return self._part(slice(row, None), self.ids.after(row))

    def _part(self, rows: slice, ids: Ids) -> IdEvidence:
        source_ref = None if self.source_ref is None else self.source_ref[rows]
        return IdEvidence(self.fault[rows], self.data, ids, self.offset[rows], self.timestamp[rows], source_ref)


@dataclass(frozen=True, slots=True)
class Judgement(ABC):
    """Verdicts.

    Attributes:
        verdict: uint8[n], `Verdict` values.
    """

    verdict: NDArray[np.uint8]

    @abstractmethod
    def grounds(self) -> ReceiptGrounds:
        """Return what receipts say."""


@dataclass(frozen=True, slots=True)
class SequenceJudgement(Judgement):
    """Verdicts on sequences, and what stood in the scopes before.

    Attributes:
        evidence: Of the records.
        watermark: int64[n], as it stood before each record in its scope; 0 where there was none.
        known: bool[n], whether there was one; None where the judge does not say.
        epoch: int64[n], the scope's epoch before each record; None where the definition has none.
    """

    evidence: SequenceEvidence
    watermark: NDArray[np.int64]
    known: NDArray[np.bool_] | None = None
    epoch: NDArray[np.int64] | None = None

    @override
    def grounds(self) -> Grounds:
        return Grounds(self.verdict, self.evidence.sequence, self.watermark, self.evidence.epoch)


@dataclass(frozen=True, slots=True)
class InsertIdJudgement(Judgement):
    """Verdicts on ids, and for duplicates what they are of.

    Attributes:
        ids: Of the records.
        owner: int64[n], of a duplicate, the record that passed (its offset, or its source ref); -1 otherwise,
            and where nobody knows.
        expires_ms: int64[n], of a duplicate, when its id expires; 0 likewise.
    """

    ids: Ids
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]

    @override
    def grounds(self) -> IdGrounds:
        return IdGrounds(self.verdict, self.ids, self.owner, self.expires_ms)
