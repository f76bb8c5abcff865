"""Filters keep the rate that is promised for the whole window, and cost what is said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.bytes.siphash import siphash128, words_of_key
from processor.engine.ids.bloom import snapshot
from processor.engine.ids.bloom.filter import MOST_BITS, NOWHERE, Filter, mixed_bits, position
from processor.engine.ids.bloom.snapshot import UnreadableSnapshotError
from processor.engine.ids.bloom.window import BloomWindow
from processor.engine.ids.judgement import IdColumns
from tests.support.judges.ids import ids_of, read_snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY = 86_400_000


def random_hashes(count: int, seed: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), np.uint64)


def filled(rate: float, expected: int, times: float) -> BloomWindow:
    """Fill all eight filters of a window of seven days with ``times`` what is expected."""
    bloom = BloomWindow(7 * DAY, DAY, expected, rate)
    count = int(times * expected)
    for day in range(8):
        bloom.restore(random_hashes(count, seed=day), np.full(count, day * DAY + 1))
    assert len({each.bucket for each in bloom.filters}) == 8
    return bloom


def records_of(hashes: NDArray[np.uint64], clock: int) -> IdColumns:
    reading_ms = np.full(len(hashes), clock)
    return IdColumns.of(ids_of(hashes), reading_ms, reading_ms)


def hits(bloom: BloomWindow, hashes: NDArray[np.uint64]) -> int:
    found = bloom.look_up(records_of(hashes, 7 * DAY + 2))
    return int(np.count_nonzero(found != NOWHERE))


@pytest.mark.parametrize(("rate", "times"), [(1e-2, 1), (1e-3, 1), (1e-3, 3.1), (1e-4, 1), (1e-4, 1.2)])
def test_the_rate_over_the_whole_window_is_at_most_the_promised_one(rate: float, times: float) -> None:
    bloom = filled(rate, 3_000, times)
    trials = 400_000
    wrong = hits(bloom, random_hashes(trials, seed=99))
    # Six standard deviations above the promise: by luck once in 10^9; the seeds are fixed besides.
    assert wrong <= rate * trials + 6 * math.sqrt(rate * trials)
    # And as the bits that are set say, within six of its own. Poisson: a rate that is nearly zero has few.
    expected = bloom.rate * trials
    assert abs(wrong - expected) <= 6 * math.sqrt(expected) + 6
    assert bloom.rate <= rate


def test_eight_live_filters_at_1e_9_take_at_most_6_5_bytes_an_id() -> None:
    bloom = BloomWindow(7 * DAY, DAY, 20_000_000, 1e-9)
    for day in range(8):
        bloom.restore(random_hashes(1, seed=day), np.array([day * DAY]))
    assert bloom.size_bytes <= 6.5 * 8 * 20_000_000
    # The rate is shared among all of them, further ones included.
    each = bloom.filters[0]
    full = (1 - math.exp(-each.each * each.capacity / each.bits)) ** each.each
    assert 8 * full / 0.75 == pytest.approx(1e-9, rel=1e-3)


def test_a_bucket_that_outgrows_its_filter_gets_further_ones_whose_rates_add_up() -> None:
    bloom = BloomWindow(DAY, DAY, 1_000, 1e-3)
    bloom.restore(random_hashes(5_000, seed=1), np.zeros(5_000, np.int64))
    assert [each.capacity for each in bloom.filters] == [1_000, 250, 500, 1_000, 2_000, 4_000]
    assert sum(each.ids for each in bloom.filters) == bloom.ids == 5_000
    designed = [math.exp(-each.bits / each.capacity * math.log(2) ** 2) for each in bloom.filters]
    assert sum(designed) <= 1e-3 / 2
    assert all(each.rate <= 1.1 * rate for each, rate in zip(bloom.filters, designed, strict=True))


def test_the_filter_of_a_dropped_bucket_is_cleaned_and_used_again() -> None:
    bloom = BloomWindow(20, 10, 100, 1e-9)
    sizes = []
    for bucket in range(9):
        records = records_of(random_hashes(80, seed=bucket), 10 * bucket)
        assert (bloom.judge(records, bloom.look_up(records)).verdict == 0).all()
        bloom.commit(10 * bucket)
        sizes.append(bloom.size_bytes)
        assert bloom.rate < 1e-9
        if bucket == 8:
            # Dropped six buckets ago, and not in what its memory was used for.
            old = records_of(random_hashes(80, seed=2), 10 * bucket)
            assert (bloom.look_up(old) == NOWHERE).all()
    assert len(set(sizes[2:])) == 1


@pytest.mark.parametrize("each", [2, 3, 4, 5, 6, 48])
@pytest.mark.parametrize("stop", [0, 1, 256, 300, 700])
def test_what_is_found_is_what_all_bits_say_of_the_rows_that_are_asked(each: int, stop: int) -> None:
    # A quarter of the bits is set, so that false positives are many where an id has few bits.
    words = np.random.default_rng(1).integers(0, 2**64, (2, 400), np.uint64)
    one = Filter(5, 0, 400, 400 * 64, each, words=words[0] & words[1])
    hashes = random_hashes(700, seed=2)
    one.put(hashes, 100, 400)
    skip = np.arange(700) % 7 == 0
    before = np.where(np.arange(700) % 5 == 0, np.arange(700) % 3 + 4, NOWHERE)

    hit = before.copy()
    one.find(hashes, mixed_bits(hashes), skip, stop, hit)

    expected = before.copy()
    for row in range(stop):
        first, second = hashes[row]
        with np.errstate(over="ignore"):
            places = [
                int(position(first, second, index, np.uint64(one.bits)))  # type: ignore[no-untyped-call]
                for index in range(each)
            ]
        if all(int(one.words[at // 64]) >> at % 64 & 1 for at in places) and not skip[row]:
            expected[row] = max(before[row], 5)
    assert hit.tolist() == expected.tolist()
    assert stop < 400 or (hit[100:400][~skip[100:400]] >= 5).all()


def test_a_filter_is_never_larger_than_its_positions_reach() -> None:
    each = Filter.sized(0, 0, 10**9, 1e-9)
    assert each.bits <= MOST_BITS
    assert each.bits / each.capacity >= 43


def hashed(secret: bytes, start: int, stop: int) -> NDArray[np.uint64]:
    numbers, key = np.arange(stop, dtype="<u8").view(np.uint8), words_of_key(secret)
    return np.array([siphash128(numbers, 8 * k, 8, key) for k in range(start, stop)], np.uint64)


def test_ids_chosen_without_the_secret_are_no_more_often_false_positives() -> None:
    attackers, workers = (BloomWindow(DAY, DAY, 4_000, 1e-2) for _ in range(2))
    zero, secret = bytes(16), b"a secret of 16 B"
    for bloom, key in ((attackers, zero), (workers, secret)):
        bloom.restore(hashed(key, 0, 4_000), np.full(4_000, 7 * DAY))
    tried = 200_000
    found = attackers.look_up(records_of(hashed(zero, 4_000, tried), 7 * DAY + 2))
    picked = found != NOWHERE
    assert picked.sum() > 500
    wrong = hits(workers, hashed(secret, 4_000, tried)[picked])
    # Six deviations above the promise, which is for all of the window; without a secret all would be wrong.
    expected = 0.01 * picked.sum()
    assert wrong <= expected + 6 * math.sqrt(expected)


def written() -> tuple[Filter, list[bytes]]:
    each = Filter.sized(-3, 1, 60_000, 1e-12)
    each.words = np.random.default_rng(1).integers(0, 2**64, 3 * snapshot.PIECE_WORDS + 5, np.uint64)
    each.bits, each.ids = 64 * each.words.size, 60_000
    return each, list(snapshot.write(each))


def test_a_snapshot_is_read_back_in_any_order_of_its_pieces() -> None:
    each, pieces = written()
    assert [len(piece) <= 1024 * 1024 + 64 for piece in pieces] == [True] * 4
    (read,) = read_snapshot(pieces[::-1])
    assert np.array_equal(read.words, each.words)
    assert (read.bucket, read.order, read.capacity, read.bits, read.each, read.ids) == (
        each.bucket,
        each.order,
        each.capacity,
        each.bits,
        each.each,
        each.ids,
    )
    assert read.set == sum(int(word).bit_count() for word in each.words[:1_000]) + sum(
        int(word).bit_count() for word in each.words[1_000:]
    )


def test_a_snapshot_of_which_a_piece_is_missing_twice_there_or_not_whole_is_refused() -> None:
    _, pieces = written()
    last = pieces[3]
    for wrong in (
        pieces[:3],
        pieces[1:],
        [*pieces, last],
        [*pieces[:3], last[:-1]],
        [*pieces[:3], last[:10]],
        [*pieces[:3], b""],
        [*pieces[:3], b"\2" + last[1:]],
        [*pieces[:3], last[:-1] + bytes([last[-1] ^ 1])],
        [*pieces[:3], last[:20] + bytes([last[20] ^ 1]) + last[21:]],
    ):
        with pytest.raises(UnreadableSnapshotError):
            read_snapshot(wrong)
