"""Vectors and plain Python say the same of the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.bytes import vectors
from processor.engine.jit import kernel

U = np.uint64
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
data = st.lists(st.sampled_from(list(b'ab"')), min_size=80, max_size=80).map(
    lambda each: np.array(each, np.uint8)
)
places = st.integers(0, 40)


@kernel
def compared(data: Bytes, i: Any, j: Any) -> Any:
    return vectors.same_32(data, i, j)


@kernel
def found(data: Bytes, i: Any, byte: Any) -> Any:
    return vectors.is_32(data, i, byte)


@kernel
def copied(out: Bytes, at: Any, data: Bytes, begin: Any) -> None:
    vectors.copy_16(out, at, data, begin)


@kernel
def zeros(word: Any) -> Any:
    return vectors.trailing_zeros(word)


@settings(deadline=None)
@given(data, places, places)
def test_equal_bytes_are_found_by_vectors_as_by_python(data: Bytes, i: int, j: int) -> None:
    expected = sum(1 << k for k in range(32) if data[i + k] == data[j + k])

    assert int(compared(data, U(i), U(j))) == expected == int(vectors.same_32_plain(data, i, j))


@settings(deadline=None)
@given(data, places)
def test_a_byte_is_found_by_vectors_as_by_python(data: Bytes, i: int) -> None:
    expected = sum(1 << k for k in range(32) if data[i + k] == ord('"'))

    assert int(found(data, U(i), U(ord('"')))) == expected == int(vectors.is_32_plain(data, i, ord('"')))


@settings(deadline=None)
@given(data, places, places)
def test_16_bytes_are_copied_and_no_other_is_touched(data: Bytes, at: int, begin: int) -> None:
    expected = np.zeros(80, np.uint8)
    expected[at : at + 16] = data[begin : begin + 16]
    for copy in (copied, vectors.copy_16_plain):
        out = np.zeros(80, np.uint8)
        copy(out, U(at), data, U(begin))
        assert out.tolist() == expected.tolist()


@settings(deadline=None)
@given(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit), st.just(0)))
def test_the_lowest_bit_of_a_word_is_found(word: int) -> None:
    expected = next((k for k in range(64) if word >> k & 1), 64)

    assert int(zeros(U(word))) == expected == int(vectors.trailing_zeros_plain(U(word)))
