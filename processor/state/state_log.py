"""The base class of what keeps a partition's state beside its table, with the defaults of a few values.

A mode whose state is a few values has nothing in bulk: the table holds them, and the judge reads them from it.
Many scopes, and ids by the million, are kept by a `StateLog` of their own (`ScopeLog`, `IdLog`): it takes them
over from changelog columns and gives them to the local store in its own form, together with everything else
that a commit changes. They are in memory, and the judge works on them there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.changelog.check import check_entry
from schemas.changelog.values import BLOCKS_KEY, CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from processor.engine.batch.columns import Columns

VALUES_A_STEP = 10_000
"""Values that are checked in one go, about 10 ms."""


class ForeignStateError(CorruptStateError):
    """What the changelog says does not go on from what was there before: it is another one's, or not whole."""


class StateLog:
    """One partition's state in bulk, and how it is written down; of itself it has none."""

    @property
    def unsaved(self) -> bool:
        """Whether something has been taken over or has changed that the local store does not have."""
        return False

    @property
    def waiting_bytes(self) -> int:
        """Memory that is held only until what is being restored is all there."""
        return 0

    def clear(self) -> None:
        """Forget everything."""

    def due(self, waited_s: float) -> bool:
        """Whether what has changed is to be written now, so long after the last time."""
        del waited_s
        return True

    def apply(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        """Take over what is ours of some changelog records; return the records of other kinds.

        Raises:
            CorruptStateError: A record cannot be taken over.
            ForeignStateError: It can, but does not go on from what was there.
        """
        return columns.items(np.arange(len(columns)))

    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Take over what the local store holds (in key order), about 10 ms of work per step.

        Raises:
            CorruptStateError: It is not whole, or not of this form.
        """
        for number, (key, value) in enumerate(items, 1):
            if key == BLOCKS_KEY:
                raise CorruptStateError("there are blocks of scopes")
            check_entry(key, value)
            if number % VALUES_A_STEP == 0:
                yield
        yield

    def resumes(self, changelog_offset: int) -> int:
        """Return from which changelog offset on it has to be read, having been applied locally up to this one.

        Called once, after `load`; never above ``changelog_offset``.
        """
        return changelog_offset

    def check(self) -> None:
        """Look whether what has been taken over is whole, now that nothing more comes.

        Raises:
            CorruptStateError: It is not, and says what is missing.
        """

    def begins_late(self, start: int) -> bool:
        """Whether a changelog that begins at ``start`` may lack something that only the local state has."""
        del start
        return False

    def require_begun(self, columns: Columns) -> bool:
        """Look whether these, the first records of a changelog, begin soon enough; False: they do not say.

        Raises:
            StopError: What lies in front of them is still needed.
        """
        del columns
        return True

    def note_origin(self, value: bytes) -> None:
        """Take note of the origin under which everything from now on stands."""

    def reached(self, changelog_offset: int) -> None:
        """Take note that the changelog is applied up to there."""

    def take_trim_offset(self) -> int | None:
        """Return up to which changelog offset nobody needs it any more; None: no further than said before."""
        return None

    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        """Return local values that hold what is unsaved, as one change.

        Args:
            sweeping: False while restoring: what is written then is new anyway.
        """
        del sweeping
        return {}

    def erased(self) -> tuple[bytes, bytes] | None:
        """Return the local keys that are of no use any more, see `Store.write`; called right before `write`."""
        return None


NO_BULK = StateLog()
"""Of every judge whose state is a few values: it remembers nothing, so one does for all."""
