"""A plan by verdicts names records of their topic, and what it reads of the source follows from these."""

from __future__ import annotations

import json

import pytest

from processor.errors import StopError
from processor.kafka.plain.verdict_log import NOWHERE, VerdictBounds, VerdictSpan
from spark_sink.query.checkpoint import OffsetsFile, PlannedBatch
from spark_sink.source.place import SourcePlace
from spark_sink.source.planning.planner import VerdictPlanner
from spark_sink.source.spans import read_spans, written_spans

BEGIN = SourcePlace("raw", "", {}, {}, {}, initial=True)


def planner(*, latest: bool = False) -> VerdictPlanner:
    return VerdictPlanner(latest=latest, accept_loss=False)


def place(at: VerdictPlanner, *bounds: tuple[int, int, int, int]) -> SourcePlace:
    """Return where the verdicts end, as the checkpoint gives it back; bounds are those of partition 0 on."""
    source, verdicts = (SourcePlace(name, name.upper(), {}, {}, {}) for name in ("raw", "verdicts"))
    now = {number: VerdictBounds(*each) for number, each in enumerate(bounds)}
    return SourcePlace.read(json.loads(json.dumps(at.end(source, verdicts, now).as_json())))


def test_a_batch_has_the_verdicts_from_one_place_to_the_next_and_the_first_says_what_had_expired() -> None:
    running = planner()
    first = place(running, (0, 4, 100, 500))
    then = place(running, (2, 8, 300, 900))

    assert running.spans(BEGIN, first) == [VerdictSpan(0, 100, 500, 0, 4, fresh=True)]
    assert planner().spans(BEGIN, first) == running.spans(BEGIN, first), "by another process, whenever"
    assert planner().spans(first, then) == [VerdictSpan(0, 500, 900, 4, 8, fresh=False)]
    assert [span.offsets for span in planner().spans(then, then)] == [0]


def test_a_source_may_go_back_by_a_reset_and_its_verdicts_may_not() -> None:
    running = planner()
    first, back = place(running, (0, 4, 0, 500)), place(running, (0, 7, 0, 200))

    (span,) = running.spans(first, back)
    assert (span.start, span.stop, span.first, span.after) == (500, 200, 4, 7)
    assert span.offsets
    with pytest.raises(StopError, match=r"verdicts:0 ends at 3, and was read up to 7"):
        place(running, (0, 3, 0, 500))


def test_of_a_partition_that_is_added_all_is_to_be_read_and_one_without_a_verdict_has_nothing() -> None:
    running = planner()
    first = place(running, (0, 4, 0, 500))
    then = place(running, (0, 4, 0, 500), (0, 0, 7, NOWHERE))
    last = place(running, (0, 4, 0, 500), (0, 2, 9, 20))

    assert [span for span in running.spans(first, then) if span.offsets] == []
    assert [span for span in planner().spans(then, last) if span.offsets] == [
        VerdictSpan(1, NOWHERE, 20, 0, 2, fresh=False)
    ]
    assert [span for span in planner().spans(first, last) if span.offsets] == [
        VerdictSpan(1, NOWHERE, 20, 0, 2, fresh=False)
    ]


def test_verdicts_of_an_added_partition_that_have_expired_unread_are_told() -> None:
    first, then = place(planner(), (0, 4, 0, 500)), place(planner(), (0, 4, 0, 500), (1, 2, 9, 20))

    with pytest.raises(StopError, match="verdicts:1 was added, and begins at offset 1: retention has removed"):
        planner().spans(first, then)
    by_will = VerdictPlanner(latest=False, accept_loss=True).spans(first, then)
    assert by_will[1] == VerdictSpan(1, NOWHERE, 20, 1, 2, fresh=False)
    assert planner().spans(BEGIN, then)[1] == VerdictSpan(1, 9, 20, 1, 2, fresh=True)


def test_a_stream_may_begin_behind_the_verdicts_that_are_there() -> None:
    running = planner(latest=True)
    first = place(running, (0, 4, 100, 500))
    then = place(running, (0, 6, 100, 700))

    assert [span.offsets for span in running.spans(BEGIN, first)] == [0]
    assert planner().spans(first, then) == [VerdictSpan(0, 500, 700, 4, 6, fresh=False)]


def test_what_was_not_counted_is_read_again_by_the_same_verdicts() -> None:
    running = planner()
    places = [place(running, (0, 4, 100, 500)), place(running, (2, 8, 300, 900), (0, 2, 9, 20))]
    first, then = (
        OffsetsFile.read(f'v1\n{{"batchWatermarkMs":7}}\n{json.dumps(each.as_json())}') for each in places
    )
    assert first.began is not None
    batches = [
        PlannedBatch(0, first.began, first.end, 0, first.partitions()),
        PlannedBatch(1, then.start(first.end), then.end, 7),
    ]
    again = [PlannedBatch.from_json(json.loads(json.dumps(each.as_json()))) for each in batches]

    planned = [running.spans(BEGIN, places[0]), running.spans(places[0], places[1])]
    assert [each.spans("raw", "verdicts") for each in again] == planned
    assert [read_spans(written_spans(each)) for each in planned] == planned
    assert [each.empty for each in again] == [False, False]


def test_a_checkpoint_stays_with_verdicts_or_without() -> None:
    by = place(planner(), (0, 4, 100, 500))
    plain = by._replace(verdicts=None)

    for was, now in ((by, plain), (plain, by)):
        with pytest.raises(StopError, match=r"the checkpoint has read raw (by|without) verdicts"):
            was.require_same(now)
    by.require_same(by)
    inner = by.in_verdicts()
    with pytest.raises(StopError, match="topic verdicts was deleted and made anew"):
        by.require_same(by._replace(verdicts=inner._replace(id="another")))
