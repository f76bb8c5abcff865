"""A stream's plans leave nothing out and read nothing twice, whatever one answer of Kafka says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from spark_sink.query.checkpoint import OffsetsFile
from spark_sink.source.place import SourcePlace
from spark_sink.source.planning.planner import StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN = SourcePlace("t", "", {}, {}, {}, initial=True)


def answer(**partitions: tuple[int, int]) -> dict[int, tuple[int, int]]:
    """Return what Kafka says of partitions ``p0``, ``p1`` and so on."""
    return {int(name[1:]): each for name, each in partitions.items()}


def planner(*, latest: bool = False, accept_loss: bool = False) -> StreamPlanner:
    return StreamPlanner(latest=latest, accept_loss=accept_loss)


def place(at: StreamPlanner, bounds: Mapping[int, tuple[int, int]]) -> SourcePlace:
    """Return the topic's end as the checkpoint gives it back."""
    return SourcePlace.read(json.loads(json.dumps(at.end("t", "X", bounds).as_json())))


def spans(at: StreamPlanner, begins: SourcePlace, ends: SourcePlace) -> list[object]:
    return [tuple(each) for each in at.spans(begins, ends)]


def offsets_file(end: object) -> str:
    return f'v1\n{{"batchWatermarkMs":7}}\n{json.dumps(end)}'


def test_an_answer_that_lacks_a_partition_is_refused_and_not_planned() -> None:
    running = planner()
    place(running, answer(p0=(0, 100), p1=(0, 100)))

    with pytest.raises(StopError, match=r"t:1 was read up to 100, and Kafka's answer has no such partition"):
        place(running, answer(p0=(0, 110)))
    assert place(running, answer(p0=(0, 110), p1=(0, 101))).next == {0: 110, 1: 101}


def test_a_plan_without_a_partition_that_was_read_does_not_run_and_the_error_says_how_to_take_it_back() -> None:
    first = place(planner(), answer(p0=(0, 100), p1=(0, 100)))
    # Another process, whose first answer is that of a broker that has just started.
    again = planner()
    lacks = place(again, answer(p0=(0, 110)))

    with pytest.raises(StopError, match=r"t:1 was read up to 100.*remove its plan.*folder `offsets`"):
        again.spans(first, lacks)


def test_a_partition_that_has_lost_its_end_is_refused_or_read_on_from_there_where_loss_is_accepted() -> None:
    before, after = answer(p0=(0, 100)), answer(p0=(0, 60))
    running, accepting = planner(), planner(accept_loss=True)
    at = place(running, before)

    with pytest.raises(StopError, match=r"t:0 ends at 60, and was read up to 100: it has lost its end"):
        place(running, after)
    with pytest.raises(StopError, match="lost its end"):
        planner().spans(at, place(planner(), after))
    place(accepting, before)
    back = place(accepting, after)
    assert spans(accepting, back, place(accepting, answer(p0=(0, 70)))) == [(0, 60, 70)]


def test_where_an_added_partition_begins_is_in_the_plan_and_stays_when_retention_moves_on() -> None:
    running = planner(accept_loss=True)
    before = place(running, answer(p0=(0, 100)))
    after = place(running, answer(p0=(0, 100), p1=(3, 50)))

    planned = spans(running, before, after)
    again = spans(planner(accept_loss=True), before, after)
    assert planned == again == [(0, 100, 100), (1, 3, 50)]


def test_an_added_partition_whose_beginning_has_expired_is_refused_or_read_on_where_loss_is_accepted() -> None:
    before = place(planner(), answer(p0=(0, 100)))
    after = place(planner(), answer(p0=(0, 100), p1=(500, 1000)))

    with pytest.raises(StopError, match="t:1 was added, and begins at offset 500: retention has removed"):
        spans(planner(), before, after)
    assert spans(planner(accept_loss=True), before, after) == [(0, 100, 100), (1, 500, 1000)]
    assert spans(planner(), BEGIN, after) == [(0, 0, 100), (1, 500, 1000)], "a stream that begins lacks nothing"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_that_begins_at_the_ends_reads_an_added_partition_from_its_first_record(
    *, restarted: bool
) -> None:
    running = planner(latest=True)
    before = place(running, answer(p0=(0, 100)))
    running = planner(latest=True) if restarted else running
    after = place(running, answer(p0=(0, 120), p1=(0, 50)))

    assert spans(running, BEGIN, before) == [(0, 100, 100)]
    assert spans(running, before, after) == [(0, 100, 120), (1, 0, 50)]


def test_a_batch_that_is_read_again_for_what_was_not_counted_begins_where_the_source_began() -> None:
    running = planner()
    before = running.end("t", "X", answer(p0=(0, 100))).as_json()
    after = running.end("t", "X", answer(p0=(0, 120), p1=(40, 50))).as_json()
    first, then = (OffsetsFile.read(offsets_file(each)) for each in (before, after))

    assert then.start(first.end) == {"t": {"0": 100, "1": 40}}
    assert then.end == {"t": {"0": 120, "1": 50}}


def test_a_bounded_batch_goes_on_where_spark_was_told_that_the_one_before_ended() -> None:
    running, whole = planner(), answer(p0=(0, 100), p1=(7, 50))
    end = place(running, whole)
    assert running.goes_on() == {0: 0, 1: 7}
    first = end._replace(next={0: 30, 1: 7})
    assert spans(running, BEGIN, first) == [(0, 0, 30), (1, 7, 7)]
    place(running, answer(p0=(0, 100), p1=(9, 50), p2=(4, 8)))
    assert running.goes_on() == {0: 30, 1: 7, 2: 4}, "a partition that is added, from its first record"

    # After a start over the checkpoint Spark tells of the last batch before it asks for an end.
    again = planner()
    assert spans(again, first, first) == [(0, 30, 30), (1, 7, 7)]
    place(again, whole)
    assert again.goes_on() == {0: 30, 1: 7}


def test_a_bounded_stream_without_a_checkpoint_may_begin_at_the_ends() -> None:
    running = planner(latest=True)
    place(running, answer(p0=(0, 100)))

    assert running.goes_on() == {0: 100}


def test_a_trigger_that_asks_for_the_end_first_does_not_go_with_bounded_batches_and_nothing_is_planned() -> (
    None
):
    fresh, over = planner(), planner(accept_loss=True)
    for each in (fresh, over):
        place(each, answer(p0=(0, 100)))
        each.goes_on()
    read = SourcePlace("t", "X", {0: 60}, {0: 0}, {0: 0})

    with pytest.raises(StopError, match="max_offsets_per_trigger does not go with the trigger availableNow"):
        fresh.goes_on()
    with pytest.raises(StopError, match="max_offsets_per_trigger does not go with the trigger availableNow"):
        over.spans(read, read)


@pytest.mark.parametrize("name", ["next", "topic", "began"])
def test_a_topic_with_the_name_of_a_key_of_our_own_places_is_that_topic(name: str) -> None:
    found = OffsetsFile.read(offsets_file({name: {"0": 40}}))

    assert (found.end, found.began) == ({name: {"0": 40}}, None)
