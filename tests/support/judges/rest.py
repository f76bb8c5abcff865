"""The contract's rules of rows at rest, as a naive model: a list of what is kept, read through for each row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from processor.engine.rest import RestRows


class RestRow(NamedTuple):
    """A row, as far as it is judged; the place is its rank by file and row."""

    time: int
    place: int
    id: tuple[int, int] = (0, 0)
    fingerprint: int = 0


class RestSaid(NamedTuple):
    """What the rules say of a row."""

    verdict: str
    owner: RestRow | None = None


class RestModel:
    """Judges run after run.

    Args:
        window: How far a row looks around its event time.
        prints: Whether fingerprints tell rows of one id apart.
        keeps: Whether rows that collide are in the output.

    Attributes:
        kept: What is in the output.
    """

    def __init__(self, window: int, *, prints: bool = False, keeps: bool = True) -> None:
        self._window, self._prints, self._keeps = window, prints, keeps
        self.kept: list[RestRow] = []

    def run(self, rows: list[RestRow]) -> dict[RestRow, RestSaid]:
        """Judge the rows of a run."""
        said: dict[RestRow, RestSaid] = {}
        before = set(self.kept)
        for row in sorted(rows):
            near = [
                each for each in self.kept if each.id == row.id and abs(each.time - row.time) < self._window
            ]
            # Of one time, what earlier runs have kept was there first.
            near.sort(key=lambda each: (each.time, each not in before, each.place))
            alike = [each for each in near if not self._prints or each.fingerprint == row.fingerprint]
            if alike:
                said[row] = RestSaid("duplicate", alike[0])
                continue
            said[row] = RestSaid("collision", near[0]) if near else RestSaid("pass")
            if not near or self._keeps:
                self.kept.append(row)
        return said


def as_rows(rows: list[RestRow], *, prints: bool) -> RestRows:
    """Return them as the engine takes them."""
    return RestRows(
        np.array([each.id for each in rows], np.uint64).reshape(-1, 2),
        np.array([each.fingerprint for each in rows] if prints else [], np.uint64),
        np.array([each.time for each in rows], np.int64),
        np.array([each.place for each in rows], np.int64),
    )
