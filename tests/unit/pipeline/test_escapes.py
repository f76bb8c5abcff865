"""The escape gauge by itself: what it estimates, and that it stays within its bounds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from processor.engine.ids.clock import NEVER
from processor.engine.ids.passes import Passes
from processor.engine.verdict import Verdict
from processor.judges.escapes import gauge as of_gauge
from processor.judges.escapes.drawing import Drawn, Span
from processor.judges.escapes.gauge import EscapeEstimate, EscapeGauge
from processor.judges.escapes.sampler import IdSampler
from processor.ops.escaped import EscapeReason
from tests.support.judges.escapes import (
    WINDOW_MS,
    Seconds,
    drawn_of,
    given,
    heavy_stream,
    ids_of,
    small_gauge,
    spread_stream,
    stream,
)

WINDOW = EscapeReason.WINDOW
SEEDS = 100


def taken_by(gauge: EscapeGauge, monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """Return what a gauge takes in from now on, as it does."""
    taken: list[Drawn] = []
    apply = gauge.apply

    def noting(drawn: Drawn) -> None:
        taken.append(drawn)
        apply(drawn)

    monkeypatch.setattr(gauge, "apply", noting)
    return taken


@pytest.mark.core
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize(
    ("ids", "again", "slots"), [(4_000, 0.05, 2**10), (12_000, 0.2, 2**9), (800, 0.3, 2**8)]
)
def test_the_least_holds_in_95_of_100_seeds_however_much_the_sample_was_thinned(
    ids: int, again: float, slots: int, partitions: int
) -> None:
    held = dict.fromkeys(EscapeReason, 0)
    for seed in range(100):
        passed = stream(seed, ids, again, partitions=partitions)
        report = given(passed, small_gauge(slots), rows=ids // 20).report()
        assert report.sample_ratio <= 0.5
        for reason, count in report.counts.items():
            held[reason] += count.lower <= passed.escaped[reason]
            assert count.lower <= count.estimate
    assert min(held.values()) >= 95


@pytest.mark.parametrize("sizes", ["ones", "geometric", "heavy"])
@pytest.mark.parametrize("level", [1, 4, 8])
def test_the_least_holds_where_ids_escape_more_than_once(sizes: str, level: int) -> None:
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        many = {
            "ones": np.ones(20_000, np.int64),
            "geometric": rng.geometric(0.4, 10_000),
            "heavy": np.minimum(rng.zipf(1.8, 6_000), 9),
        }[sizes]
        drawn = many[rng.random(many.size) < 2.0**-level]
        before = np.concatenate([np.arange(each) for each in drawn.tolist()] or [np.zeros(0, np.int64)])
        estimate = EscapeEstimate()
        estimate.add(np.full(before.size, 2.0**level), before, np.ones(before.size))
        held += estimate.count().lower <= many.sum()
    assert held >= 95


def test_a_sample_of_all_ids_counts_exactly() -> None:
    passed = stream(1, 300, 0.3, partitions=2)
    report = given(passed, small_gauge(), rows=2).report()
    assert report.sample_ratio == 1
    for reason, count in report.counts.items():
        assert count.lower == count.estimate == count.seen == passed.escaped[reason]
        assert count.seen > 0


def test_an_estimate_is_right_on_average_across_thinnings() -> None:
    ratios = []
    for seed in range(60):
        passed = stream(1_000 + seed, 3_000, 0.2)
        ratios.append(
            given(passed, small_gauge(2**9)).report().counts[WINDOW].estimate / passed.escaped[WINDOW]
        )
    # One deviates by about 0.2.
    assert abs(np.mean(ratios) - 1) < 0.08


def test_a_gap_says_what_window_would_have_caught_it() -> None:
    gauge = small_gauge()
    keys = list(range(1, 101))
    gauge.apply(drawn_of(keys, [0] * 100))
    # Of 100 ids 90 come after 1.5 windows, 8 after 4, and 2 after 9.
    gaps = [1_500] * 90 + [4_000] * 8 + [9_000] * 2
    gauge.apply(drawn_of(keys, gaps))
    report = gauge.report()
    found = report.counts[WINDOW]
    assert (found.seen, found.first_windows, found.last_windows) == (100, 1.5, 9.0)
    assert report.window_to_catch_s == pytest.approx(4.05)
    assert dict(found.gap_windows)[2.0] == 90
    assert dict(found.gap_windows)[10.0] == 100
    (sentence,) = report.sentences()
    assert sentence == (
        "at least 100 duplicates escaped: they came 1.5 to 9.0 windows after the record that had passed; a "
        "window of 5s would catch 95 % of them"
    )


def test_memory_is_bounded_while_the_sample_grows_and_thins() -> None:
    gauge = EscapeGauge("clicks", 10**9, clock=Seconds())
    rng = np.random.default_rng(1)
    tracemalloc.start()
    try:
        for k in range(40):
            keys = rng.integers(1, 2**64 - 1, 50_000, np.uint64)
            # As lots are: depth 0 for half of them, 1 for a quarter.
            depth = np.minimum(rng.geometric(0.5, keys.size) - 1, 63).astype(np.uint64)
            keys = depth << np.uint64(58) | keys >> np.uint64(6)
            at = np.full(keys.size, k)
            gauge.apply(Drawn({0: Span(0, k, k)}, Passes(keys, at, at * 0, np.zeros(keys.size, np.uint8))))
        assert tracemalloc.get_traced_memory()[1] < 16e6 + 4e6  # the rows of the test itself
    finally:
        tracemalloc.stop()
    assert 3 <= gauge.level <= 5
    assert gauge.report().sample_bytes < 13e6


def test_what_expires_makes_room_before_anything_is_thinned() -> None:
    gauge = small_gauge(2**10)
    for k in range(200):
        at = k * WINDOW_MS
        gauge.apply(drawn_of(list(range(1 + 50 * k, 51 + 50 * k)), [at] * 50))
    # Ten windows of 50 ids are within the horizon.
    assert gauge.report().sample_ratio == 1


def test_a_partition_that_runs_ahead_does_not_have_the_ids_of_the_others_forgotten() -> None:
    gauge = small_gauge(2**12)
    # Of one second: a topic of days is judged again, and one partition is drawn from before the other.
    ahead = drawn_of(list(range(1, 341)), [3_000 * k for k in range(340)])
    again = drawn_of(list(range(1_000, 1_100)) * 2, [0] * 100 + [2_000] * 100, partition=1)
    one, two = ahead.passes, again.passes
    columns = np.concatenate((one.key, two.key)), np.concatenate((one.at, two.at))
    partition, kind = np.repeat([0, 1], [340, 200]), np.zeros(540, np.uint8)
    gauge.apply(Drawn(ahead.spans | again.spans, Passes(*columns, partition, kind)))
    assert gauge.report().counts[WINDOW].seen == 100


def test_what_many_partitions_commit_is_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = small_gauge()
    taken = taken_by(gauge, monkeypatch)
    samplers = [IdSampler(gauge, number, collisions=False, renews=False) for number in range(3)]
    for at in (0, 100):
        for number, sampler in enumerate(samplers):
            lots = np.array([(10 * number + at + k + 1) << 40 for k in range(2)], np.uint64)
            sampler.saw(
                ids_of(lots), np.array([Verdict.PASS, Verdict.DUPLICATE], np.uint8), np.array([at, at + 9])
            )
            sampler.committed()
    for _ in range(2):
        gauge.keep_up()
    assert [each.spans for each in taken] == [dict.fromkeys(range(3), Span(0, 0, 109)), {}]
    assert list(zip(taken[0].passes.partition, taken[0].passes.at, strict=True)) == [
        (number, at) for at in (0, 100) for number in range(3)
    ]


def test_what_was_judged_waits_in_bounded_memory_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = EscapeGauge("clicks", WINDOW_MS, 2**12, 1_000, clock=Seconds())
    taken = taken_by(gauge, monkeypatch)
    for rows, waiting in ((200, 200), (50, 250), (1, 0), (750, 0), (751, 0)):
        sampler = IdSampler(gauge, 1, collisions=False, renews=False)
        lots = np.arange(1, rows + 1, dtype=np.uint64) << np.uint64(50)
        sampler.saw(ids_of(lots), np.zeros(rows, np.uint8), np.full(rows, rows))
        sampler.committed()
        assert gauge.report().sample_bytes == gauge._table.key.size * 24 + waiting * 25
    # More rows of one transaction than three quarters are left out.
    assert [each.spans[1].to_ms for each in taken] == [1, 750]


def test_too_many_rows_a_second_thin_the_sample_and_calm_fills_it_again() -> None:
    seconds = Seconds()
    gauge = small_gauge(2**19, seconds)
    rng = np.random.default_rng(1)
    sampler = IdSampler(gauge, 0, collisions=False, renews=False)

    def second(rows: int, at: int) -> None:
        for start in range(0, rows, 5_000):
            size = min(5_000, rows - start)
            lot = rng.integers(0, 2**64 - 1, size, np.uint64)
            sampler.saw(ids_of(lot), np.zeros(size, np.uint8), np.full(size, at))
            sampler.committed()
        seconds.now += 1
        gauge.keep_up()

    for k in range(20):
        second(200_000, k)
    assert 4 <= gauge.level <= 8
    thinned = gauge.level
    for k in range(700):
        second(5, 100 * k)
    assert gauge.level < thinned
    # An id of before is not in a sample that is whole since now.
    assert not gauge.failures


def test_pairs_count_by_the_sample_that_saw_both() -> None:
    gauge = small_gauge()
    deep, flat = 4 << 58 | 1, 0 << 58 | 2
    gauge.apply(drawn_of([deep, flat], [0, 0], level=3))
    gauge.apply(drawn_of([deep, flat], [2_000, 2_000], level=0))
    gauge.apply(drawn_of([deep, flat], [4_000, 4_000], level=0))
    # The first pair of the deep one was seen in a sample of an eighth, the second pair of both in all.
    assert gauge.report().counts[WINDOW].seen == 3
    assert gauge.report().counts[WINDOW].estimate == 8 + 1 + 1


def test_only_what_has_committed_counts() -> None:
    gauge = small_gauge()
    for commits in (True, False):
        sampler = IdSampler(gauge, 0, collisions=False, renews=False)
        sampler.saw(ids_of(np.array([5 << 60], np.uint64)), np.zeros(1, np.uint8), np.array([0]))
        if commits:
            sampler.committed()
    again = IdSampler(gauge, 0, collisions=False, renews=False)
    again.saw(ids_of(np.array([5 << 60], np.uint64)), np.zeros(1, np.uint8), np.array([2_000]))
    gauge.keep_up()
    assert gauge.report().counts[WINDOW].seen == 0
    again.committed()
    gauge.keep_up()
    assert gauge.report().counts[WINDOW].seen == 1


@pytest.mark.parametrize("bad", [1, 40])
def test_first_records_that_cannot_be_judged_switch_nothing_off(
    bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gauge = small_gauge()
    taken = taken_by(gauge, monkeypatch)
    sampler = IdSampler(gauge, 0, collisions=False, renews=False)
    for more in (0, 1, 2):
        verdict = np.full(bad + more, Verdict.QUARANTINE, np.uint8)
        verdict[bad:] = Verdict.PASS
        lot = np.full(bad + more, 2**64 - 1, np.uint64)
        lot[bad:] = 5 << 60
        reading_ms = np.full(bad + more, NEVER)
        reading_ms[bad:] = 1_000 + np.arange(more)
        sampler.saw(ids_of(lot), verdict, reading_ms)
        sampler.committed()
        gauge.keep_up()
        assert gauge.report().failures == 0
        assert taken.pop().spans == ({0: Span(0, 1_000, 999 + more)} if more else {})


def test_a_duplicate_moves_on_what_a_copy_is_compared_with_only_where_it_renews_its_id() -> None:
    for renews, gap in ((False, 2.0), (True, 1.5)):
        gauge = small_gauge()
        sampler = IdSampler(gauge, 0, collisions=False, renews=renews)
        verdict = np.array([Verdict.PASS, Verdict.DUPLICATE, Verdict.PASS], np.uint8)
        sampler.saw(ids_of(np.full(3, 5 << 60, np.uint64)), verdict, np.array([0, 500, 2_000]))
        sampler.committed()
        gauge.keep_up()
        assert gauge.report().counts[WINDOW].last_windows == gap


def test_whatever_fails_switches_the_gauge_off_and_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = small_gauge()

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(of_gauge, "take", broken)
    given(stream(1, 100, 0.3), gauge)
    report = gauge.report()
    assert (report.off, report.failures) == (True, 1)
    given(stream(1, 100, 0.3), gauge)
    assert gauge.report() == report


@pytest.mark.core
@pytest.mark.parametrize("level", [1, 3, 6])
@pytest.mark.parametrize("times", [10, 30, 100])
@pytest.mark.parametrize("heavy", [1, 2, 5, 20])
def test_the_least_holds_where_few_ids_escape_dozens_of_times(heavy: int, times: int, level: int) -> None:
    held = 0
    for seed in range(SEEDS):
        passed = heavy_stream(seed, heavy, times)
        gauge = small_gauge(2**12)
        gauge.level = level
        count = given(passed, gauge, rows=passed.at.size // 4 + 1).report().counts[WINDOW]
        held += count.lower <= passed.escaped[WINDOW]
    assert held >= 0.95 * SEEDS


@pytest.mark.core
@pytest.mark.parametrize(("heavy", "times"), [(1, 100), (5, 30), (20, 10)])
def test_the_least_holds_for_them_while_the_sample_is_thinned_and_fills_again(heavy: int, times: int) -> None:
    held, levels = 0, set()
    for seed in range(SEEDS):
        passed = heavy_stream(seed, heavy, times, light=40 * times)
        seconds = Seconds()
        gauge = small_gauge(2**7, seconds)
        for start in range(0, passed.at.size, passed.at.size // 20):
            given(passed.part(start, start + passed.at.size // 20), gauge)
            seconds.now += 30
            levels.add(gauge.level)
        held += gauge.report().counts[WINDOW].lower <= passed.escaped[WINDOW]
    assert held >= 0.95 * SEEDS
    assert len(levels) >= 3


@pytest.mark.core
@pytest.mark.parametrize("level", [1, 3, 6])
@pytest.mark.parametrize("heavy", [1, 5, 20])
def test_the_least_holds_where_few_ids_pass_in_every_partition(heavy: int, level: int) -> None:
    held = dict.fromkeys(EscapeReason, 0)
    for seed in range(SEEDS):
        passed = spread_stream(seed, heavy, partitions=16)
        gauge = small_gauge(2**12)
        gauge.level = level
        report = given(passed, gauge, rows=passed.at.size // 3 + 1).report()
        for reason, count in report.counts.items():
            held[reason] += count.lower <= passed.escaped[reason]
    assert min(held.values()) >= 0.95 * SEEDS


@pytest.mark.parametrize(("depth", "off"), [(40, True), (41, False)])
def test_ids_that_no_thinning_leaves_out_switch_the_gauge_off_and_made_up_ones_are_left_out(
    depth: int, *, off: bool
) -> None:
    gauge = small_gauge(2**8)
    sampler = IdSampler(gauge, 0, collisions=False, renews=False)
    lots = np.uint64(2 ** (63 - depth)) + np.arange(400, dtype=np.uint64)
    sampler.saw(ids_of(lots), np.zeros(400, np.uint8), np.full(400, 1_000))
    sampler.committed()
    gauge.keep_up()
    assert (gauge.off, gauge.level > 0) == (off, off)
