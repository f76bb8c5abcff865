"""Counts who and what is in the clean topic, and what of it would have been lost without fingerprints.

Pure. Without a fingerprint a click whose id has passed is a duplicate, whatever else it says. So what collided
would be missing, and with it every user of whom nothing else is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.generator import RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.generator import StreamPartition


class Census(NamedTuple):
    """What is in the clean topic; ``lost_events`` and ``lost_users`` are those that would be missing."""

    events: int
    ids: int
    users: int
    lost_events: int
    lost_users: int

    def __str__(self) -> str:
        lost = f"{self.lost_events:,} of {self.events:,} events and {self.lost_users:,} of {self.users:,} users"
        return f"had collisions been dropped as duplicates, {lost} would have been lost"


def true_census(stream: Sequence[StreamPartition]) -> Census:
    """Return what there must be; each event that passes has an id of its own, for no window ends here."""
    users = np.concatenate([each.user[each.passes] for each in stream])
    collided = np.concatenate([(each.kind == RecordKind.COLLISION)[each.passes] for each in stream])
    everybody, left = np.unique(users).size, np.unique(users[~collided]).size
    return Census(users.size, users.size, everybody, int(collided.sum()), everybody - left)
