"""A run over a topic reads what no run before it has read, or says why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from processor.errors import StopError
from spark_sink.batch.table.commits import Commit, Snapshot, TopicSpan
from spark_sink.batch.topic.inputs import TopicInputs
from spark_sink.batch.topic.source import TopicBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_sink.batch.topic.source import TopicBlock

Spans = dict[int, tuple[int, int]]


class Answer(NamedTuple):
    """A topic without records, of which only the ends are asked for."""

    bounds: Spans

    def look(self) -> TopicBounds:
        return TopicBounds("t", "aa", self.bounds)

    def read(
        self, state: TopicBounds, spans: Mapping[int, tuple[int, int]], take: Callable[[int, TopicBlock], None]
    ) -> None:
        raise AssertionError((state, spans, take))


def inputs(answer: Spans, committed: Spans, since: str | None = None) -> TopicInputs:
    commit = Commit(1, "r1", "run", [], "", {}, topic=TopicSpan("t", "aa", committed))
    return TopicInputs(Answer(answer), Snapshot([commit]), since, print)


@pytest.mark.parametrize("since", [None, "2026-01-05"])
def test_an_answer_that_lacks_a_partition_is_no_topic_with_fewer(since: str | None) -> None:
    with pytest.raises(StopError, match=r"t:1 was read up to 100.*no such partition"):
        inputs({0: (0, 110)}, {0: (0, 100), 1: (0, 100)}, since)


def test_what_retention_has_taken_of_a_partition_that_was_added_is_said_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    next_run = inputs({0: (0, 12), 1: (1000, 1500)}, {0: (0, 10)})

    assert (next_run.span.partitions, next_run.expired) == ({0: (10, 12), 1: (1000, 1500)}, 1000)
    assert "the offsets 0 to 999 of t:1" in capsys.readouterr().out


def test_what_is_made_again_of_a_partition_that_was_empty_is_nothing() -> None:
    again = inputs({0: (50, 60), 1: (0, 9), 2: (4, 9)}, {0: (0, 0), 1: (0, 7)}, "2026-01-05")

    assert again.span.partitions == {0: (0, 0), 1: (0, 7), 2: (0, 0)}
    assert again.span.offsets == 7
