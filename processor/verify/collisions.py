"""Makes what the sink must hold of records that collide: as they came, with a tag, or under a new id.

The worker's own edits are written into copies of the records, which are read as columns again. So one kernel
compares them byte for byte, like all that passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.verdict import RECEIPTED, Verdict
from processor.verify.align import LOOK_AHEAD
from processor.wire.edited import edited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.batch.edits import Edits

GOES = {
    "pass": "goes on as it came",
    "tag": "goes on with a tag",
    "rename": "goes on under a new id",
    "quarantine": "goes into quarantine",
    "drop": "is dropped",
}
"""What becomes of a record that collides, by ``on_collision``; for messages."""


def in_sink(
    columns: Columns, rows: NDArray[np.int64], edits: Edits | None
) -> Iterator[tuple[Columns, NDArray[np.int64]]]:
    """Yield the passing ``rows`` (int64[k], rising) as the sink must have them: columns, and which of theirs.

    Without edits nothing is copied; else what is yielded holds `LOOK_AHEAD` records at most.
    """
    if edits is None:
        yield columns, rows
        return
    for start in range(0, rows.size, LOOK_AHEAD):
        some = rows[start : start + LOOK_AHEAD]
        ours = edits.between(int(some[0]), int(some[-1]))
        if ours.row.size:
            yield edited(columns, some, ours), np.arange(some.size)
        else:
            yield columns, some


def is_dropped(verdict: NDArray[np.uint8], on_collision: str | None) -> NDArray[np.bool_]:
    """Return bool[n], by verdict: which records are in no other topic than that of duplicates."""
    dropped: NDArray[np.bool_] = RECEIPTED[verdict]
    return dropped if on_collision == "drop" else dropped & (verdict != Verdict.COLLISION)
