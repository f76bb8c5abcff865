"""What metrics say of ids that collided is what is remembered, and they cost no more than the pages promise."""

from __future__ import annotations

import pytest

from tests.support.judges.id_state import NOW_MS, Came, IdPartition

TOLD_APART = {"window": 1000, "fingerprint": {"of": "bytes"}}
SET_ASIDE_BYTES = 8_400_000


def came(number: int, *values: int, at_ms: int = NOW_MS) -> list[Came]:
    return [Came(b"%d" % number, at_ms, b"%d" % value) for value in values]


def variants(partition: IdPartition) -> int | None:
    return partition.judge.take_clock_stats().variants


def test_variants_are_counted_from_an_ids_first_collision_on_and_over_a_restart() -> None:
    partition = IdPartition(**TOLD_APART)
    partition.take([*came(1, 1, 1), *came(2, 1)])
    partition.commit()
    assert variants(partition) == 0
    partition.take([*came(1, 2, 3, 3), *came(3, 1)])
    partition.commit()
    assert variants(partition) == 3
    partition.open()
    assert variants(partition) == 3


def test_what_collides_and_is_not_in_the_sink_is_no_variant() -> None:
    partition = IdPartition(**TOLD_APART, on_collision="drop")
    partition.take(came(1, 1, 2, 3))
    partition.commit()
    assert variants(partition) == 0


def test_without_a_fingerprint_there_is_nothing_to_count() -> None:
    assert variants(IdPartition(window=1000)) is None


@pytest.mark.parametrize("ids", [1, 2000])
@pytest.mark.parametrize("records", [5_000, 40_000, 70_000])
def test_a_variant_takes_at_most_320_bytes_beside_what_is_set_aside(ids: int, records: int) -> None:
    partition = IdPartition(**TOLD_APART)
    partition.commit()
    for start in range(0, records, 5_000):
        partition.take([each for number in range(start, start + 5_000) for each in came(number % ids, number)])
        partition.commit()
    collisions = partition.judge.log.index.collisions
    assert collisions is not None
    assert len(collisions) == records
    assert 120 * records <= collisions.size_bytes <= 320 * records + SET_ASIDE_BYTES
    partition.open()
    restored = partition.judge.log.index.collisions
    assert restored is not None
    assert 120 * records <= restored.size_bytes <= 320 * records
