"""Scopes of a simulation stay within their bound: long reorder windows go, the configured one stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from processor.inspection.simulate.forecast import JudgingWay
from processor.inspection.simulate.judging import SequenceWay
from processor.inspection.simulate.show import sentences
from processor.wire.encode import plain_batch
from schemas.config.dedup import WatermarkDedup
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns

DEDUP = TypeAdapter(WatermarkDedup).validate_python(
    {"mode": "watermark", "scope": "key", "sequence": {"from": "header", "name": "seq"}, "reorder_window": 64}
)


def records(first: int, count: int) -> Columns:
    """Return a record of each of some scopes, and each once more."""
    each = [(b"user %d" % n, b"", 0, ((b"seq", n.to_bytes(8, "big")),)) for n in range(first, first + count)]
    columns, _ = columns_of(plain_batch([*each, *each]))
    return columns


def test_long_reorder_windows_are_left_out_and_the_configured_one_judges_all_records() -> None:
    way = SequenceWay(JudgingWay("configured", DEDUP, ""), most_bytes=600_000)
    for part in range(20):
        way.take(0, records(200 * part, 200))
        assert way.size_bytes <= 600_000

    found = way.forecast()

    assert [row.reorder_window for row in found.rows][-1] == 64
    assert {1_024, 16_384} <= set(found.left_out)
    assert (found.configured.passed, found.configured.duplicates, found.stopped) == (4_000, 4_000, False)
    assert any("1,024, 16,384" in each for each in sentences(found))


def test_where_the_configured_one_takes_too_much_judging_ends_and_is_said_to() -> None:
    way = SequenceWay(JudgingWay("configured", DEDUP, ""), most_bytes=50_000)
    for part in range(20):
        way.take(0, records(200 * part, 200))

    found = way.forecast()

    assert found.stopped
    assert [row.reorder_window for row in found.rows] == [64]
    assert found.configured.passed == found.judged.records / 2 < 4_000
    assert any("only the records up to there" in each for each in sentences(found))
