"""Predictions for windows equal a naive model where all ids fit, and lie within their interval where not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.inspection.simulate.windows import IdSample, predict

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

HOUR = 3_600_000
WINDOWS = (1, 7, 30, 1_000)
NO_PRINTS = np.zeros(0, np.uint64)


class Seen(NamedTuple):
    """A record: which partition, which id, which content, and how much the clock went on before it."""

    partition: int
    id: int
    content: int
    later_ms: int


RECORDS = st.lists(st.builds(Seen, *(st.integers(0, most) for most in (1, 3, 2, 9))), max_size=60)


def naive(
    records: list[Seen], window: int, *, route: bool, refresh: bool, kept: bool, bucket: int = 1
) -> tuple[int, int, int]:
    """Judge by the contract's sentences; return duplicates, copies that are none, and collisions.

    Bloom filters remember an id to the end of its ``bucket``, and the window from there on.
    """
    clocks: dict[int, int] = defaultdict(int)
    inside: dict[object, dict[int, int]] = defaultdict(dict)
    came: set[tuple[int, int]] = set()
    caught = missed = collisions = 0
    timed = []
    for record in records:
        clocks[record.partition] += record.later_ms
        timed.append((clocks[record.partition], record))
    # With a route the partitions' records meet in the order of their clocks.
    for now, record in sorted(timed, key=lambda each: each[0]) if route else timed:
        place = record.id if route else (record.id, record.partition)
        live = {
            content: at
            for content, at in inside[place].items()
            if now < at // bucket * bucket + bucket - 1 + window
        }
        again = (record.id, record.content) in came
        came.add((record.id, record.content))
        if record.content in live:
            caught += 1
            if refresh:
                live[record.content] = now
        else:
            missed += again
            collisions += bool(live)
            if kept or not live:
                live[record.content] = now
        inside[place] = live
    return caught, missed, collisions


def filled(sample: IdSample, records: list[Seen], *, prints: bool) -> IdSample:
    """Add records partition by partition, as they are read."""
    for partition in (0, 1):
        some = [record for record in records if record.partition == partition]
        ids = np.array([record.id for record in some], np.uint64)
        clock = np.cumsum([record.later_ms for record in some]).astype(np.int64)
        contents = np.array([record.content for record in some], np.uint64) if prints else NO_PRINTS
        sample.add(partition, ids, clock, contents)
    return sample


@given(records=RECORDS, route=st.booleans(), refresh=st.booleans(), kept=st.booleans(), prints=st.booleans())
def test_what_fits_is_predicted_as_a_naive_model_judges_it(
    *, records: list[Seen], route: bool, refresh: bool, kept: bool, prints: bool
) -> None:
    if not prints:
        records = [record._replace(content=0) for record in records]
    if route:  # in which order two partitions meet at the same moment nothing says
        records = [record for record in records if record.partition == 0]

    found = predict(
        filled(IdSample(prints=prints), records, prints=prints),
        WINDOWS,
        route=route,
        refresh=refresh,
        kept=kept,
    )

    for each in found:
        caught, missed, collisions = naive(records, each.window_ms, route=route, refresh=refresh, kept=kept)
        assert (each.caught, each.missed, each.collisions) == ((caught,) * 3, (missed,) * 3, (collisions,) * 3)


@given(records=RECORDS, refresh=st.booleans(), bucket=st.integers(2, 40))
def test_filters_are_predicted_to_forget_bucket_by_bucket(
    *, records: list[Seen], refresh: bool, bucket: int
) -> None:
    records = [record._replace(content=0) for record in records]
    sample = filled(IdSample(), records, prints=False)

    found = predict(sample, WINDOWS, route=False, refresh=refresh, buckets_ms=[bucket] * len(WINDOWS))

    for each in found:
        caught, missed, _ = naive(
            records, each.window_ms, route=False, refresh=refresh, kept=True, bucket=bucket
        )
        assert (each.caught.value, each.missed.value) == (caught, missed)


def test_ids_held_at_once_are_those_inside_the_window() -> None:
    sample = IdSample()
    readings = np.arange(10_000, dtype=np.int64) * 36_000  # 100 per hour, each its own id
    sample.add(0, np.arange(10_000, dtype=np.uint64), readings, NO_PRINTS)

    held = [each.held.value for each in predict(sample, [HOUR, 10 * HOUR, 1_000 * HOUR], route=False)]

    assert held == pytest.approx([100, 1_000, 10_000], rel=0.06)


RECORDS_OF_A_STREAM = 30_000


def resends(random: np.random.Generator) -> NDArray[np.int64]:
    """5 % of the records are copies, from seconds to days later."""
    ids = np.arange(RECORDS_OF_A_STREAM)
    copies = np.flatnonzero(random.random(ids.size) < 0.05)
    copies = copies[copies > 0]
    gaps = np.minimum(random.geometric(10.0 ** -random.uniform(0, 4, copies.size)), copies)
    ids[copies] = ids[copies - gaps]
    return ids


def hot_id(random: np.random.Generator) -> NDArray[np.int64]:
    """One id has a third of all records."""
    return np.where(random.random(RECORDS_OF_A_STREAM) < 1 / 3, -1, resends(random))


def zipf(random: np.random.Generator) -> NDArray[np.int64]:
    """Few ids have most of the records, many have one."""
    return random.zipf(1.2, RECORDS_OF_A_STREAM) % 2**40


def few_hot_ids(random: np.random.Generator) -> NDArray[np.int64]:
    """Forty ids have half of the records."""
    return np.where(random.random(RECORDS_OF_A_STREAM) < 0.5, -1 - random.integers(0, 40, RECORDS_OF_A_STREAM),
                    resends(random))  # fmt: skip


def rare(random: np.random.Generator) -> NDArray[np.int64]:
    """One record of 500 is a copy."""
    ids = np.arange(RECORDS_OF_A_STREAM)
    ids[random.integers(1_000, ids.size, 60)] = random.integers(0, 1_000, 60)
    return ids


def a_few_repeated(random: np.random.Generator) -> NDArray[np.int64]:
    """Twenty ids have some thirty records each, all others one: most samples see two of them."""
    ids = np.arange(RECORDS_OF_A_STREAM)
    ids[random.integers(0, ids.size, 600)] = -1 - random.integers(0, 20, 600)
    return ids


def below_the_noise(random: np.random.Generator) -> NDArray[np.int64]:
    """Forty ids have twelve records each, which no counter tells: many thin samples see none of them."""
    ids = np.arange(RECORDS_OF_A_STREAM)
    ids[random.permutation(ids.size)[:480]] = -1 - np.arange(480) % 40
    return ids


def hashed(ids: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return another hash of each id by each seed (SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = (ids.astype(np.uint64) ^ np.uint64(seed * 0x5851F42D4C957F2D % 2**64)) + np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


@pytest.mark.core
@pytest.mark.parametrize(
    ("stream", "rows"),
    [
        *((each, 4_000) for each in (resends, hot_id, zipf, few_hot_ids, rare, a_few_repeated)),
        (below_the_noise, 1_000),
    ],
)
def test_the_truth_lies_within_the_interval_for_at_least_95_of_100_seeds(
    stream: Callable[[np.random.Generator], NDArray[np.int64]], rows: int
) -> None:
    windows = [HOUR, 24 * HOUR, 30 * 24 * HOUR]
    inside = np.zeros((len(windows), 2))
    wide: list[float] = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        ids, readings = stream(random), np.sort(random.integers(0, 20 * 24 * HOUR, RECORDS_OF_A_STREAM))
        whole, some = IdSample(), IdSample(most_rows=rows)
        for sample in (whole, some):
            for part in np.array_split(np.arange(ids.size), 20):
                sample.add(0, hashed(ids[part], seed), readings[part], NO_PRINTS)
        truth, found = predict(whole, windows, route=False), predict(some, windows, route=False)
        assert whole.rate == 1 > some.rate
        for n, (exact, estimate) in enumerate(zip(truth, found, strict=True)):
            inside[n] += exact.caught.value in estimate.caught, exact.missed.value in estimate.missed
            if n:  # of the shortest one a sample without an id of very many records says little
                wide.append(estimate.caught.high - estimate.caught.low)

    assert inside.min() >= 95, inside
    assert np.median(wide) < RECORDS_OF_A_STREAM / 5


def test_a_sample_never_has_more_rows_than_its_bound_and_keeps_all_records_of_its_ids() -> None:
    random = np.random.default_rng(1)
    ids = hashed(random.integers(0, 50_000, 200_000), 1)
    sample = IdSample(most_rows=10_000)
    for part in np.array_split(np.arange(ids.size), 50):
        sample.add(0, ids[part], part.astype(np.int64), NO_PRINTS)
        assert sample.kept.rows <= 10_000

    rows = sample.ordered(route=False)
    kept = np.flatnonzero(ids >> np.uint64(64 - sample.kept.level) == 0)
    assert sample.kept.level >= 4
    assert rows.variant.size == kept.size
    assert rows.first.size - 1 == np.unique(ids[kept]).size


@pytest.mark.parametrize("apart", [0, 1_000])
def test_a_stream_of_one_id_stays_within_the_bound_and_is_predicted(apart: int) -> None:
    sample = IdSample(most_rows=5_000)
    readings = np.arange(100_000, dtype=np.int64) * apart
    ids = np.full(readings.size, 7, np.uint64)
    for part in np.array_split(np.arange(ids.size), 30):
        sample.add(0, ids[part], readings[part], NO_PRINTS)

    [found] = predict(sample, [HOUR], route=False)

    passing = 1 if not apart else 28  # 100,000 s are 27.8 hours
    assert sample.kept.rows <= 5_000
    assert 100_000 - passing in found.caught
    assert found.caught.value == pytest.approx(100_000 - passing, abs=100)


def test_one_id_with_ever_other_content_stays_within_the_bound() -> None:
    sample = IdSample(prints=True, most_rows=5_000)
    numbers = np.arange(60_000)
    for part in np.array_split(numbers, 30):
        sample.add(0, np.full(part.size, 7, np.uint64), part.astype(np.int64), part.astype(np.uint64))
        assert sample.kept.rows <= 5_000

    [found] = predict(sample, [HOUR], route=False)

    assert 59_999 in found.collisions
    assert 0 in found.caught
