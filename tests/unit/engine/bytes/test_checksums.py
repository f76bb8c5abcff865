"""What kernels compute over bytes is what everybody else computes."""

from __future__ import annotations

import google_crc32c
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.bytes.crc32c import crc32c, crc_word_by_tables
from processor.engine.bytes.siphash import siphash


@settings(deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=20))
def test_the_kernels_checksum_is_crc_32c(data: bytes, before: bytes) -> None:
    array = np.frombuffer(data + b"\0", np.uint8).copy()
    start = np.uint64(google_crc32c.value(before))
    assert int(crc32c(array, 0, len(data), start)) == google_crc32c.value(before + data)


@settings(deadline=None)
@given(st.binary(min_size=8, max_size=8))
def test_a_machine_without_an_instruction_for_it_has_the_same_checksum(data: bytes) -> None:
    word = np.frombuffer(data, "<u8")[0]
    inverted = np.uint64(0xFFFFFFFF)
    after = crc_word_by_tables(inverted, word)  # type: ignore[no-untyped-call]
    assert int(after ^ inverted) == google_crc32c.value(data)


def test_the_kernels_hash_is_siphash_1_3_of_all_bytes() -> None:
    data = np.arange(64, dtype=np.uint8)
    key = np.frombuffer(bytes(range(16)), np.uint64)
    # By a second implementation, in Python's own integers, for lengths 0, 7, 8 and 63. The first is also the
    # first of the vectors that Rust's tests carry.
    expected = [0xABAC0158050FC4DC, 0xD3927D989BB11140, 0x369095118D299A8E, 0x9D199062B7BBB3A8]
    assert [int(siphash(data, 0, size, key)) for size in (0, 7, 8, 63)] == expected
