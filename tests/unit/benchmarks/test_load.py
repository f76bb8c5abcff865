"""Is the benchmark's input what it says, and would a wrong output be noticed?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from benchmarks.load import FIRST, START_MS, Load, as_columns
from benchmarks.measure.latency import make_offer, percentile
from benchmarks.measure.truth import WrongOutputError, read_numbers
from processor.wire.codec import Codec

if TYPE_CHECKING:
    from benchmarks.peers import IdPlace

LOADS = {
    "standard": Load(records=6_000),
    "long": Load(records=2_000, note_bytes=870, codec=Codec.ZSTD),
    "plain": Load(records=3_000, codec=Codec.NONE, partitions=3),
    "single": Load(records=40, batch_bytes=0),
}


@pytest.mark.parametrize("name", LOADS)
def test_another_parser_reads_the_batches_as_the_load_says(name: str) -> None:
    load = LOADS[name]
    for partition in range(load.partitions):
        seen = []
        for batch in load.batches(partition):
            records = list(DefaultRecordBatch(batch.build(1, 0, 0, transactional=False)))
            assert len(records) == batch.count <= load.batch_records
            seen += records

        numbers = load.numbers(partition)

        assert [record.timestamp - START_MS for record in seen] == numbers.tolist()
        assert [json.loads(record.value)["seq"] - FIRST for record in seen] == numbers.tolist()
        assert [int.from_bytes(record.headers[0][1]) - FIRST for record in seen] == numbers.tolist()
        assert {record.headers[0][0] for record in seen} == {"seq"}


def test_each_number_comes_in_order_and_only_resent_ones_come_again() -> None:
    load = Load(records=40_001, duplicates=0.25)

    for partition in range(load.partitions):
        numbers = load.numbers(partition)
        new = np.diff(np.maximum.accumulate(numbers), prepend=-1) == 1

        assert numbers[new].tolist() == list(range(load.passing(partition)))
        # 10,000 draws: five standard deviations are 2 %.
        assert 0.2 < 1 - new.mean() < 0.3
    assert sum(load.share(partition) for partition in range(load.partitions)) == 40_001


def test_tails_are_runs_of_what_came_last_and_no_record_comes_a_third_time() -> None:
    load = Load(records=8_000_000, tails=(200, 2_000))

    for partition in range(load.partitions):
        numbers = load.numbers(partition)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1) < 0)
        tails = numbers[starts - 1] - numbers[starts] + 1

        assert tails.size > 20
        assert tails.min() >= 200
        assert tails.max() <= 2_000
        assert np.bincount(numbers).max() == 2
        assert np.unique(numbers).size == load.passing(partition)
        # Some 90 tails: their mean, and that of the gaps, is known to a tenth.
        assert 0.035 < 1 - load.passing(partition) / numbers.size < 0.07


def test_a_resend_may_be_of_the_last_minutes() -> None:
    load = Load(records=40_000, duplicates=0.25, within_ms=5_000, step_ms=10)

    numbers = load.numbers(1)
    back = np.maximum.accumulate(numbers) - numbers

    assert back.max() < 500
    assert back.max() > 400


def test_a_key_belongs_to_one_partition_and_there_are_as_many_as_asked_for() -> None:
    load = Load(records=4_000, keys=40, partitions=4)
    keys = [
        {bytes(row) for row in load.bodies(partition, load.numbers(partition))[:, load.form.fields["key"]]}
        for partition in range(4)
    ]

    assert [len(each) for each in keys] == [10] * 4
    assert len(set().union(*keys)) == 40


@pytest.mark.parametrize("ids", [None, "text", "binary", "json"])
def test_no_record_at_all_gives_no_number(ids: IdPlace | None) -> None:
    load, nothing = Load(ids=ids), np.zeros(0, np.int64)

    assert read_numbers(as_columns(load.bodies(2, nothing), nothing), load, 2).size == 0


def test_a_record_of_another_partition_or_time_is_noticed() -> None:
    load, numbers = Load(), np.arange(10)
    columns = as_columns(load.bodies(0, numbers), START_MS + numbers)

    with pytest.raises(WrongOutputError, match="not as they were"):
        read_numbers(columns, load, 1)
    columns.timestamp[3] += 1
    with pytest.raises(WrongOutputError, match="timestamp"):
        read_numbers(columns, load, 0)


def test_an_offer_has_the_rate_in_each_tick_and_knows_what_passes() -> None:
    load = Load(records=10_000, partitions=4)

    offer = make_offer(load, 20_000, 1.0)

    assert {batch.count for tick in offer.ticks for batch in tick} == {50}
    assert {len(tick) for tick in offer.ticks} == {4}
    assert len(offer.ticks) == 10_000 // 200
    assert offer.passing == sum(load.passing(partition) for partition in range(4))


def test_percentiles_count_records_not_batches() -> None:
    found = np.zeros(501, np.int64)
    found[[10, 20, 500]] = 980, 10, 10

    assert percentile(found, 0.5) == 10
    assert percentile(found, 0.99) == 20
    assert percentile(found, 1.0) == 500
    with pytest.raises(ValueError, match="no record"):
        percentile(np.zeros(4, np.int64), 0.5)
