"""A key's partition is the one that Kafka's producers send it to."""

from __future__ import annotations

import numpy as np
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.rest import ANYWHERE, IdTextForm, partitions_of
from tests.property.engine.rest.test_row_ids import text_column

# Of Kafka's own test (`UtilsTest.testMurmur2`).
LISTED = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
ALL = 2**31
"""So many partitions that a partition is all of the hash."""


def test_hashes_are_those_of_kafkas_own_test() -> None:
    found = partitions_of(text_column(IdTextForm.BYTES, list(LISTED)), ALL)
    assert found.tolist() == [each & 0x7FFFFFFF for each in LISTED.values()]


@given(st.lists(st.binary(max_size=40) | st.none(), min_size=1, max_size=20), st.integers(1, 1000))
def test_partitions_are_those_of_another_client(keys: list[bytes | None], partitions: int) -> None:
    found = partitions_of(text_column(IdTextForm.BYTES, keys, b"before"), partitions)
    expected = [ANYWHERE if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert found.tolist() == expected
    assert found.dtype == np.int64
