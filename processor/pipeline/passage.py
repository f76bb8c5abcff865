"""Says which records of a piece go on though the rules would keep them back.

    observed   of a pipeline with ``observe`` all that the sink takes as it came, whatever is judged: what would
               be dropped leaves its receipt, what would go into quarantine a copy there, and both say so
    let by     of a second hop what cannot be judged: the hop before has observed it and left the copy. It goes
               on whatever the config says by now, or it would be nowhere but in that copy

Invariant: nothing here changes what is judged, or what is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from processor.engine.verdict import Fault, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.receipts import ReceiptGrounds
    from processor.pipeline.hop_kinds import HopKind


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
