"""Rows at rest and records of one partition are judged alike where they come in the order of their times."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from processor.engine.rest import NOBODY, RestRows, Verdict, judge_rows
from tests.support.judges.id_state import Came, IdPartition
from tests.support.judges.rest import RestRow, as_rows
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

Said = list[tuple[int, int]]
"""Verdict and owner of each row, by its number."""
EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 2)), max_size=40).map(sorted)
CUTS = st.lists(st.integers(0, 40), max_size=4)
LIMIT_MS = 10
"""A window that most histories go beyond; times are often whole windows apart."""


def pieces(count: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Return from where to where each piece of a history goes."""
    return list(pairwise([0, *sorted(min(each, count) for each in cuts), count]))


def by_the_worker(events: list[tuple[int, int, int]], cuts: Sequence[int], action: str) -> Said:
    """Return what its judge says; after each piece it commits and begins again from its changelog."""
    prints = {"fingerprint": {"of": "bytes"}, "on_collision": action} if action else {}
    at_work, said = IdPartition(window=LIMIT_MS, **prints), []
    for start, stop in pieces(len(events), cuts):
        some = [Came(b"%d" % name, time, b"%d" % content) for time, name, content in events[start:stop]]
        grounds = at_work.take(some)
        said += list(zip(grounds.verdict.tolist(), grounds.owner.tolist(), strict=True))
        at_work.commit()
        at_work.open()
    return [(verdict, NOBODY if verdict == Verdict.PASS else owner) for verdict, owner in said]


def at_rest(events: list[tuple[int, int, int]], cuts: Sequence[int], action: str) -> Said:
    """Return what becomes of them in a run per piece."""
    rows = [RestRow(time * 1000, at, (name, 7), content) for at, (time, name, content) in enumerate(events)]
    kept: list[RestRow] = []
    told: Said = []
    for start, stop in pieces(len(events), cuts):
        new: RestRows = as_rows(rows[start:stop], prints=bool(action))
        found = judge_rows(
            new, as_rows(kept, prints=bool(action)), LIMIT_MS * 1000, keep_collisions=action != "drop"
        )
        known = [*rows[start:stop], *kept]
        verdicts = found.verdict.tolist()
        owners = [NOBODY if each == NOBODY else known[each].place for each in found.owner.tolist()]
        told += list(zip(verdicts, owners, strict=True))
        stays = {int(Verdict.PASS), int(Verdict.COLLISION) if action != "drop" else int(Verdict.PASS)}
        kept += [row for row, verdict in zip(rows[start:stop], verdicts, strict=True) if verdict in stays]
    return told


@examples(50)
@given(EVENTS, CUTS, CUTS, st.sampled_from(["", "pass", "drop"]))
def test_an_archive_in_any_runs_is_judged_as_the_worker_judges_its_topic(
    events: list[tuple[int, int, int]], commits: list[int], runs: list[int], action: str
) -> None:
    assert at_rest(events, runs, action) == by_the_worker(events, commits, action)
