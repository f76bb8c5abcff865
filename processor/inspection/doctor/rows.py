"""Holds what was tried, what came of it, and what to do.

What cannot be tried because something before it failed has a row all the same: it says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class TrialOutcome(StrEnum):
    """What came of a trial."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Trial:
    """A row: one thing that was tried.

    Attributes:
        part: Of what is looked at: network, broker, rights, transactions, machine.
        tried: What was tried, with the name of what it was tried on.
        outcome: What came of it.
        says: What was found, in words; why it was not tried.
        advice: What to do; empty where there is nothing.
    """

    part: str
    tried: str
    outcome: TrialOutcome
    says: str = ""
    advice: str = ""


@dataclass(slots=True)
class Trials:
    """All rows, in the order in which they were tried."""

    rows: list[Trial] = field(default_factory=list)

    def ok(self, part: str, tried: str, says: str = "") -> None:
        """Note that something works."""
        self.rows.append(Trial(part, tried, TrialOutcome.OK, says))

    def warning(self, part: str, tried: str, says: str, advice: str) -> None:
        """Note what works, but is not as it should be."""
        self.rows.append(Trial(part, tried, TrialOutcome.WARNING, says, advice))

    def problem(self, part: str, tried: str, says: str, advice: str) -> None:
        """Note what a worker cannot do without."""
        self.rows.append(Trial(part, tried, TrialOutcome.PROBLEM, says, advice))

    def not_tried(self, part: str, tried: str, why: str) -> None:
        """Note what could not be tried."""
        self.rows.append(Trial(part, tried, TrialOutcome.NOT_TRIED, why))

    def fails(self, part: str, tried: str, says: str, advice: str, *, only: bool) -> None:
        """Note what does not work: a problem where nothing else can do it (``only``), a warning elsewhere."""
        (self.problem if only else self.warning)(part, tried, says, advice)

    @property
    def problems(self) -> int:
        """How many rows a worker cannot do without."""
        return sum(row.outcome is TrialOutcome.PROBLEM for row in self.rows)

    @property
    def warnings(self) -> int:
        """How many rows are not as they should be."""
        return sum(row.outcome is TrialOutcome.WARNING for row in self.rows)
