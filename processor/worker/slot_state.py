"""The states of a slot's life, and the transitions that are allowed between them.

docs/architecture.md draws them ("The life of a slot"). A try goes from WAITING to WORKING; whatever fails in it
leads to DROPPING, and from there to the next try or to HALTED. CLOSING is not the slot's own decision: its
group or its worker has given it up.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)


class SlotState(Enum):
    """What a slot is doing."""

    ASSIGNED = "assigned"
    """Nothing yet."""
    WAITING = "waiting"
    """Looks at its topics, and waits while none of its partitions is in all of them."""
    FENCING = "fencing"
    """Connects, and takes its transactional id: the previous owner can write no more."""
    RESTORING = "restoring"
    """Restores each partition's table, checks the source against it, and commits where they begin."""
    WORKING = "working"
    """Fetches, judges, commits; the only state that is ready."""
    DROPPING = "dropping"
    """Gives up producer, tables and connections after a failure."""
    PAUSING = "pausing"
    """Waits for a moment before the next try."""
    HALTED = "halted"
    """Has ended the worker, or asked the group who owns the slot; does nothing until it is given up."""
    CLOSING = "closing"
    """Is given up: commits what is in flight if it was working, then gives all up."""
    CLOSED = "closed"
    """Holds nothing and writes nothing any more."""


_S = SlotState
NEXT: Final[Mapping[SlotState, frozenset[SlotState]]] = {
    _S.ASSIGNED: frozenset({_S.WAITING, _S.CLOSING}),
    _S.WAITING: frozenset({_S.FENCING, _S.DROPPING, _S.CLOSING}),
    _S.FENCING: frozenset({_S.RESTORING, _S.DROPPING, _S.CLOSING}),
    _S.RESTORING: frozenset({_S.WORKING, _S.DROPPING, _S.CLOSING}),
    _S.WORKING: frozenset({_S.DROPPING, _S.CLOSING}),
    _S.DROPPING: frozenset({_S.PAUSING, _S.HALTED, _S.CLOSING}),
    _S.PAUSING: frozenset({_S.WAITING, _S.CLOSING}),
    _S.HALTED: frozenset({_S.CLOSING}),
    _S.CLOSING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}
"""The states that may follow each."""


class SlotLife:
    """The state that one slot is in; the log has its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = SlotState.ASSIGNED

    def enter(self, state: SlotState) -> None:
        """Change the state; a transition that is not allowed is a mistake in the code."""
        if state not in NEXT[self.state]:
            raise RuntimeError(f"{self.name}: {state.value} cannot follow {self.state.value}")
        log.debug("%s: %s", self.name, state.value)
        self.state = state
