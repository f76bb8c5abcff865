"""Where many records cannot be judged one line says so, with cause, example and what to do, once a minute."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.pipeline.failures import AGAIN_S, ALL_OF, WINDOW, WINDOW_S, Failures
from tests.support.wire.batches import by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import CONFIG, QUARANTINE, Slot, came, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.ops.metrics import Metrics

VALUE = "hidden-4711"


class Stream:
    """A pipeline of which some records are bad, by a clock that stands still.

    Args:
        lines: Returns what was logged since the last time.
    """

    def __init__(self, lines: Callable[[], list[str]], *, observe: bool = False) -> None:
        self.lines = lines
        self.now = 1_000.0
        self.slot = Slot()
        self.failures = Failures(
            CONFIG.model_copy(update={"quarantine": QUARANTINE, "observe": observe}),
            self.slot.metrics,
            lambda: self.now,
        )
        self.slot.pipeline.failures = self.failures
        self._next = 0

    @property
    def metrics(self) -> Metrics:
        return self.slot.metrics

    def comes(self, good: int, bad: int = 0, how: object = VALUE) -> list[str]:
        """Take records in, a thousand at a time; return what is said."""
        kinds = [
            index * bad // (good + bad) != (index + 1) * bad // (good + bad) for index in range(good + bad)
        ]
        for start in range(0, len(kinds), 1_000):
            some = [
                how if kind else self._next + start + k for k, kind in enumerate(kinds[start : start + 1_000])
            ]
            asyncio.run(self.slot.pipeline.take(came(*some, start=self._next + start)))
        self._next += len(kinds)
        return self.lines()

    def passes(self, seconds: float) -> list[str]:
        """Let time pass, in which the worker looks each second."""
        for _ in range(int(seconds)):
            self.now += 1
            self.failures.look()
        return self.lines()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    def since() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        caplog.clear()
        return found

    return since


def test_half_of_a_window_is_said_with_cause_example_and_what_to_do(lines: Callable[[], list[str]]) -> None:
    stream = Stream(lines)
    assert stream.comes(WINDOW) == []
    (line,) = stream.comes(WINDOW // 2, WINDOW // 2)
    assert line == (
        "pipeline clicks: 5,000 of the last 10,000 records (50 %) are quarantined (header_malformed), such as "
        f"source:0:{WINDOW + 1}: header seq has 11 bytes; decimal digits are wanted. They are in {QUARANTINE}, "
        "each with what is wrong with it. Mend the producer, or set dedup of the pipeline right"
    )
    assert stream.metrics.notes["clicks"] == "50 % quarantined: see the log"
    assert stream.comes(WINDOW) == []
    assert stream.metrics.notes["clicks"] == ""


@pytest.mark.parametrize(("bad", "said"), [(500, 0), (501, 1)])
def test_above_a_twentieth_it_is_said(lines: Callable[[], list[str]], bad: int, said: int) -> None:
    stream = Stream(lines)
    assert len(stream.comes(WINDOW - bad, bad)) == said


def test_of_one_cause_there_is_a_line_a_minute_and_of_another_its_own(lines: Callable[[], list[str]]) -> None:
    stream = Stream(lines)
    assert len(stream.comes(WINDOW // 2, WINDOW // 2)) == 1
    for _ in range(5):
        assert stream.comes(WINDOW // 2, WINDOW // 2) == []
    (line,) = stream.comes(WINDOW // 2, WINDOW // 2, None)
    assert "(header_missing), such as source:0:60001: header seq is missing" in line
    stream.now += AGAIN_S
    (line,) = stream.comes(WINDOW // 2, WINDOW // 2)
    assert "(header_malformed), such as source:0:70001: " in line


def test_a_slow_stream_is_judged_by_its_minute(lines: Callable[[], list[str]]) -> None:
    stream = Stream(lines)
    stream.comes(8, 2)
    assert stream.passes(WINDOW_S - 2) == []
    (line,) = stream.passes(3)
    assert line.startswith(
        "pipeline clicks: 2 of the first 10 records (20 %) are quarantined (header_malformed)"
    )
    stream.comes(19, 1)
    assert stream.passes(2 * WINDOW_S) == []


@pytest.mark.parametrize("how", ["thousand", "quiet", "end"])
def test_first_records_that_all_fail_are_said_soon_with_how_to_judge_them_again(
    lines: Callable[[], list[str]], how: str
) -> None:
    stream = Stream(lines)
    said = stream.comes(0, ALL_OF if how == "thousand" else 3, None)
    said += stream.passes(4) if how == "quiet" else []
    if how == "end":
        stream.failures.end()
        said = lines()
    (line,) = said
    count = f"{ALL_OF:,}" if how == "thousand" else 3
    assert line.startswith(
        f"pipeline clicks: all of the first {count} records are quarantined (header_missing), such as "
        "source:0:0: header seq is missing; decimal digits are wanted; it has no headers. Nothing of them is "
    )
    assert line.endswith("have them judged again: seqmark reset -c FILE --pipeline clicks --to-earliest")
    assert stream.metrics.notes["clicks"] == "all quarantined: see the log"


def test_what_observes_says_that_it_passes_and_no_value_is_ever_said(lines: Callable[[], list[str]]) -> None:
    stream = Stream(lines, observe=True)
    (line,) = stream.comes(WINDOW // 2, WINDOW // 2)
    assert "are such as would go to quarantine (header_malformed)" in line
    assert "They pass, as the pipeline observes." in line
    assert VALUE not in line
    assert stream.metrics.notes["clicks"].endswith("; 50 % would be quarantined: see the log")


# ---------------------------------------------------------------- what is dropped and new


class Counted(Stream):
    """A stream whose records have values of their own, compared where they are dropped."""

    def __init__(self, lines: Callable[[], list[str]], *, observe: bool = False) -> None:
        super().__init__(lines, observe=observe)
        self.slot.pipeline.partitions[0].judge.compare_drops(self.failures.passed, 0)

    def sends(self, *sequences: int, lap: int = 0) -> list[str]:
        """Take records in and commit; a second passes."""
        values = [b'{"n": %d, "lap": %d}' % (each, lap) for each in sequences]
        some = [
            record(self._next + n, each, value)
            for n, (each, value) in enumerate(zip(sequences, values, strict=True))
        ]
        self.slot.take(chunk(by_hand(some), position=self._next))
        self.slot.commit()
        self._next += len(some)
        return self.passes(1)

    def compared(self) -> tuple[float | None, ...]:
        """Return how many were looked at, and how many of them are new."""
        names = "seqmark_dropped_looked_at_total", "seqmark_dropped_unseen_total"
        return tuple(self.metrics.registry.get_sample_value(each, {"pipeline": "clicks"}) for each in names)


def test_new_records_that_are_dropped_are_said_with_two_positions_and_what_to_do(
    lines: Callable[[], list[str]],
) -> None:
    stream = Counted(lines)
    assert stream.sends(*range(1_000)) == []
    assert stream.sends(*range(900, 1_000)) == []
    (line,) = stream.sends(*range(20), lap=1)
    assert line == (
        "pipeline clicks: of 120 dropped records looked at, 20 have a content that never passed, such as "
        "source:0:1100 and source:0:1101. Unless they are copies that the producer has changed they are lost: "
        "their sequence goes back or begins again, or several producers count in one scope. Set dedup.scope, "
        "dedup.epoch or sequence.wraps, or judge by ids (mode insert-id): see 'New records that are dropped' "
        "in docs/guarantees.md"
    )
    assert stream.compared() == (120, 20)
    assert stream.metrics.notes["clicks"] == "17 % of what is dropped is new: see the log"
    assert stream.sends(*range(20, 40), lap=1) == []
    (line,) = stream.passes(AGAIN_S)
    assert "of 20 dropped records looked at, 20 have" in line


def test_copies_are_compared_and_a_hundredth_that_is_new_is_no_reason(lines: Callable[[], list[str]]) -> None:
    stream = Counted(lines)
    stream.sends(*range(2_000))
    assert stream.sends(*range(990)) == []
    assert stream.sends(*range(10), lap=1) == []
    assert stream.compared() == (1_000, 10)
    stream.sends(*range(990))
    assert len(stream.sends(*range(11), lap=1)) == 1


def test_what_would_be_lost_is_said_where_the_pipeline_observes_and_at_the_end(
    lines: Callable[[], list[str]],
) -> None:
    stream = Counted(lines, observe=True)
    stream.sends(*range(100))
    assert "they would be lost (they pass, as the pipeline observes): " in stream.sends(1, 2, lap=1)[0]
    stream.sends(3, lap=1)
    stream.failures.end()
    assert [line.split(",")[0] for line in lines()] == ["pipeline clicks: of 1 dropped records looked at"]


def test_what_is_dropped_in_a_transaction_that_fails_is_counted_when_it_is_judged_again(
    lines: Callable[[], list[str]],
) -> None:
    stream = Counted(lines)
    stream.sends(*range(100))
    stream.slot.take(chunk(by_hand([record(100, 1, b"other")]), position=100))
    assert stream.compared() == (0, 0)
    stream.slot.commit()
    assert stream.compared() == (1, 1)
