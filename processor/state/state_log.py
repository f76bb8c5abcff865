"""How does a table keep state that comes in bulk: many scopes, or ids by the million?

A `StateLog` takes such state over from changelog columns and gives it to the local store in its own form,
together with everything else that a commit changes. `ScopeLog` and `IdLog` are such; what they keep is in
memory, and the judge works on it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from processor.engine.batch.columns import Columns


class ForeignStateError(CorruptStateError):
    """What the changelog says does not go on from what was there before: it is another one's, or not whole."""


class StateLog(Protocol):
    """One partition's state in bulk, and how it is written down."""

    @property
    def empty(self) -> bool:
        """Whether nothing has been taken over."""
        ...

    @property
    def unsaved(self) -> bool:
        """Whether something has been taken over or has changed that the local store does not have."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Memory that is held only until what is being restored is all there."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def due(self, waited_s: float) -> bool:
        """Whether what has changed is to be written now, so long after the last time."""
        ...

    def take(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        """Take over what is ours of some changelog records; return the records of other kinds.

        Raises:
            CorruptStateError: A record cannot be taken over.
            ForeignStateError: It can, but does not go on from what was there.
        """
        ...

    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Take over what the local store holds (in key order), some 10 ms of work a step.

        Raises:
            CorruptStateError: It is not whole, or not of this form.
        """
        ...

    def resumes(self, changelog_offset: int) -> int:
        """Return from which changelog offset on it has to be read, having been taken in locally up to this one.

        Called once, after `load`; never above ``changelog_offset``.
        """
        ...

    def check(self) -> None:
        """Look whether what has been taken over is whole, now that nothing more comes.

        Raises:
            CorruptStateError: It is not, and says what is missing.
        """
        ...

    def begins_late(self, start: int) -> bool:
        """Whether a changelog that begins at ``start`` may lack something that only the local state has."""
        ...

    def require_begun(self, columns: Columns) -> bool:
        """Look whether these, the first records of a changelog, begin soon enough; False: they do not say.

        Raises:
            StopError: What lies in front of them is still needed.
        """
        ...

    def note_origin(self, value: bytes) -> None:
        """Take note of the origin under which everything from now on stands."""
        ...

    def reached(self, changelog_offset: int) -> None:
        """Take note that the changelog is taken in up to there."""
        ...

    def expendable(self) -> int | None:
        """Return up to which changelog offset nobody needs it any more; None: nothing new to say."""
        ...

    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        """Return local values that hold what is unsaved, as one change.

        Args:
            sweeping: False while restoring: what is written then is new anyway.
        """
        ...

    def erased(self) -> tuple[bytes, bytes] | None:
        """Return the local keys that are of no use any more, see `Store.write`; called right before `write`."""
        ...
