"""Ways that took fewer records than the configured one are compared with it over the records that both took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from processor.inspection.simulate.forecast import JudgingWay, Simulation
from processor.inspection.simulate.judging import IdWay, SequenceWay
from processor.inspection.simulate.recommend import Recommendation, recommend
from processor.inspection.simulate.ways import WayTaker
from processor.wire.encode import plain_batch
from schemas.config.dedup import InsertIdDedup, WatermarkDedup
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns

PIECE, SHARED = 100, 250
"""Records of a fetch, and how many of all the ways beside the configured one take: not whole fetches."""
COUNTED = [n // 7 * 7 + n % 7 + 700_000 * (6 - n % 7) for n in range(1_000)]
"""Each of seven users counts for itself: in the partition's scope most records are late."""
WINDOWS = [3_600_000, 7 * 86_400_000]


def columns(sequences: Sequence[int | None], values: Sequence[bytes] = ()) -> Columns:
    headers = [((b"seq", each.to_bytes(8, "big")),) if each is not None else () for each in sequences]
    rows = [
        (b"user %d" % ((each or 0) % 7), values[n] if values else b"", 0, headers[n])
        for n, each in enumerate(sequences)
    ]
    return columns_of(plain_batch(rows))[0]


def taken(ways: list[Any], sequences: Sequence[int | None]) -> Recommendation:
    taker = WayTaker([], [], (1, 1), 0)
    taker.judging = ways
    taker.begin(0, SHARED)
    for at in range(0, len(sequences), PIECE):
        taker.take(columns(sequences[at : at + PIECE]))
    return recommend(Simulation("p", "raw", 1, forecasts=[way.forecast() for way in ways]), 100)


def by_sequence(scope: str, **options: Any) -> SequenceWay:
    table = {"mode": "watermark", "scope": scope, "sequence": {"from": "header", "name": "seq"}}
    name = "configured" if scope == "partition" else "compared"
    return SequenceWay(JudgingWay(name, TypeAdapter(WatermarkDedup).validate_python(table), ""), **options)


def by_id(name: str, header: dict[str, str]) -> IdWay:
    table = {"mode": "insert-id", "id": [header], "window": "1h"}
    return IdWay(JudgingWay(name, TypeAdapter(InsertIdDedup).validate_python(table), "it is there"), WINDOWS, 0)


def test_a_scope_that_drops_the_same_is_not_recommended_because_copies_come_late() -> None:
    rising = list(range(1_000))
    sent_twice = [each for pair in zip(range(1_000, 2_000), range(1_000, 2_000), strict=True) for each in pair]

    found = taken([by_sequence("partition"), by_sequence("key")], [*rising, *sent_twice])

    assert found.dedup.get("scope", "partition") == "partition", found.reasons


def test_a_scope_that_loses_fewer_of_the_same_records_is_recommended_and_says_of_how_many() -> None:
    found = taken([by_sequence("partition"), by_sequence("key")], [*COUNTED, *range(10_000_000, 10_001_000)])

    assert found.dedup["scope"] == "key"
    assert "% of the first 250 records pass that scope partition drops" in found.reasons[0]


def test_a_scope_that_was_too_large_to_be_judged_to_the_end_is_not_compared() -> None:
    found = taken([by_sequence("partition"), by_sequence("key", most_bytes=1)], COUNTED)

    assert found.dedup.get("scope", "partition") == "partition"


@pytest.mark.parametrize(("first", "proposed"), [(SHARED, False), (0, True)])
def test_faults_are_compared_over_the_same_records(first: int, *, proposed: bool) -> None:
    sequences = [*range(first), *[None] * 300, *range(1_000, 1_300)]
    ways = [by_id("configured", {"from": "header", "name": "seq"}), by_id("proposed", {"from": "key"})]

    found = taken(ways, sequences)

    assert (found.dedup["id"] == [{"from": "key"}]) is proposed
    if proposed:
        assert found.reasons[0].startswith("100.0 % of the first 250 records cannot be judged as configured")


def test_new_are_dropped_records_whose_content_never_passed_whatever_their_numbers() -> None:
    way = by_sequence("partition")
    for partition in range(2):
        lap, copies = list(range(1_000)), [900, *range(500, 600)]
        way.take(partition, columns(lap, [b'{"n": %d}' % n for n in lap]))
        way.take(partition, columns(copies, [b'{ "n":%d }' % n for n in copies]))
        way.take(partition, columns(lap[:300], [b"second %d" % n for n in lap[:300]]))

    found = way.forecast()

    assert [(row.passed, row.duplicates + row.late, row.new, row.share) for row in found.rows] == [
        (2_000, 802, 600, 1.0)
    ] * len(found.rows)
    assert (
        "600 of those have a content that never passed"
        in recommend(Simulation("p", "raw", 2, forecasts=[found]), 100).reasons[-1]
    )


def test_of_many_numbers_a_share_says_about_how_many_are_new() -> None:
    way = by_sequence("partition")
    for start in range(0, 60_000, 10_000):
        some = list(range(start, start + 10_000))
        way.take(0, columns(some, [b"%d" % n for n in some]))
    for start in range(0, 20_000, 10_000):
        some = list(range(start, start + 10_000))
        way.take(0, columns(some, [b"%d" % (n if n % 4 else -n - 1) for n in some]))

    found = way.forecast().configured

    assert found.duplicates + found.late == 20_000
    assert found.share == 0.25
    assert found.new == pytest.approx(5_000, rel=0.15)
