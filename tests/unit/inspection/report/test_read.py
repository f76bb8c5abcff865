"""A snapshot of topics says what there is to read, also where the answers do not fit together."""

from __future__ import annotations

from processor.inspection.report.read import TopicSnapshot
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import Bounds


def test_a_partition_whose_stable_end_lies_before_its_start_has_nothing_to_read() -> None:
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    taken = TopicSnapshot({other: Bounds(2, 9, 9), one: Bounds(7, 3, 3)}, {}, quiet=True)

    assert taken.spans("t") == {one: (7, 7), other: (2, 9)}
    assert taken.offsets == 7


def test_each_topic_has_the_spans_of_its_own_partitions_in_order() -> None:
    places = [TopicPartition(topic, number) for topic in "ab" for number in (2, 0, 1)]
    taken = TopicSnapshot({tp: Bounds(0, 5, 6) for tp in places}, {}, quiet=True)

    assert [tp.partition for tp in taken.spans("a")] == [0, 1, 2]
    assert set(taken.spans("b").values()) == {(0, 5)}
    assert taken.spans("c") == {}
    assert taken.offsets == 30
