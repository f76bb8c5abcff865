"""What a slot does with records whose id came before with other content, on their way to the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from processor.engine.collision_edits import CollisionRows
from processor.engine.verdict import Verdict
from processor.wire.quarantine import too_large_as_collisions
from processor.wire.repartition import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.batch.edits import Edits
    from processor.engine.receipts import IdGrounds, ReceiptGrounds
    from processor.judges.ids import IdEvidence
    from processor.judges.judge import Evidence, Judge
    from processor.wire.decode import Piece
    from processor.wire.encode import Encoder


class CollisionWork:
    """Tags or renames the collisions of one piece.

    Args:
        judge: The slot's.
        topic: The source, as it is named to people.
    """

    def __init__(self, judge: Judge, topic: str) -> None:
        self._editor = judge.editor(topic)

    def mark_too_large(self, encoder: Encoder, piece: Piece, evidence: Evidence, limit_bytes: int) -> None:
        """Find out which records the sink would not take if they collided, before they are judged."""
        if self._editor is not None:
            of_ids = cast("IdEvidence", evidence)
            rows = too_large_as_collisions(encoder, piece, of_ids.ids, self._editor, limit_bytes)
            of_ids.kept[rows] = False

    def edits(
        self,
        number: int,
        columns: Columns,
        evidence: Evidence,
        judged: ReceiptGrounds,
        source_ref: NDArray[np.int64] | None = None,
        observed: NDArray[np.bool_] | None = None,
    ) -> Edits | None:
        """Return what is written into the piece's collisions; None: nothing.

        ``observed`` is bool[n], which records pass as they came in any case.
        """
        collided = judged.verdict == Verdict.COLLISION
        rows = np.flatnonzero(collided if observed is None else collided & ~observed)
        if self._editor is None or not rows.size:
            return None
        owner = cast("IdGrounds", judged).owner[rows]
        partition = np.full(rows.size, number)
        if source_ref is not None:
            partition, owner = places(owner)
        collisions = CollisionRows(rows, partition, owner)
        return self._editor.edits(columns, cast("IdEvidence", evidence).ids, collisions)
