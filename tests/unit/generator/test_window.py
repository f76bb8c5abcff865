"""Does the truth about ids follow the contract's sentences, at each boundary?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from processor.generator.window import NOBODY, Judged, WindowRows, judge, plant_edges
from schemas.config import InsertIdDedup

NOW = 1_000_000
AHEAD = 300
WINDOW = 1_000
DEDUP = InsertIdDedup.model_validate({"mode": "insert-id", "id": [{"from": "key"}], "window": "1s"}).model_copy(
    update={"max_ahead": AHEAD}
)
REFRESHING = DEDUP.model_copy(update={"refresh": True})


class At(NamedTuple):
    """A record: its id, its timestamp and its content."""

    name: int
    time: int
    bad: bool = False
    unjudged: bool = False
    content: int | None = None
    """None: nothing but the id counts."""


def judged(records: list[At], dedup: InsertIdDedup = DEDUP, now: int = NOW) -> Judged:
    names, times, bad, unjudged, variants = zip(*records, strict=True)
    contents = [name if variant is None else variant for name, variant in zip(names, variants, strict=True)]
    name, content = np.array(names, np.int32), np.array(contents, np.int32)
    rows = WindowRows(name, content, np.array(times, np.int64), np.array(bad), np.array(unjudged))
    return judge(dedup, rows, now)


def passes(records: list[At], dedup: InsertIdDedup = DEDUP, now: int = NOW) -> str:
    """Return a letter a record: does it Pass, or is it Dropped?"""
    return "".join("DP"[passes] for passes in judged(records, dedup, now).passes.tolist())


@pytest.mark.parametrize(("time", "said"), [(1_998, "PD"), (1_999, "PD"), (2_000, "PP"), (2_001, "PP")])
def test_an_id_passes_again_from_the_reading_and_the_window_on(time: int, said: str) -> None:
    assert passes([At(1, 1_000), At(1, time)]) == said


def test_it_is_then_remembered_anew() -> None:
    records = [At(1, 1_000), At(1, 2_000), At(1, 2_999), At(1, 3_000)]
    assert passes(records) == "PPDP"
    assert judged(records).owner.tolist() == [NOBODY, NOBODY, 1, NOBODY]
    assert judged(records).expires_ms.tolist() == [0, 0, 3_000, 0]


def test_it_is_remembered_with_the_clocks_reading_and_not_its_own_timestamp() -> None:
    assert passes([At(0, 1_500), At(1, 1_000), At(0, 2_499), At(1, 0)]) == "PPDD"
    assert passes([At(0, 1_500), At(1, 1_000), At(2, 2_500), At(1, 0)]) == "PPPP"


def test_another_record_moves_the_clock_on_and_none_moves_it_back() -> None:
    records = [At(1, 1_000), At(2, 2_000), At(1, 5), At(1, 1_990), At(2, 2_999), At(1, 5)]
    assert passes(records) == "PPPDDD"


def test_nothing_is_dropped_for_being_late() -> None:
    assert passes([At(0, 900_000), At(1, 5), At(2, -7), At(1, 5)]) == "PPPD"


def test_a_duplicate_does_not_renew_its_id_unless_that_is_asked_for() -> None:
    records = [At(1, 1_000), At(1, 1_900), At(1, 2_000), At(1, 2_899), At(1, 2_900)]
    assert passes(records) == "PDPDD"
    assert passes(records, REFRESHING) == "PDDDD"
    assert passes([*records, At(1, 3_899)], REFRESHING) == "PDDDDD"
    assert passes([*records, At(1, 3_900)], REFRESHING) == "PDDDDP"


def test_a_renewed_id_keeps_its_owner_and_expires_later() -> None:
    records = [At(1, 1_000), At(2, 1_500), At(1, 1_100), At(1, 2_400)]
    found = judged(records, REFRESHING)
    assert found.owner.tolist() == [NOBODY, NOBODY, 0, 0]
    # The clock's present reading, 1,500, whatever the copy's own timestamp.
    assert found.expires_ms.tolist() == [0, 0, 2_500, 3_400]
    assert judged(records).expires_ms.tolist() == [0, 0, 2_000, 0]


@pytest.mark.parametrize("ahead", [AHEAD, AHEAD + 1, 10**9, 2**62])
def test_a_record_from_the_future_moves_the_clock_as_far_as_is_believed(ahead: int) -> None:
    # An id of the present lives on after it, however far ahead it was.
    records = [At(1, NOW), At(0, NOW + ahead), At(1, NOW + WINDOW - 1), At(1, NOW)]
    assert passes(records) == "PPDD"
    # The one that came AHEAD - WINDOW before now is just gone, one a millisecond younger is there.
    old = NOW + AHEAD - WINDOW
    assert passes([At(1, old), At(0, NOW + ahead), At(1, old)]) == "PPP"
    assert passes([At(1, old + 1), At(0, NOW + ahead), At(1, old)]) == "PPD"


def test_a_record_just_less_ahead_is_believed() -> None:
    old = NOW + AHEAD - WINDOW
    assert passes([At(1, old), At(0, NOW + AHEAD - 1), At(1, old)]) == "PPD"


def test_what_cannot_be_judged_leaves_no_trace() -> None:
    records = [At(1, 1_000), At(2, 9_000, bad=True), At(1, 1_999), At(2, 1_000), At(2, 1_000)]
    assert passes(records) == "PDDPD"


def test_what_passes_unjudged_moves_the_clock_and_is_not_remembered() -> None:
    records = [At(1, 1_000), At(2, 2_000, unjudged=True), At(1, 1_000), At(2, 2_000, unjudged=True), At(2, 0)]
    assert passes(records) == "PPPPP"


def test_by_arrival_timestamps_say_nothing() -> None:
    by_arrival = DEDUP.model_copy(update={"time": "arrival"})
    records = [At(1, 1_000), At(1, 900_000), At(2, 2**62), At(1, 0)]
    assert passes(records, by_arrival) == "PDPD"
    assert judged(records, by_arrival).expires_ms.tolist() == [0, NOW + WINDOW, 0, NOW + WINDOW]


def test_the_first_clock_may_lie_before_1970() -> None:
    assert passes([At(1, -5_000), At(1, -4_001), At(1, -4_000)]) == "PDP"


def test_blocks_of_rows_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [At(number % 37, 1_000 + 11 * number) for number in range(500)]
    whole = judged(records)
    monkeypatch.setattr("processor.generator.window._AT_ONCE", 7)
    pieces = judged(records)
    assert 0 < whole.passes.sum() < 500
    for name in ("passes", "owner", "expires_ms"):
        assert getattr(whole, name).tolist() == getattr(pieces, name).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_put_at_an_edge_passes_and_one_a_millisecond_before_it_does_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 2_000
    times = np.arange(count) * 10 + rng.integers(0, 25, count)
    bad, unjudged = rng.random((2, count)) < 0.02
    name = np.arange(count, dtype=np.int32)
    rows = WindowRows(name, name, times, bad, unjudged)
    before = times.copy()
    planted = plant_edges(rng, rows, WINDOW, 12)
    clock_before = np.concatenate([[-1], np.maximum.accumulate(np.where(bad, -1, before))])
    changed = np.flatnonzero(times != before)
    assert (times[changed] < before[changed]).all()
    assert (times[changed] >= clock_before[changed]).all()
    # The places are drawn: of two that are the same one is left out.
    assert planted.shape[1] > 6
    assert not bad[planted].any()
    assert not unjudged[planted[1]].any()
    for turn, (after, row) in enumerate(planted.T.tolist()):
        place = np.insert(np.arange(count, dtype=np.int32), after + 1, row)
        found = judge(DEDUP, rows.take(place), now_ms=NOW)
        assert found.passes[after + 1] == (turn % 2 == 0)


@pytest.mark.parametrize("window", [60_000, 2**60])
def test_where_no_id_expires_there_is_no_edge(window: int) -> None:
    times = np.arange(100) * 10
    none = np.zeros(100, np.bool_)
    name = np.arange(100, dtype=np.int32)
    rows = WindowRows(name, name, times, none, none)
    assert plant_edges(np.random.default_rng(1), rows, window, 10).shape == (2, 0)


def test_there_is_no_edge_in_nothing() -> None:
    none = np.zeros(0, np.bool_)
    name = np.zeros(0, np.int32)
    rows = WindowRows(name, name, np.zeros(0, np.int64), none, none)
    assert plant_edges(np.random.default_rng(1), rows, WINDOW, 10).shape == (2, 0)
