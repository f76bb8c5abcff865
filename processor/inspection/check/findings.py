"""Collects what a look has found: what is wrong, what may become so, what to know, and what is right."""

from __future__ import annotations

from dataclasses import dataclass, field

from processor.errors import Problem


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, each list in the order of the look."""

    problems: list[Problem] = field(default_factory=list)
    """Nothing may run."""
    warnings: list[Problem] = field(default_factory=list)
    """Something may be lost, refused or not be looked at."""
    notes: list[Problem] = field(default_factory=list)
    """What will be done without being asked again."""
    right: list[Problem] = field(default_factory=list)
    """What was looked at and is as it must be; for people only."""

    def warn(self, key: str, message: str) -> None:
        """Add a warning, but one: what is said of a key once is said."""
        if key not in {each.key for each in (*self.problems, *self.warnings)}:
            self.warnings.append(Problem(key, message))

    def note(self, key: str, message: str) -> None:
        """Add something to know."""
        self.notes.append(Problem(key, message))

    def fine(self, what: str, message: str) -> None:
        """Add something that is as it must be."""
        self.right.append(Problem(what, message))
