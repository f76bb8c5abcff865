"""Records of a topic that were put aside come back as they are, whatever their producers wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.rest import Fault
from spark_sink.batch.plan import RunPlan, Split
from spark_sink.batch.rows.times import MOST_US, NO_TIME
from spark_sink.batch.topic.source import TopicBlock
from spark_sink.batch.topic.staged import RecordBlock, TopicFile, read_values

if TYPE_CHECKING:
    from pathlib import Path

LAST_MS = MOST_US // 1000
LEAST = -(2**63)


def staged(folder: Path, *timestamps: int, values: list[bytes | None] | None = None) -> RecordBlock:
    """Return records with these timestamps, written and read."""
    keys: list[bytes | None] = [None] * len(timestamps)
    values = values or [b'{"id":"a"}'] * len(timestamps)
    block = TopicBlock(np.arange(7, 7 + len(values)), np.array(timestamps), keys, values)
    with TopicFile(folder / "t-0") as file:
        file.take(block)
    plan = RunPlan._make(None for _ in RunPlan._fields)._replace(files=[str(folder / "t-0")], format="kafka")
    (found,) = read_values(plan, Split(0, 0, groups=1))
    assert isinstance(found, RecordBlock)
    return found


def test_a_timestamp_that_is_no_date_is_out_of_range_and_the_others_of_its_block_are_read(
    tmp_path: Path,
) -> None:
    micros, nanos = 1_700_000_000_000_000, 1_700_000_000_000_000_000
    found = staged(tmp_path, 5, micros, nanos, -1, LEAST, 2**63 - 1, LAST_MS, LAST_MS + 1)
    times, fault = found.times()

    far, none = Fault.OUT_OF_RANGE, Fault.FIELD_MISSING
    assert fault.tolist() == [0, far, far, none, none, far, 0, far]
    assert times.tolist() == [5000, *[NO_TIME] * 5, LAST_MS * 1000, NO_TIME]
    assert found.rows.tolist() == list(range(7, 15))
    assert found.beside.column("kafka_timestamp").null_count == 6


def test_of_json_behind_five_bytes_the_json_is_kept_and_what_is_none_is_kept_whole(tmp_path: Path) -> None:
    values = [b'\0\0\0\0\x0c {"id":"a"}', b"\0\0\0\0\x0cavro", b"\0{}", None, b'{"id":"b"}']
    found = staged(tmp_path, *range(5), values=values)
    assert [found.line(at) for at in range(5)] == [b' {"id":"a"}', *values[1:3], b"", values[4]]
    assert found.missing.tolist() == [False, False, False, True, False]
