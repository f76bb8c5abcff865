"""What verdicts skip is not read, wherever it stands in what a fetch has brought."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.kafka.plain.topic_log import TopicLog
from processor.kafka.plain.verdict_log import VerdictLog, VerdictSpan
from schemas.verdicts.record import SourceSums, VerdictRecord, xored
from tests.support.kafka.log import LogClient
from tests.support.wire.batches import HEADER, NONE, Record, by_hand, run

if TYPE_CHECKING:
    from collections.abc import Sequence

CRC = 4
SOURCE = [by_hand(run(start, start + 3), NONE) for start in range(0, 15, 3)]


def topic(name: str, batches: Sequence[bytes]) -> TopicLog:
    client: Any = LogClient(batches)
    return TopicLog(client, name)


def test_a_record_that_is_skipped_is_not_read_wherever_a_fetch_ends() -> None:
    times = np.array([each.timestamp for each in run(0, 15)], np.int64)
    crcs = np.array([HEADER.unpack_from(batch)[CRC] for batch in SOURCE], np.int64)
    sums = SourceSums().more(15, xored(times), crcs)
    for skipped in range(15):
        said = VerdictRecord(0, 0, 15, sums, begins=True, skipped=np.array([skipped]))
        verdicts = [by_hand([Record(0, 0, None, said.encode())], NONE)]
        log = VerdictLog(topic("raw", SOURCE), topic("verdicts", verdicts))
        taken = [columns.offset.tolist() for columns in log.read(VerdictSpan(0, 0, 15, 0, 1, fresh=True))]
        assert len(taken) > 1
        assert list(chain.from_iterable(taken)) == [offset for offset in range(15) if offset != skipped]
