"""Rows at rest are judged as the naive model has it, in whatever order and in whatever runs they come."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.rest import NOBODY, RestRows, Verdict, judge_rows
from tests.support.judges.rest import RestModel, RestRow, RestSaid, as_rows

if TYPE_CHECKING:
    from random import Random

LIMIT = 2**63
TIMES = st.one_of(st.integers(-6, 6), st.sampled_from([-LIMIT, 1 - LIMIT, LIMIT - 2, LIMIT - 1]))
# Some share one word of their hash only.
IDS = st.sampled_from([(0, 0), (0, 1), (1, 0), (LIMIT, 7), (2**64 - 1, 2**64 - 1)])
WINDOWS = st.sampled_from([0, 1, 2, 3, 5, 20, LIMIT - 1])


@st.composite
def histories(draw: st.DrawFn) -> list[list[RestRow]]:
    """Return runs of rows; no two have one place."""
    rows = draw(st.lists(st.tuples(TIMES, IDS, st.integers(0, 2)), max_size=24))
    places = draw(st.permutations(range(len(rows))))
    made = [RestRow(time, place, name, mark) for (time, name, mark), place in zip(rows, places, strict=True)]
    cuts = sorted(draw(st.lists(st.integers(0, len(made)), max_size=3)))
    return [made[a:b] for a, b in pairwise([0, *cuts, len(made)])]


def judged(
    new: list[RestRow], old: list[RestRow], window: int, *, prints: bool, keeps: bool
) -> dict[RestRow, RestSaid]:
    """Return what the engine says of each row."""
    rows = [*new, *old]
    said = judge_rows(as_rows(new, prints=prints), as_rows(old, prints=prints), window, keep_collisions=keeps)
    firsts = {rows[owner] for owner, verdict in zip(said.owner, said.verdict, strict=True) if verdict == 4}
    passed = [row for row, verdict in zip(new, said.verdict, strict=True) if verdict == Verdict.PASS]
    assert {row for row, collided in zip(new, said.collided, strict=True) if collided} == firsts & set(passed)
    return {
        row: RestSaid(Verdict(verdict).label, None if owner == NOBODY else rows[owner])
        for row, verdict, owner in zip(new, said.verdict.tolist(), said.owner.tolist(), strict=True)
    }


RULES = st.fixed_dictionaries({"prints": st.booleans(), "keeps": st.booleans()})


@given(histories(), WINDOWS, RULES, st.randoms(use_true_random=False))
def test_every_run_is_judged_as_the_naive_model_has_it_in_any_order_of_its_rows(
    runs: list[list[RestRow]], window: int, rules: dict[str, bool], chance: Random
) -> None:
    model = RestModel(window, **rules)
    for run in runs:
        new, old = list(run), list(model.kept)
        expected = model.run(run)
        for _ in range(2):
            assert judged(new, old, window, **rules) == expected
            chance.shuffle(new)
            chance.shuffle(old)


@given(histories(), WINDOWS, RULES)
def test_rows_that_come_in_the_order_of_their_times_are_judged_alike_in_one_run_and_in_many(
    runs: list[list[RestRow]], window: int, rules: dict[str, bool]
) -> None:
    rows = [row._replace(place=place) for place, row in enumerate(sorted(chain(*runs)))]
    whole, parts = (RestModel(window, **rules) for _ in range(2))
    expected = whole.run(rows)
    said: dict[RestRow, RestSaid] = {}
    for run in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        said |= judged(run, parts.kept, window, **rules)
        parts.run(run)
    assert said == expected


@pytest.mark.parametrize("prints", [False, True])
def test_a_late_row_meets_what_an_earlier_run_has_kept_after_it_inside_the_window(*, prints: bool) -> None:
    kept = RestRow(10, 0)
    inside, outside = RestRow(6, 1), RestRow(5, 2)

    said = judged([inside, outside], [kept], 5, prints=prints, keeps=True)

    assert said[inside] == RestSaid("duplicate", outside)
    assert said[outside] == RestSaid("pass", None)
    assert judged([inside], [kept], 5, prints=prints, keeps=True)[inside] == RestSaid("duplicate", kept)


MANY = 300_000
"""Of one id: what goes over an id's rows once for each of them takes hours."""


@pytest.mark.parametrize("prints", [1, 2, MANY])
@pytest.mark.parametrize("keeps", [True, False])
def test_an_id_of_very_many_rows_and_fingerprints_is_judged_like_any_other(prints: int, *, keeps: bool) -> None:
    number = np.arange(MANY)
    rows = RestRows(np.zeros((MANY, 2), np.uint64), (number % prints).astype(np.uint64), number, number)
    said = judge_rows(rows, RestRows.none(), MANY, keep_collisions=keeps)
    assert said.verdict[0] == Verdict.PASS
    assert (said.verdict[1:prints] == Verdict.COLLISION).all()
    assert (said.verdict[prints:] == np.where(keeps | (number[prints:] % prints == 0), 1, 4)).all()
    assert set(said.owner[1:prints].tolist()) <= {0}
    assert said.collided.sum() == (prints > 1)


def test_what_has_no_fingerprint_is_not_judged_beside_what_has_one() -> None:
    one, other = (as_rows([RestRow(0, 0)], prints=prints) for prints in (True, False))
    for pair in ((one, other), (other, one), (one._replace(place=one.place[:0]), one)):
        with pytest.raises(ValueError, match=r"a fingerprint or none has|hash, time and place"):
            judge_rows(*pair, 1)
