"""What a program takes by verdicts is the clean stream, however the records of both topics come in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.errors import StopError
from schemas.verdicts.record import SourceSums, VerdictRecord, xored
from seqmark.consumer import CleanFilter

NONE = np.zeros(0, np.int64)


def verdict(
    source: dict[int, int], base: int, end: int, skipped: set[int], *, begins: bool = False
) -> VerdictRecord:
    """Return that of a range; ``source`` has timestamps by offset."""
    inside = [at for at in sorted(source) if base <= at < end]
    sums = SourceSums().more(len(inside), xored(np.array([source[at] for at in inside], np.int64)), NONE)
    left_out = np.array([at for at in inside if at in skipped], np.int64)
    return VerdictRecord(3, base, end, sums, begins=begins, skipped=left_out)


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict[int, int], list[VerdictRecord], set[int]]:
    """Draw a source with gaps, verdicts over all of it, and what they skip."""
    offsets = sorted(draw(st.sets(st.integers(0, 60), max_size=40)))
    source = {at: draw(st.integers(-5, 2**40)) for at in offsets}
    skipped = draw(st.sets(st.sampled_from(offsets), max_size=20)) if offsets else set()
    cuts = sorted({0, 61, *draw(st.sets(st.integers(0, 61), max_size=8))})
    ranges = [verdict(source, base, end, skipped) for base, end in pairwise(cuts)]
    return source, [verdict(source, 0, 0, set(), begins=True), *ranges], skipped


@given(streams(), st.data())
def test_what_is_taken_is_the_clean_stream_and_never_ahead_of_the_verdicts(
    drawn: tuple[dict[int, int], list[VerdictRecord], set[int]], data: st.DataObject
) -> None:
    source, verdicts, skipped = drawn
    clean: CleanFilter[int] = CleanFilter()
    records, spoken, taken = list(source), 0, list[int]()
    left = list(verdicts)
    while records or left:
        if left and (not records or data.draw(st.booleans())):
            spoken = left[0].end
            clean.verdict(3, len(verdicts) - len(left), left.pop(0).encode())
        else:
            at = records.pop(0)
            clean.record(3, at, source[at], at)
        taken += clean.take(3)
        assert all(at < spoken for at in taken)
    assert taken == [at for at in source if at not in skipped]
    assert clean.held(3) == 0
    assert clean.position(3) == (61, len(verdicts))


@given(streams(), st.integers(0, 60))
def test_a_program_goes_on_at_any_offset(
    drawn: tuple[dict[int, int], list[VerdictRecord], set[int]], start: int
) -> None:
    source, verdicts, skipped = drawn
    clean: CleanFilter[int] = CleanFilter()
    clean.resume(3, start)
    for offset, each in enumerate(verdicts):
        if each.end > start:
            clean.verdict(3, offset, each.encode())
    first = clean.wanted(3)
    for at in source:
        if at >= (start if first is None else first):
            clean.record(3, at, source[at], at)
    assert list(clean.take(3)) == [at for at in source if at not in skipped and at >= start]
    assert clean.wanted(3) is None


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[int, int], list[VerdictRecord]]:
    """Draw a source, and all verdicts of a pipeline that was reset now and then, each time with other rules."""
    source, _, skipped = draw(streams())
    verdicts, at = list[VerdictRecord](), 0
    for _ in range(draw(st.integers(1, 3))):
        cuts = sorted({at, *draw(st.sets(st.integers(at, 61), min_size=1, max_size=4))})
        for number, (base, end) in enumerate([(at, at)] * draw(st.integers(0, 1)) + list(pairwise(cuts))):
            verdicts.append(verdict(source, base, end, skipped, begins=not number))
        at = draw(st.integers(0, cuts[-1]))
        skipped = draw(st.sets(st.integers(0, 60), max_size=10))
    return source, verdicts


@given(logs(), st.data())
def test_a_reader_that_is_stopped_anywhere_misses_nothing_whatever_was_reset(
    drawn: tuple[dict[int, int], list[VerdictRecord]], data: st.DataObject
) -> None:
    source, verdicts = drawn
    wanted = [
        at
        for each in verdicts
        for at in source
        if each.base <= at < each.end and at not in each.skipped.tolist()
    ]
    taken, position, known = list[int](), None, 0
    while position is None or position[1] < len(verdicts):
        clean: CleanFilter[int] = CleanFilter()
        if position is not None:
            clean.resume(3, *position)
        at, spoken = position or (0, 0)
        for _ in range(data.draw(st.integers(1, 60)) if known < 4 else 400):
            left = [each for each in source if each >= at]
            if spoken < len(verdicts) and (not left or data.draw(st.booleans())):
                clean.verdict(3, spoken, verdicts[spoken].encode())
                spoken += 1
            elif left:
                clean.record(3, left[0], source[left[0]], left[0])
                at = left[0] + 1
            taken += clean.take(3)
            if (back := clean.wanted(3)) is not None:
                at = back
            if data.draw(st.booleans()):
                position = clean.position(3)
        position, known = clean.position(3), known + 1
    left_over = iter(taken)
    assert all(at in left_over for at in wanted), (wanted, taken)
    assert set(taken) <= set(wanted)


@pytest.mark.parametrize("wrong", ["missing", "another"])
def test_a_source_that_is_not_whole_or_another_is_told(wrong: str) -> None:
    source = {at: 1_000 + at for at in range(10)}

    def fed(*, checked: bool) -> CleanFilter[int]:
        clean: CleanFilter[int] = CleanFilter(checked=checked)
        clean.verdict(3, 0, verdict(source, 0, 5, {1}, begins=True).encode())
        clean.verdict(3, 0, verdict(source, 5, 10, set()).encode())
        for at, timestamp in sorted(source.items()):
            if wrong != "missing" or at != 2:
                clean.record(3, at, timestamp + (wrong == "another"), at)
        return clean

    with pytest.raises(StopError, match="are not those that were judged"):
        list(fed(checked=True).take(3))
    passes = [0, 2, 3, 4, 5, 6, 7, 8, 9]
    assert list(fed(checked=False).take(3)) == [at for at in passes if at != 2 or wrong != "missing"]


def test_after_a_reset_it_wants_the_source_from_there_once_and_takes_it_again() -> None:
    source = {at: at for at in range(10)}
    clean: CleanFilter[int] = CleanFilter()
    clean.verdict(3, 0, verdict(source, 0, 8, {1}, begins=True).encode())
    for at in source:
        clean.record(3, at, at, at)
    assert list(clean.take(3)) == [0, 2, 3, 4, 5, 6, 7]
    assert clean.wanted(3) is None
    clean.verdict(3, 0, verdict(source, 4, 10, {5}, begins=True).encode())
    assert list(clean.take(3)) == []
    assert (clean.wanted(3), clean.wanted(3)) == (4, None)
    for at in range(4, 10):
        clean.record(3, at, at, at)
    assert list(clean.take(3)) == [4, 6, 7, 8, 9]


@pytest.mark.parametrize("resumed", [6, 10], ids=["within a range", "between two"])
def test_a_reader_that_was_stopped_during_a_reset_reads_again_from_where_it_began(resumed: int) -> None:
    source = {at: at for at in range(12)}
    clean: CleanFilter[int] = CleanFilter()
    clean.resume(3, resumed, 7)
    assert clean.position(3) == (resumed, 7), "who commits before anything has come loses no position"
    clean.verdict(3, 8, verdict(source, 4, 12, {6}, begins=True).encode())
    assert clean.wanted(3) == 4
    for at in range(4, 12):
        clean.record(3, at, at, at)
    assert list(clean.take(3)) == [4, 5, 7, 8, 9, 10, 11]
    assert clean.position(3) == (12, 9)


def test_verdicts_that_have_expired_behind_a_reader_are_told() -> None:
    source = {at: at for at in range(24)}

    def resumed(*, checked: bool) -> CleanFilter[int]:
        clean: CleanFilter[int] = CleanFilter(checked=checked)
        clean.resume(3, 8, 2)
        clean.verdict(3, 4, verdict(source, 16, 24, set()).encode())
        return clean

    with pytest.raises(StopError, match="8 to 15 have expired unread"):
        resumed(checked=True)
    clean = resumed(checked=False)
    for at in range(8, 24):
        clean.record(3, at, at, at)
    assert list(clean.take(3)) == list(range(16, 24))


def test_a_reader_that_goes_on_at_the_beginning_is_told_of_offsets_without_a_verdict_too() -> None:
    source = {at: at for at in range(30)}
    clean: CleanFilter[int] = CleanFilter()
    clean.verdict(3, 0, verdict(source, 0, 0, set(), begins=True).encode())
    assert list(clean.take(3)) == []
    position = clean.position(3)
    assert position == (0, 1)
    clean = CleanFilter()
    clean.resume(3, *position)
    with pytest.raises(StopError, match="offsets 0 to 19 have no verdict"):
        clean.verdict(3, 2, verdict(source, 20, 30, set(), begins=True).encode())


def test_a_topic_of_verdicts_made_anew_or_expired_behind_a_reset_is_told_by_where_it_goes_on() -> None:
    source = {at: at for at in range(60)}
    found = verdict(source, 20, 30, set()).encode()

    def resumed(*, checked: bool = True) -> CleanFilter[int]:
        clean: CleanFilter[int] = CleanFilter(checked=checked)
        clean.resume(3, 50, 7)
        return clean

    clean = resumed()
    for _ in range(2):
        with pytest.raises(StopError, match="goes on at source offset 20, and the program has come to 50"):
            clean.verdict(3, 8, found)
    resumed(checked=False).verdict(3, 8, found)
    # The range in which it stopped stands where it says.
    resumed().verdict(3, 7, verdict(source, 45, 55, set()).encode())


@pytest.mark.parametrize("resumed", [False, True], ids=["running", "stopped meanwhile"])
def test_offsets_that_no_verdict_speaks_of_are_told(*, resumed: bool) -> None:
    source = {at: at for at in range(30)}

    def gone_on(*, checked: bool) -> CleanFilter[int]:
        clean: CleanFilter[int] = CleanFilter(checked=checked)
        if resumed:
            clean.resume(3, 10, 1)
        else:
            clean.verdict(3, 0, verdict(source, 0, 10, set(), begins=True).encode())
        for at in source:
            if at >= 10 * resumed:
                clean.record(3, at, at, at)
        assert list(clean.take(3)) == ([] if resumed else list(range(10)))
        return clean

    after = verdict(source, 20, 30, set(), begins=True).encode()
    clean = gone_on(checked=True)
    for _ in range(2):
        with pytest.raises(StopError, match="offsets 10 to 19 have no verdict"):
            clean.verdict(3, 1, after)
    clean = gone_on(checked=False)
    clean.verdict(3, 1, after)
    assert list(clean.take(3)) == list(range(20, 30))


def test_records_that_expire_within_the_range_in_which_a_reader_stopped_are_told() -> None:
    source = {at: at for at in range(20)}
    clean: CleanFilter[int] = CleanFilter()
    clean.resume(3, 12, 2)
    clean.verdict(3, 2, verdict(source, 10, 20, set()).encode())
    assert (clean.wanted(3), clean.position(3).source) == (10, 12), "all of the range is compared"
    for at in (18, 19, 20):
        clean.record(3, at, at, at)
    with pytest.raises(StopError, match="2 came, 10 were judged"):
        list(clean.take(3))


@pytest.mark.parametrize("before", [[], [(0, 10)]], ids=["at the beginning", "later"])
def test_records_before_an_empty_range_that_begins_are_passed_over(before: list[tuple[int, int]]) -> None:
    source = {at: at for at in range(25)}
    clean: CleanFilter[int] = CleanFilter()
    if before:
        clean = CleanFilter(checked=False)
    for number, (base, end) in enumerate([*before, (20, 20), (20, 25)]):
        clean.verdict(
            3, number, verdict(source, base, end, set(), begins=base in {0, 20} and end != 25).encode()
        )
    for at in source:
        clean.record(3, at, at, at)
    assert list(clean.take(3)) == [*(at for base, end in before for at in range(base, end)), *range(20, 25)]


def test_a_record_too_many_in_an_empty_range_is_told() -> None:
    clean: CleanFilter[int] = CleanFilter()
    clean.verdict(3, 0, VerdictRecord(3, 5, 5, begins=True).encode())
    clean.verdict(3, 1, VerdictRecord(3, 5, 8).encode())
    clean.verdict(3, 2, verdict({8: 8}, 8, 9, set()).encode())
    for at in (4, 6, 8):
        clean.record(3, at, at, at)
    with pytest.raises(StopError, match="are not those that were judged"):
        list(clean.take(3))


def test_a_new_reader_begins_with_what_the_source_still_holds_and_checks_all_behind_it() -> None:
    source = {at: at for at in range(40)}

    def read(retained: list[int], resumed: int | None = None) -> list[int]:
        clean: CleanFilter[int] = CleanFilter()
        if resumed is not None:
            clean.resume(3, resumed)
        for number, base in enumerate(range(0, 40, 10)):
            clean.verdict(3, number, verdict(source, base, base + 10, {21}, begins=not base).encode())
        for at in retained:
            clean.record(3, at, at, at)
        return list(clean.take(3))

    # The first range has expired, and a part of the second.
    retained = list(range(13, 40))
    assert read(retained) == [at for at in retained if at != 21]
    for lost in (20, 25, 39):
        with pytest.raises(StopError, match="9 came, 10 were judged"):
            read([at for at in [*retained, 40] if at != lost])
    with pytest.raises(StopError, match="0 came, 10 were judged"):
        read(retained, resumed=0)


def test_a_partition_that_was_taken_and_given_back_begins_anew_where_it_is_resumed() -> None:
    source = dict.fromkeys(range(210), 7)  # equal timestamps: two of a record are none in their sum
    clean: CleanFilter[int] = CleanFilter()
    clean.resume(3, 200, 5)
    for at in range(200, 205):
        clean.record(3, at, 7, at)
    clean.resume(3, 200, 5)
    for at in range(200, 210):
        clean.record(3, at, 7, at)
    clean.verdict(3, 5, verdict(source, 200, 210, set()).encode())
    assert list(clean.take(3)) == [*range(200, 210)]
    assert clean.held(3) == 0


def test_a_record_that_comes_again_without_a_word_is_refused() -> None:
    clean: CleanFilter[int] = CleanFilter()
    clean.record(3, 7, 1, 7)
    for again in (7, 3):
        with pytest.raises(StopError, match=f"source offset {again} comes behind 7.*`resume`"):
            clean.record(3, again, 1, again)


def test_what_was_polled_before_the_source_is_read_again_is_left_out() -> None:
    source = dict.fromkeys(range(210), 7)
    clean: CleanFilter[int] = CleanFilter()
    clean.resume(3, 200, 5)
    clean.record(3, 200, 7, 200)
    clean.verdict(3, 6, verdict(source, 50, 210, set(), begins=True).encode())
    for at in range(201, 210):  # the rest of what a client had polled
        clean.record(3, at, 7, at)
    assert clean.wanted(3) == 50
    for at in range(50, 210):
        clean.record(3, at, 7, at)
    assert list(clean.take(3)) == [*range(50, 210)]


def test_unchecked_it_goes_on_behind_verdicts_that_expire_while_it_runs() -> None:
    source = {at: at for at in range(40)}
    clean: CleanFilter[int] = CleanFilter(checked=False)
    clean.verdict(3, 0, verdict(source, 0, 10, set(), begins=True).encode())
    clean.verdict(3, 9, verdict(source, 30, 40, {31}).encode())
    for at in source:
        clean.record(3, at, at, at)
    assert list(clean.take(3)) == [*range(10), 30, *range(32, 40)]


def test_a_verdict_that_is_missing_is_told() -> None:
    clean: CleanFilter[int] = CleanFilter()
    clean.verdict(3, 0, VerdictRecord(3, 0, 5, begins=True).encode())
    with pytest.raises(StopError, match="leaves a gap behind"):
        clean.verdict(3, 0, VerdictRecord(3, 6, 9).encode())


def test_one_record_too_many_in_a_range_is_told() -> None:
    source = {at: at for at in range(10)}
    clean: CleanFilter[int] = CleanFilter()
    for number, (base, end) in enumerate([(0, 5), (5, 10)]):
        less = {at: time for at, time in source.items() if at != 4}
        clean.verdict(3, number, verdict(less, base, end, set(), begins=not base).encode())
    for at in source:
        clean.record(3, at, at, at)
    with pytest.raises(StopError, match="are not those that were judged"):
        list(clean.take(3))
