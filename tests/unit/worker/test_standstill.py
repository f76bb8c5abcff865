"""Does a transaction that does not end show, and one after the other that do not?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.kafka.client import TopicPartition
from processor.ops.metrics import Metrics
from processor.ops.status import HANGS_S
from processor.worker.standstill import Standstill

if TYPE_CHECKING:
    import pytest

SOURCE = TopicPartition("raw", 3)


class Case:
    """A standstill with a clock to set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.metrics = Metrics()
        self.standstill = Standstill("p", self.metrics, lambda: self.now_s)

    def saw(self, now_s: float, stable: int, end: int) -> tuple[float | None, float | None]:
        """Return records and seconds after a fetch."""
        self.now_s = now_s
        self.standstill.saw(SOURCE, stable, end)
        labels = {"pipeline": "p", "partition": "3"}
        names = ("seqmark_source_open_transaction_records", "seqmark_source_open_transaction_seconds")
        records, seconds = (self.metrics.registry.get_sample_value(name, labels) for name in names)
        return records, seconds


def test_one_transaction_ages_while_the_offset_stands_still() -> None:
    case = Case()

    assert case.saw(0, 10, 10) == (0, 0)
    assert case.saw(5, 10, 12) == (2, 0)
    assert case.saw(65, 10, 900) == (890, 60)
    assert case.saw(70, 901, 901) == (0, 0)
    assert case.saw(75, 901, 902) == (1, 0)


def test_transactions_that_follow_each_other_do_not() -> None:
    case = Case()

    ages = [case.saw(60.0 * number, 10 * number, 10 * number + 5)[1] for number in range(20)]

    assert set(ages) == {0}


def test_it_is_said_now_and_then_with_where_to_read_on(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()

    for now_s in range(int(4 * HANGS_S)):
        case.saw(now_s, 10, 12)

    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith(
        "raw:3: a transaction of its producer is open at offset 10 since 300 s"
    )
