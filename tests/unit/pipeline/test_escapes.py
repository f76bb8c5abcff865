"""The escape gauge by itself: what it estimates, and that it stays within its bounds."""

from __future__ import annotations

import struct
import time
import tracemalloc

import numpy as np
import pytest

from processor.engine.ids.clock import NEVER
from processor.engine.ids.passes import Passes
from processor.engine.verdict import Verdict
from processor.judges.escapes import gauge as of_gauge
from processor.judges.escapes.estimate import EscapeEstimate, interval
from processor.judges.escapes.gauge import WAITING_ROWS, EscapeGauge
from processor.judges.escapes.message import MOST_ROWS, messages, read_message
from processor.judges.escapes.sampler import IdSampler
from processor.judges.escapes.statements import Covered
from processor.ops.escaped import EscapeReason
from tests.support.judges.escapes import (
    KEY,
    WINDOW_MS,
    Seconds,
    given,
    ids_of,
    small_gauge,
    stream,
)

WINDOW, PARTITION = EscapeReason
LATEST_MS = 1_000_000


def covered(keys: list[int], at: list[int], level: int = 0, kind: int = 0, partition: int = 0) -> Covered:
    """Return passes of one partition."""
    count = len(keys)
    kinds = np.full(count, kind, np.uint8)
    passes = Passes(np.array(keys, np.uint64), np.array(at, np.int64), np.full(count, partition), kinds)
    return Covered(partition, level, at[0], at[-1], passes)


@pytest.mark.core
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize(
    ("ids", "again", "slots"), [(4_000, 0.05, 2**10), (12_000, 0.2, 2**9), (800, 0.3, 2**8)]
)
def test_the_interval_holds_in_95_of_100_seeds_however_much_the_sample_was_thinned(
    ids: int, again: float, slots: int, partitions: int
) -> None:
    held = dict.fromkeys(EscapeReason, 0)
    for seed in range(100):
        passed = stream(seed, ids, again, partitions=partitions)
        report = given(passed, small_gauge(slots), rows=ids // 20).report()
        assert report.sample_ratio <= 0.5
        for reason, count in report.counts.items():
            held[reason] += count.lower <= passed.escaped[reason] <= count.upper
            assert count.lower <= count.estimate <= count.upper
    assert min(held.values()) >= 95


@pytest.mark.parametrize("sizes", ["ones", "geometric", "heavy"])
@pytest.mark.parametrize("level", [1, 4, 8])
def test_the_interval_holds_where_ids_escape_more_than_once(sizes: str, level: int) -> None:
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
        count = estimate.count(2.0**level * 9)
        held += count.lower <= many.sum() <= count.upper
    assert held >= 95


def test_a_sample_of_all_ids_counts_exactly() -> None:
    passed = stream(1, 300, 0.3, partitions=2)
    report = given(passed, small_gauge(), rows=2).report()
    assert report.sample_ratio == 1
    for reason, count in report.counts.items():
        assert count.lower == count.estimate == count.upper == count.seen == passed.escaped[reason]
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
    gauge.add(covered(keys, [0] * 100))
    # Of 100 ids 90 come after 1.5 windows, 8 after 4, and 2 after 9.
    gaps = [1_500] * 90 + [4_000] * 8 + [9_000] * 2
    gauge.add(covered(keys, gaps))
    gauge.keep_up()
    report = gauge.report()
    found = report.counts[WINDOW]
    assert (found.seen, found.first_windows, found.last_windows) == (100, 1.5, 9.0)
    assert report.window_to_catch_s == pytest.approx(4.05)
    assert dict(found.gap_windows)[2.0] == 90
    assert dict(found.gap_windows)[10.0] == 100
    (sentence,) = report.sentences()
    assert sentence == (
        "100 duplicates escaped: they came 1.5 to 9.0 windows after the record that had passed; a window of 5s "
        "would catch 95 % of them"
    )


def test_memory_is_bounded_while_the_sample_grows_and_thins() -> None:
    gauge = EscapeGauge("clicks", 10**9, KEY, clock=Seconds())
    rng = np.random.default_rng(1)
    tracemalloc.start()
    try:
        for k in range(40):
            keys = rng.integers(1, 2**64 - 1, 50_000, np.uint64)
            # As lots are: depth 0 for half of them, 1 for a quarter.
            depth = np.minimum(rng.geometric(0.5, keys.size) - 1, 63).astype(np.uint64)
            keys = depth << np.uint64(58) | keys >> np.uint64(6)
            at = np.full(keys.size, k)
            gauge.add(Covered(0, 0, k, k, Passes(keys, at, at * 0, np.zeros(keys.size, np.uint8))))
            gauge.keep_up()
        assert not gauge.failures
        assert tracemalloc.get_traced_memory()[1] < 16e6 + 4e6  # the rows of the test itself
    finally:
        tracemalloc.stop()
    assert 3 <= gauge.level <= 5
    assert gauge.report().sample_bytes < 13e6


def test_what_expires_makes_room_before_anything_is_thinned() -> None:
    gauge = small_gauge(2**10)
    for k in range(200):
        at = k * WINDOW_MS
        gauge.add(covered(list(range(1 + 50 * k, 51 + 50 * k)), [at] * 50))
        gauge.keep_up()
    # Ten windows of 50 ids are within the horizon.
    assert gauge.report().sample_ratio == 1


def test_a_partition_that_runs_ahead_does_not_have_the_ids_of_the_others_forgotten() -> None:
    gauge = small_gauge(2**12)
    # Of one second: a topic of days is judged again, and one partition is drawn from before the other.
    gauge.add(covered(list(range(1, 341)), [3_000 * k for k in range(340)]))
    again = list(range(1_000, 1_100))
    gauge.add(covered(again * 2, [0] * 100 + [2_000] * 100, partition=1))
    gauge.keep_up()
    assert gauge.report().counts[WINDOW].seen == 100


def test_what_many_partitions_commit_is_drawn_together_and_told_once_each() -> None:
    gauge = small_gauge()
    gauge.tell(tells=True)
    samplers = [IdSampler(gauge, number, collisions=False, renews=False) for number in range(3)]
    for at in (0, 100):
        for number, sampler in enumerate(samplers):
            lots = np.array([(10 * number + at + k + 1) << 40 for k in range(2)], np.uint64)
            sampler.saw(
                ids_of(lots), np.array([Verdict.PASS, Verdict.DUPLICATE], np.uint8), np.array([at, at + 9])
            )
            sampler.committed()
    said = gauge.unsaid()
    assert [(each.partition, each.from_ms, each.to_ms, each.anew) for each in said] == [
        (number, 0, 109, False) for number in range(3)
    ]
    assert [each.passes.at.tolist() for each in said] == [[0, 100]] * 3
    assert [each.passes.partition.tolist() for each in said] == [[number] * 2 for number in range(3)]
    assert gauge.unsaid() == []


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
    gauge.add(covered([deep, flat], [0, 0], level=3))
    gauge.add(covered([deep, flat], [2_000, 2_000], level=0))
    gauge.add(covered([deep, flat], [4_000, 4_000], level=0))
    gauge.keep_up()
    # The first pair of the deep one was seen in a sample of an eighth, the second pair of both in all.
    assert gauge.report().counts[WINDOW].seen == 3
    assert gauge.report().counts[WINDOW].estimate == 8 + 1 + 1


def test_what_another_worker_says_is_compared_but_not_counted() -> None:
    mine, other = small_gauge(), small_gauge()
    for each in (mine, other):
        each.tell(tells=True)
    mine.add(covered([7], [100], partition=0))
    other.add(covered([7], [600], partition=1))
    for one, two in ((mine, other), (other, mine)):
        one.keep_up()
        for value in messages(b"somebody", two.unsaid()):
            for said in read_message(value, 4, LATEST_MS)[1]:
                one.hear(said)
        one.keep_up()
    assert mine.report().counts[PARTITION].seen == 0
    # It came 0.5 windows after the record that the other worker has let pass.
    assert other.report().counts[PARTITION].seen == 1
    assert other.report().counts[PARTITION].last_windows == 0.5


def test_a_message_says_what_was_covered_and_no_message_is_too_large() -> None:
    said = [covered([k + 1], [k], level=k % 3, partition=k % 2) for k in range(6)]
    (value,) = messages(b"somebody", said)
    sender, read = read_message(value, 4, LATEST_MS)
    assert sender == b"somebody"
    assert [(each.partition, each.level, each.from_ms, each.to_ms) for each in read] == [
        (0, 2, 0, 4),
        (1, 2, 1, 5),
    ]
    assert [each.passes.key.tolist() for each in read] == [[1, 3, 5], [2, 4, 6]]
    many = covered(list(range(1, 40_001)), [0] * 40_000)
    some = list(messages(b"somebody", [many]))
    assert (
        sum(len(each.passes.key) for value in some for each in read_message(value, 4, LATEST_MS)[1]) == 40_000
    )
    assert max(map(len, some)) < 16 * MOST_ROWS + 100


@pytest.mark.parametrize(
    "value", [b"", b"\x02" + bytes(20), b"\x01somebody\x01\x00", b"\x01somebody\x00\x00more"]
)
def test_what_is_no_message_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        read_message(value, 4, LATEST_MS)


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
def test_first_records_that_cannot_be_judged_switch_nothing_off(bad: int) -> None:
    gauge = small_gauge()
    gauge.tell(tells=True)
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
        said = gauge.unsaid()
        assert [(each.from_ms, each.to_ms) for each in said] == [(1_000, 999 + more)] * (more > 0)
        assert [read_message(each, 1, LATEST_MS)[1][0].from_ms for each in messages(b"somebody", said)] == (
            [1_000] * (more > 0)
        )


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
    gauge.hear(covered([1], [0]))
    assert gauge.unsaid() == []


def test_nothing_seen_in_a_thin_sample_does_not_mean_that_nothing_escaped() -> None:
    count = EscapeEstimate().count(3 * 256.0)
    assert count.lower == count.estimate == 0
    assert count.upper > 3 * 256
    assert interval(0.0, 0.0, 0.0) == (0.0, 0.0)


def deepest(count: int, depth: int = 40) -> list[int]:
    """Return different keys of one depth."""
    return [depth << 58 | (k + 1) for k in range(count)]


@pytest.mark.parametrize("tells", [False, True])
def test_commits_that_nobody_is_told_of_take_no_memory(*, tells: bool) -> None:
    gauge = small_gauge()
    gauge.tell(tells=tells)
    sizes = []
    tracemalloc.start()
    try:
        for k in range(6_000):
            gauge.add(covered([], [k], partition=k % 2))
            if k % 100 == 0:
                gauge.keep_up()
            if k in {3_000, 5_999}:
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[0] < 1_000_000
    said = gauge.unsaid()
    assert len(said) < 1_100 if tells else not said


def test_what_waits_and_what_is_unsaid_has_an_end_and_the_next_statement_says_that_there_is_a_gap() -> None:
    gauge = small_gauge()
    gauge.tell(tells=True)
    half = WAITING_ROWS // 2
    for at in range(4):
        gauge.add(covered(list(range(1, half + 1)), [at] * half))
    assert [each.anew for each in gauge.unsaid()] == [False, False]
    gauge.add(covered([1], [9]))
    assert [each.anew for each in gauge.unsaid()] == [True]
    assert not gauge.off


def test_what_was_committed_while_nobody_could_be_told_is_a_gap() -> None:
    gauge = small_gauge()
    gauge.add(covered([1], [1]))
    gauge.tell(tells=True)
    gauge.add(covered([2], [2]))
    gauge.add(covered([3], [3], partition=1))
    assert [each.anew for each in gauge.unsaid()] == [True, False]
    gauge.add(covered([4], [4]))
    gauge.tell(tells=False)  # it could not be written
    gauge.tell(tells=True)
    gauge.add(covered([5], [5]))
    (said,) = gauge.unsaid()
    assert said.anew
    assert said.passes.key.tolist() == [5]


def test_ids_that_no_thinning_leaves_out_switch_the_gauge_off() -> None:
    gauge = small_gauge(2**8)
    gauge.hear(covered(deepest(400), [1_000] * 400))
    assert gauge.off


def test_a_gap_in_what_one_worker_says_is_a_gap_for_others() -> None:
    one, other = small_gauge(), small_gauge()
    one.tell(tells=True)
    said = []
    for keys, at in (([7], 4_900), ([9], 5_000)):
        one.add(covered(keys, [at]))
        said += list(messages(b"somebody", one.unsaid()))
        one.lose(0)  # a transaction with more rows than may be staged
    for value in said:
        for each in read_message(value, 4, LATEST_MS)[1]:
            other.hear(each)
    # All that passed there is known since 5,000, not since 4,900.
    other.add(covered([7, 9], [5_600, 5_600], partition=1))
    other.keep_up()
    assert other.report().counts[PARTITION].seen == 1
    assert other.report().counts[PARTITION].last_windows == pytest.approx(0.6)


def test_keys_that_begin_at_one_slot_as_they_are_written_take_no_longer_than_others() -> None:
    took = []
    for shift in (0, 24):
        gauge = small_gauge(2**19)
        keys = (np.arange(1, 60_001, dtype=np.uint64) << np.uint64(shift)).tolist()
        began = time.thread_time()
        for start in range(0, len(keys), 1_000):
            gauge.hear(covered(keys[start : start + 1_000], [1_000] * 1_000))
        took.append(time.thread_time() - began)
        assert not gauge.off
        assert gauge.report().sample_ratio == 1
    assert took[1] < 10 * took[0] + 0.2


def test_what_takes_too_long_to_hear_switches_the_gauge_off(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = small_gauge()
    monkeypatch.setattr(of_gauge, "SLOW_S", -1.0)
    for k in range(of_gauge.SLOW_TIMES):
        assert not gauge.off
        gauge.hear(covered([k + 1], [1_000]))
    assert gauge.off


def test_ids_deeper_than_any_stream_has_are_left_out() -> None:
    gauge = small_gauge(2**8)
    gauge.hear(covered(deepest(400, 63), [1_000] * 400))
    assert not gauge.off
    assert gauge.level == 0


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (covered([1], [5], partition=4), "partition 4"),
        (covered([1], [5], level=41), "level 41"),
        (covered([1], [5])._replace(to_ms=2**63 - 1), "times"),
        (covered([1], [5])._replace(from_ms=9, to_ms=8), "times"),
        (covered([1], [5])._replace(from_ms=6, to_ms=8), "times"),
        (covered([1, 2], [5, 9])._replace(to_ms=8), "times"),
        (covered([1], [-(2**62)]), "times"),
    ],
)
def test_what_no_worker_says_is_refused(told: Covered, why: str) -> None:
    (value,) = messages(b"somebody", [told])
    with pytest.raises(ValueError, match=why):
        read_message(value, 4, LATEST_MS)


def test_a_message_has_as_many_statements_as_are_read_at_once() -> None:
    said = list(messages(b"somebody", [covered([1], [5], partition=k) for k in range(2_000)]))
    assert [len(read_message(value, 2_000, LATEST_MS)[1]) for value in said] == [1_024, 976]
    head = struct.Struct("<B8sH").pack(1, b"somebody", 40_000)
    with pytest.raises(ValueError, match="too long"):
        read_message(head + bytes(25 * 40_000), 4, LATEST_MS)
    with pytest.raises(ValueError, match="40000 statements"):
        read_message(head, 4, LATEST_MS)


def test_what_waits_is_counted_and_has_the_share_that_the_gauge_was_given() -> None:
    gauge = EscapeGauge("clicks", WINDOW_MS, KEY, 2**10, 1_000, clock=Seconds())
    gauge.tell(tells=True)
    empty = gauge.report().sample_bytes
    for k in range(10):
        gauge.add(covered(list(range(1, 301)), [k] * 300))
    assert gauge.report().sample_bytes == empty + 2 * 900 * 25
    sampler = IdSampler(gauge, 1, collisions=False, renews=False)
    lots = np.arange(1, 752, dtype=np.uint64) << np.uint64(50)
    sampler.saw(ids_of(lots), np.zeros(751, np.uint8), np.full(751, 20))
    sampler.committed()
    assert 1 not in {each.partition for each in gauge.unsaid()}
