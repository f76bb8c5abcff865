"""What any backend is asked of records, and what it says of them; kernels take both as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.page import NO_ROUTES, NONE
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids


class IdColumns(NamedTuple):
    """Records that are judged by their ids.

    Attributes:
        hash: uint64[n, 2].
        fault: uint8[n], `Fault` codes.
        skip: bool[n], which are not judged: they have a fault, or pass unjudged.
        offset: int64[n], of the record as whose the id is remembered.
        reading_ms: int64[n], the partition's clock at each.
        route: uint16[n], route words (`processor.engine.repartition`); uint16[0] where they are not known.
    """

    hash: NDArray[np.uint64]
    fault: NDArray[np.uint8]
    skip: NDArray[np.bool_]
    offset: NDArray[np.int64]
    reading_ms: NDArray[np.int64]
    route: NDArray[np.uint16] = NO_ROUTES

    @classmethod
    def of(
        cls,
        ids: Ids,
        offset: NDArray[np.int64],
        reading_ms: NDArray[np.int64],
        route: NDArray[np.uint16] = NO_ROUTES,
    ) -> IdColumns:
        """Return what there is to judge of records with these ids."""
        return cls(ids.hash, ids.fault, (ids.fault != 0) | ids.unjudged, offset, reading_ms, route)


class IdJudgement(NamedTuple):
    """Verdicts, and for duplicates and collisions what they are of.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        owner: int64[n], offset of the record that passed; -1 where the record is no duplicate or nobody knows.
            Of a collision, of the earliest record of its id inside the window.
        expires_ms: int64[n], from which reading of the clock on the id passes again; 0 likewise, and where a
            collision is not remembered.
    """

    verdict: NDArray[np.uint8]
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]

    @classmethod
    def begun(cls, fault: NDArray[np.uint8]) -> IdJudgement:
        """Return one in which records with a fault, and those that pass unjudged, are judged already."""
        verdict = np.where(fault != 0, np.uint8(Verdict.QUARANTINE), np.uint8(Verdict.PASS))
        return cls(verdict, np.full(fault.size, NONE, np.int64), np.zeros(fault.size, np.int64))
