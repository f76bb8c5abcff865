"""Does the truth about ids follow the contract's sentences, at each boundary?"""

from __future__ import annotations

import numpy as np
import pytest

from processor.generator.window import WindowRows, judge, plant_edges
from schemas.config import InsertIdDedup

NOW = 1_000_000
AHEAD = 300
WINDOW = 1_000
DEDUP = InsertIdDedup.model_validate({"mode": "insert-id", "id": [{"from": "key"}], "window": "1s"}).model_copy(
    update={"max_ahead": AHEAD}
)


def passes(*records: tuple[int, int]) -> str:
    """Return a letter a record, each an id and a timestamp: does it Pass, or is it Dropped?"""
    name, time = np.array(records).T
    none = np.zeros(name.size, np.bool_)
    rows = WindowRows(name.astype(np.int32), name.astype(np.int32), time, none, none)
    return "".join("DP"[passes] for passes in judge(DEDUP, rows, NOW).passes.tolist())


@pytest.mark.parametrize(("time", "said"), [(1_998, "PD"), (1_999, "PD"), (2_000, "PP"), (2_001, "PP")])
def test_an_id_passes_again_from_the_reading_and_the_window_on(time: int, said: str) -> None:
    assert passes((1, 1_000), (1, time)) == said


def test_it_is_remembered_with_the_clocks_reading_and_not_its_own_timestamp() -> None:
    assert passes((0, 1_500), (1, 1_000), (0, 2_499), (1, 0)) == "PPDD"
    assert passes((0, 1_500), (1, 1_000), (2, 2_500), (1, 0)) == "PPPP"


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
