"""A commit's position says where its outputs end, and marks of it go into the index topic now and then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from processor.pipeline import slot_pipeline
from processor.pipeline.ports import RouteTopics, Topics
from processor.state.belonging import named
from schemas.changelog.marks import MARK_KEY, IndexMark
from schemas.changelog.position import NO_ENDS, OutputEnds, Position
from schemas.changelog.topic_ids import TopicId, TopicIds
from tests.unit.pipeline.test_slot_pipeline import INDEX, Slot, came

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def written(slot: Slot, number: int = 0) -> list[IndexMark]:
    records = slot.output.records(INDEX, number)
    assert {record.key for record in records} <= {MARK_KEY}
    return [IndexMark.decode(record.value or b"") for record in records]


def clocked(marked: int = 1, partitions: int = 1) -> tuple[Slot, Callable[[float], None]]:
    """Return a slot, and what lets its clock go on."""
    now = [100.0]

    def later(seconds: float) -> None:
        now[0] += seconds

    slot = Slot(marked=marked, partitions=partitions, duplicates_limit=1_000_000, clock=lambda: now[0])
    return slot, later


def test_a_mark_says_how_far_its_commit_had_come_and_where_the_outputs_ended() -> None:
    slot, later = clocked()
    slot.take(came(1, 2, 2, None, 3))
    slot.commit()
    later(1)
    slot.take(came(4, start=5))
    slot.commit()

    first, second = written(slot)
    assert (first.next_offset, first.ends) == (5, OutputEnds(3, 1, 1))
    # Behind the marker of the first commit; what nothing was written to stays where it was.
    assert (second.next_offset, second.ends) == (6, OutputEnds(5, 1, 1))
    assert slot.pipeline.partitions[0].position.ends == second.ends


def test_there_is_one_mark_a_partition_and_second_and_one_more_for_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slot_pipeline, "EVERY_RECORDS", 4)
    slot, later = clocked(marked=2, partitions=3)
    for number in range(10):
        for partition in range(3):
            slot.take(replace(came(number, start=number), partition=partition))
        slot.commit()
        later(0.25)

    # The first commit, then after each second, or with four records more.
    assert [mark.next_offset for mark in written(slot)] == [1, 5, 9]
    assert [mark.next_offset for mark in written(slot, 1)] == [1, 5, 9]
    assert written(slot, 2) == []  # the index has two partitions
    monkeypatch.setattr(slot_pipeline, "EVERY_S", 1000.0)
    for number in range(10, 14):
        slot.take(came(number, start=number))
        slot.commit()
    assert [mark.next_offset for mark in written(slot)] == [1, 5, 9, 13]


def test_a_mark_is_part_of_the_third_step() -> None:
    slot, _ = clocked()
    slot.take(came(1))
    slot.commit()
    steps = [said for said in slot.said if said == "flush" or INDEX in said or "end" in said.split()]
    assert steps == ["flush", f"send {INDEX}:0", "flush", "end"]


IDS = TopicIds(*(TopicId.of(name, name.encode().ljust(16)) for name in ("raw", "log", "clean", "dup", "aside")))
ENDED = Position(5, -1, 0, bytes(16), bytes(16), 1, IDS, "a", "p", OutputEnds(3, 2, 1))


def test_where_an_output_that_is_another_by_now_ends_nobody_knows() -> None:
    assert named(ENDED, IDS, "a", "p").ends == OutputEnds(3, 2, 1)
    other = IDS._replace(sink=TopicId.of("cleaner"))  # of a broker that says no ids
    assert named(ENDED, other, "a", "p").ends == OutputEnds(-1, 2, 1)
    anew = IDS._replace(duplicates=TopicId.of("dup", b"1" * 16))
    assert named(ENDED, anew, "a", "p").ends == OutputEnds(3, -1, 1)
    unsaid = IDS._replace(quarantine=TopicId.of("aside"))
    assert named(ENDED, unsaid, "a", "p").ends == OutputEnds(3, 2, 1)
    assert named(replace(ENDED, ends=NO_ENDS), IDS, "a", "p").ends == NO_ENDS


def test_tags_tell_topics_and_their_partitions_apart() -> None:
    names = [IDS, IDS._replace(sink=TopicId.of("cleaner")), IDS._replace(sink=TopicId.of("clean", b"1" * 16))]
    tags = [IndexMark.of(replace(ENDED, topics=ids), 0, 0, 7).tags for ids in names]
    assert len({each.sink for each in tags}) == 3
    assert len({each.source for each in tags}) == 1
    assert IndexMark.of(ENDED, 1, 0, 7).tags.sink != tags[0].sink
    assert IndexMark.of(ENDED, 1, 0, 7).tags.quarantine == tags[0].quarantine
    assert IndexMark.of(replace(ENDED, topics=IDS._replace(duplicates=TopicId())), 0, 0, 7).tags.duplicates == 0


def test_what_a_slot_writes_to_includes_its_marks_so_that_nothing_of_them_is_left_open() -> None:
    topics = Topics("raw", "clean", None, "log", 1, 1, index="index", index_partitions=2)
    assert [to for to in topics.written_from([0, 1, 2]) if to[0] == "index"] == [("index", 0), ("index", 1)]
    assert topics.written == ["clean", "log", "index"]
    assert topics.needed == ["clean", "log"]
    routed = RouteTopics("raw", "clean", None, "log", 1, 1, internal="way", index="index", index_partitions=1)
    assert [to for to in routed.written_from([0, 1]) if to[0] == "index"] == [("index", 0)]
    assert "index" in routed.written
    assert "sink" not in routed.ends_in(0)
