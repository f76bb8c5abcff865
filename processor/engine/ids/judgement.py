"""What any backend says of records that it judged by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids

NONE = -1
"""No owner."""


@dataclass(frozen=True, slots=True)
class IdJudgement:
    """Verdicts, and for duplicates what they are of.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        owner: int64[n], offset of the record that passed; -1 where the record is no duplicate or nobody knows.
        expires_ms: int64[n], from which reading of the clock on the id passes again; 0 likewise.
    """

    verdict: NDArray[np.uint8]
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]

    @classmethod
    def begun(cls, ids: Ids) -> IdJudgement:
        """Return one in which records with a fault, and those that pass unjudged, are judged already."""
        rows = ids.fault.size
        verdict = np.where(ids.fault != 0, np.uint8(Verdict.QUARANTINE), np.uint8(Verdict.PASS))
        return cls(verdict, np.full(rows, NONE, np.int64), np.zeros(rows, np.int64))
