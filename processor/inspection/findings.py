"""Collects what a look has found: what is wrong, may become so, is to know, or is right.

What cannot be tried because something before it failed has a row all the same: it says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from processor.errors import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable


class Level(StrEnum):
    """What came of a look, the worst first."""

    PROBLEM = "problem"
    """A worker cannot do without it: nothing may run."""
    WARNING = "warning"
    """It works, but something may be lost or refused, or was not to be looked at."""
    INFO = "info"
    """What will be done without being asked again."""
    OK = "ok"
    """It is as it must be."""
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        part: Of what is looked at: config, network, broker, topics, rights, transactions, machine.
        tried: What was tried, with the name of what it was tried on; or the key in the config, or the topic.
        outcome: What came of it.
        says: What was found, in words; why it was not tried.
        advice: What to do; empty where there is nothing, or where it is said already.
        place: Where in the config, as far as that is known already.
    """

    part: str
    tried: str
    outcome: Level
    says: str = ""
    advice: str = ""
    place: Place | None = None


@dataclass(slots=True)
class Findings:
    """All findings, in the order of the look."""

    rows: list[Finding] = field(default_factory=list)

    def ok(self, part: str, tried: str, says: str = "") -> None:
        """Add what is as it must be."""
        self.rows.append(Finding(part, tried, Level.OK, says))

    def note(self, part: str, tried: str, says: str) -> None:
        """Add something to know."""
        self.rows.append(Finding(part, tried, Level.INFO, says))

    def warning(self, part: str, tried: str, says: str, advice: str = "") -> None:
        """Add what works, but is not as it should be."""
        self.rows.append(Finding(part, tried, Level.WARNING, says, advice))

    def warn_once(self, part: str, tried: str, says: str) -> None:
        """Add a warning, but where something wrong is said of it already."""
        if tried not in {each.key for each in (*self.problems, *self.warnings)}:
            self.warning(part, tried, says)

    def problem(self, part: str, tried: str, says: str, advice: str = "") -> None:
        """Add what a worker cannot do without."""
        self.rows.append(Finding(part, tried, Level.PROBLEM, says, advice))

    def not_tried(self, part: str, tried: str, why: str) -> None:
        """Add what could not be tried."""
        self.rows.append(Finding(part, tried, Level.NOT_TRIED, why))

    def fails(self, part: str, tried: str, says: str, advice: str, *, only: bool) -> None:
        """Add what does not work: a problem where nothing else can do it (``only``), a warning elsewhere."""
        (self.problem if only else self.warning)(part, tried, says, advice)

    def add(self, part: str, outcome: Level, problems: Iterable[Problem]) -> None:
        """Add what others have found."""
        self.rows += [Finding(part, each.key, outcome, each.message, place=each.place) for each in problems]

    def of(self, outcome: str) -> list[Problem]:
        """Return what came out so."""
        return [Problem(row.tried, row.says, row.place) for row in self.rows if row.outcome == outcome]

    @property
    def problems(self) -> list[Problem]:
        """What a worker cannot do without."""
        return self.of(Level.PROBLEM)

    @property
    def warnings(self) -> list[Problem]:
        """What is not as it should be."""
        return self.of(Level.WARNING)
