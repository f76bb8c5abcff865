"""Whoever takes a slot over looks for the end of the last transaction wherever its owner has written."""

from __future__ import annotations

from processor.pipeline.ports import RouteTopics, Topics


def test_a_slot_writes_to_its_own_partitions_and_to_where_they_are_refused() -> None:
    topics = Topics(
        "raw", "clean", "bad", "changelog", 0, 0, duplicates="dropped", verdicts="said", quarantine_partitions=2
    )
    own = [(topic, number) for topic in ("changelog", "clean", "dropped", "said") for number in (1, 3)]
    assert sorted(topics.written_from([1, 3])) == sorted([("bad", 1), *own])


def test_a_first_hop_writes_to_all_of_the_internal_topic_whichever_partitions_it_reads() -> None:
    topics = RouteTopics("raw", "clean", "bad", "positions", 0, 0, internal="internal", internal_partitions=3)
    every = [("internal", number) for number in range(3)]
    assert sorted(topics.written_from([4])) == [("bad", 4), *every, ("positions", 4)]
