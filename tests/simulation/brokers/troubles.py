"""Which faults an episode has many of: those that do harm together seldom meet where all are as likely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.simulation.faults import Fate, Odds

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

SHARE = 0.15
"""Of faults at an await: between two commits there are more of them than in `tests.simulation.episode`."""
MOST, MOST_IN_TROUBLE = (0, 5, 20), (30, 60)
"""Faults of an episode."""
MOST_KILLS = (2, 5, 20)


@dataclass(frozen=True)
class BrokerOdds(Odds):
    """And what may happen to requests and members.

    Attributes:
        deposed: The group gives everything to another, and the member goes on: it has not heard of that.
        rebalanced: The group asks for everything back, in good order.
        held: A request is on its way for seconds; it arrives, whether anybody waits for it or not.
    """

    deposed: float = 0.0
    rebalanced: float = 0.0
    held: float = 0.0


_TROUBLES: Mapping[str, Mapping[str, float]] = {
    "ends that are left out": {"unmarked": 0.25, "killed": 0.03, "forgotten": 0.001},
    "rivals": {"deposed": 0.01, "held": 0.02, "unmarked": 0.1, "killed": 0.005},
    "refusals": {"coded": 0.02, "lost": 0.01, "rebalanced": 0.05},
    "late requests": {"late": 0.03, "held": 0.01, "rebalanced": 0.3},
}
NO_RIVALS = {"deposed": 0.0, "held": 0.0}
"""Where nothing keeps out what two owners write at a time."""
_SELDOM = "unmarked", "damaged", "forgotten"
"""These come once a transaction, or less."""


def drawn(dice: random.Random) -> Fate:
    """Draw the faults of an episode: a few of all kinds, or many of some."""
    seldom = {name: dice.choice((0.0, 0.0, 0.05)) for name in _SELDOM}
    odds = replace(BrokerOdds.drawn(dice, SHARE), **{**seldom, "forgotten": seldom["forgotten"] / 10})
    trouble = dice.choice((*_TROUBLES, "", ""))
    odds = replace(odds, **_TROUBLES.get(trouble, {}))
    return Fate(dice, odds, dice.choice(MOST_IN_TROUBLE if trouble else MOST), dice.choice(MOST_KILLS))
