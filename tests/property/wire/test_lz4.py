"""Do our LZ4 frames hold what went in, and does each of our two readers agree with the codec library?"""

from __future__ import annotations

import struct

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.bytes.lz4_block import inflate_frame
from processor.wire import lz4

content = st.one_of(
    st.binary(max_size=300),
    # What repeats itself, near and far, in runs longer than a token's 15.
    st.builds(
        lambda unit, times, tail: unit * times + tail,
        st.binary(max_size=9),
        st.integers(0, 400),
        st.binary(max_size=20),
    ),
)
SPARE = 64
UNTOUCHED = 0xA5


def array(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


def by_library(frame: bytes) -> bytes:
    return bytes(cramjam.lz4.decompress(frame))


def frame_of(data: bytes, *, checksum: bool = False, linked: bool = False) -> bytes:
    """Return a frame as the codec library writes it."""
    made = cramjam.lz4.Compressor(level=1, content_checksum=checksum, block_linked=linked)
    made.compress(data)
    return bytes(made.finish())


def by_kernel(frame: bytes, room: int) -> bytes | None:
    """Inflate by the kernel into ``room`` bytes behind others; None where it leaves it to the library."""
    out = np.full(SPARE + room + SPARE, UNTOUCHED, np.uint8)
    after = int(inflate_frame(array(frame), 0, len(frame), out[: SPARE + room], SPARE))
    assert (out[:SPARE] == UNTOUCHED).all()
    assert (out[SPARE + room :] == UNTOUCHED).all(), "bytes behind the space were written"
    return None if after < 0 else out[SPARE:after].tobytes()


def by_module(frame: bytes, room: int) -> bytes | None:
    """Inflate as the decoder does; None for an error."""
    out = np.full(room + SPARE, UNTOUCHED, np.uint8)
    try:
        size = lz4.inflate(array(frame), out[:room])
    except cramjam.DecompressionError:
        return None
    assert (out[room:] == UNTOUCHED).all(), "bytes behind the space were written"
    return out[:size].tobytes()


@given(content)
def test_what_we_write_every_reader_reads(data: bytes) -> None:
    frame = lz4.deflate(array(data))

    assert by_library(frame) == data
    assert by_kernel(frame, len(data)) == data
    assert by_module(frame, len(data)) == data


@pytest.mark.parametrize(
    "size", [lz4.BLOCK_BYTES - 1, lz4.BLOCK_BYTES, lz4.BLOCK_BYTES + 1, 3 * lz4.BLOCK_BYTES]
)
@pytest.mark.parametrize("random", [True, False], ids=["stored", "compressed"])
def test_blocks_end_where_they_are_full(size: int, *, random: bool) -> None:
    made = np.random.default_rng(size).integers(0, 256 if random else 3, size, np.uint8)

    frame = lz4.deflate(made)

    assert by_library(frame) == made.tobytes()
    assert by_kernel(frame, size) == made.tobytes()
    assert by_module(frame, size) == made.tobytes()


@given(content, st.booleans(), st.booleans())
def test_frames_of_others_are_read_whatever_their_kind(data: bytes, checksum: bool, linked: bool) -> None:  # noqa: FBT001 - hypothesis
    frame = frame_of(data, checksum=checksum, linked=linked)

    assert by_module(frame, len(data)) == data
    assert by_kernel(frame, len(data)) == (None if checksum or linked else data)


def test_blocks_that_need_the_one_before_are_left_to_the_library() -> None:
    data = bytes(range(256)) * 2000

    frame = frame_of(data, linked=True)

    assert by_kernel(frame, len(data)) is None
    assert by_module(frame, len(data)) == data


@given(content.filter(bool), st.data())
def test_too_little_space_is_an_error_and_nothing_is_written_behind_it(
    data: bytes, draw: st.DataObject
) -> None:
    room = draw.draw(st.integers(0, len(data) - 1))
    frame = lz4.deflate(array(data))

    assert by_kernel(frame, room) is None
    assert by_module(frame, room) is None


@given(content, st.data())
def test_a_cut_frame_is_an_error(data: bytes, draw: st.DataObject) -> None:
    frame = lz4.deflate(array(data))
    cut = frame[: draw.draw(st.integers(0, len(frame) - 1))]

    assert by_kernel(cut, len(data)) is None
    assert by_module(cut, len(data)) is None


@given(content, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_that_were_changed_are_never_read_beyond_a_bound(
    data: bytes, changes: list[tuple[int, int]]
) -> None:
    """The batch's CRC stands before this; forged bytes behind it must do no harm. The readers check bounds."""
    frame = bytearray(lz4.deflate(array(data)))
    for at, byte in changes:
        frame[at % len(frame)] = byte

    kernel = by_kernel(bytes(frame), len(data) + 20)

    if kernel is not None:
        assert len(kernel) <= len(data) + 20
    by_module(bytes(frame), len(data) + 20)


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_good_header_do_no_harm(data: bytes) -> None:
    frame = lz4.HEADER + struct.pack("<I", len(data)) + data + struct.pack("<I", 0)

    by_kernel(frame, 5000)
    by_module(frame, 5000)


def xxh32(data: bytes) -> int:
    """XXH32 of less than four bytes, seed 0 (the format's description, steps 1 and 5 to 7)."""
    primes = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    mask = 0xFFFFFFFF
    made = (primes[4] + len(data)) & mask
    for byte in data:
        made = (made + byte * primes[4]) & mask
        made = ((made << 11 | made >> 21) & mask) * primes[0] & mask
    made = (made ^ made >> 15) * primes[1] & mask
    made = (made ^ made >> 13) * primes[2] & mask
    return made ^ made >> 16


def test_the_headers_check_byte_is_the_formats() -> None:
    assert lz4.HEADER[6] == xxh32(lz4.HEADER[4:6]) >> 8 & 255
