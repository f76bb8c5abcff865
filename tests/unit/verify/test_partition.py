"""The comparison finds what is wrong, and only that, wherever pieces end and whatever comes."""

from __future__ import annotations

import json
import tracemalloc
from itertools import chain

import pytest

from processor.verify.report import GIVE_UP_AFTER, MOST_VIOLATIONS
from tests.support.verify.compared import Topics, compared, details, found, renumber
from tests.support.verify.corruptions import PLANTED, STREAM, numbered


def stream() -> Topics:
    return Topics.of(list(chain(*STREAM)))


@pytest.mark.parametrize("piece", [1, 100])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_corruption_is_found_where_it_is(name: str, piece: int) -> None:
    which, change, expected, text = PLANTED[name]
    topics = stream()
    records = getattr(topics, which)
    records[:] = change(records)
    renumber(records)

    report = compared(topics, piece)

    assert found(report) == expected, details(report)
    assert text in details(report)


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_what_is_right_is_proved_and_counted(piece: int) -> None:
    report = compared(stream(), piece)
    assert report.ok, details(report)
    assert (report.source, report.sink, report.duplicates, report.quarantine) == (15, 10, 3, 2)


def test_one_lost_among_many_is_the_only_violation_and_all_others_are_counted() -> None:
    topics = Topics.of([numbered(n) for n in range(30_000)])
    del topics.sink[12_345]
    renumber(topics.sink)
    report = compared(topics)
    assert found(report) == [(12_345, "lost")]
    assert (report.source, report.sink) == (30_000, 29_999)


def test_a_block_that_is_lost_is_counted_to_its_last_record() -> None:
    topics = Topics.of([numbered(n) for n in range(8_000)])
    del topics.sink[3_000:3_500]
    report = compared(topics)
    assert (report.total, len(report.violations)) == (500, MOST_VIOLATIONS)
    assert found(report)[0] == (3_000, "lost")


def test_one_that_moved_further_than_can_be_looked_is_lost_there_and_too_much_here() -> None:
    topics = Topics.of([numbered(n) for n in range(12_000)])
    topics.sink.append(topics.sink.pop(100))
    renumber(topics.sink)
    assert found(compared(topics)) == [(100, "lost"), (11_999, "extra")]


def test_another_topic_altogether_is_given_up_and_its_records_are_counted() -> None:
    topics = Topics.of([numbered(n) for n in range(20_000)])
    topics.sink = Topics.of([numbered(n, b"other") for n in range(25_000)]).sink
    report = compared(topics)
    assert report.given_up
    assert report.total <= GIVE_UP_AFTER + 1
    assert (len(report.violations), report.source, report.sink) == (MOST_VIOLATIONS, 20_000, 25_000)


def test_what_stands_above_the_floor_belongs_to_work_that_goes_on() -> None:
    topics = stream()
    topics.sink += [topics.sink[0]._replace(offset=10), topics.sink[0]._replace(offset=11)]
    assert compared(topics, floor=10).ok
    assert [rule for _, rule in found(compared(topics, floor=11))] == ["duplicate_passed"]


def test_receipts_of_a_topic_that_was_added_later_begin_where_they_begin() -> None:
    topics = stream()
    del topics.duplicates[0]
    renumber(topics.duplicates)
    report = compared(topics, receipts_begin_late=True)
    assert report.ok, details(report)
    assert report.unproved == 1
    del topics.duplicates[1]
    assert found(compared(topics, receipts_begin_late=True)) == [(9, "receipt_missing")]
    topics.duplicates.clear()
    assert compared(topics, receipts_begin_late=True).unproved == 3


def test_what_the_quarantine_calls_too_large_was_not_judged() -> None:
    topics = Topics.of([numbered(1), numbered(100), numbered(2)])
    large = topics.source[1]
    headers = [("seqmark.error", b"too_large"), ("seqmark.detail", b""), ("seqmark.source", b"s:0:1")]
    topics.quarantine = [large._replace(offset=0, headers=(*large.headers, *headers))]
    topics.sink = renumber([topics.source[0], topics.source[2]])
    topics.duplicates.clear()
    report = compared(topics)
    assert report.ok, details(report)

    topics.quarantine[0] = topics.quarantine[0]._replace(value=b"another")
    assert found(compared(topics)) == [(1, "quarantine_wrong")]


def test_a_record_that_cannot_be_judged_and_passed_all_the_same_is_named() -> None:
    topics = stream()
    topics.sink.insert(3, topics.source[4])
    renumber(topics.sink)
    assert found(compared(topics)) == [(4, "not_quarantined")]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"null",
        b"[" * 60_000,
        b'{"offset": 6, "offset": 6}',
        b'{"offset": NaN}',
        b'{"offset": ' + b"9" * 5_000 + b"}",
        b'{"offset": true}',
        b"\xff",
        b" " * 100_000,
        json.dumps({"offset": [6]}).encode(),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_whatever_stands_in_a_receipt_it_is_a_violation_and_nothing_worse(value: bytes | None) -> None:
    topics = stream()
    topics.duplicates[1] = topics.duplicates[1]._replace(value=value)
    assert found(compared(topics)) == [(6, "receipt_wrong")]


def test_memory_does_not_grow_with_how_much_is_wrong() -> None:
    topics = Topics.of([numbered(n // 2) for n in range(6_000)])
    junk = b"x" * 60_000
    topics.duplicates = [each._replace(value=junk) for each in topics.duplicates]
    tracemalloc.start()
    report = compared(topics, 50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.given_up
    # 180 MB of junk; the buffers of four decoders are 64 MiB of address space each.
    assert peak < 4 * 2**26 + 64e6


def test_new_records_that_are_dropped_by_the_rules_are_no_violation_and_are_counted() -> None:
    resent = numbered(1)._replace(value=b"value 1")
    topics = Topics.of([*(numbered(n) for n in range(6)), resent, numbered(2, b"lap 2"), numbered(3, b"lap 2")])
    report = compared(topics, piece=2)
    assert report.ok, details(report)
    assert (report.duplicates, report.dropped_looked_at, report.dropped_unseen) == (3, 3, 2)
    assert report.unseen_at == [7, 8]
    assert compared(stream()).dropped_unseen == 0
