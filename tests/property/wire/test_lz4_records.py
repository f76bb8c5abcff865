"""Does what the kernel makes of records inflate to them, whatever they are, and who makes which block?"""

from __future__ import annotations

import json
from typing import Any

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.bytes import vectors
from processor.engine.bytes.lz4_block import inflate_frame
from processor.engine.bytes.lz4_records import block_bound, deflate_block
from processor.engine.bytes.varints import as_varint, sized
from processor.engine.jit import COMPILES
from processor.wire import encode, lz4
from processor.wire.codec import Codec
from processor.wire.encode import FEWEST_RECORDS, Deflater, Encoders
from tests.support.suite.examples import examples
from tests.support.wire.batches import DECODER, LZ4, by_aiokafka, chunk, simple

UNTOUCHED = 0xA5
SEEDS = st.integers(0, 2**32 - 1)
needs_kernels = pytest.mark.skipif(not COMPILES, reason="without compiled kernels the library makes all blocks")

contents = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=5), st.integers(0, 200)),
    # Of one form, in numbers and texts of any width.
    st.builds(
        lambda *members: json.dumps(dict(zip("abcde", members, strict=True))).encode(),
        st.integers(0, 10**12),
        st.text(max_size=30),
        st.sampled_from(["red", "green", "ultramarine"]),
        st.floats(0, 1e6),
        st.uuids().map(str),
    ),
)


def record(content: bytes) -> bytes:
    body = b"\0\0\0" + sized(None) + sized(content) + as_varint(0)
    return as_varint(len(body)) + body


def with_slack(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes, and behind them others that nothing may depend on."""
    return np.frombuffer(data + bytes([UNTOUCHED]) * vectors.SLACK, np.uint8).copy()


def block_of(data: bytes, begin: int = 0, record_at: int = 0) -> bytes:
    """Compress all from ``begin`` on into one block by the kernel, and look at what is around it."""
    before = 32
    out = np.full(before + block_bound(len(data) - begin) + 64, UNTOUCHED, np.uint8)
    end, _ = deflate_block(with_slack(data), begin, len(data), record_at, out, before)
    assert (out[:before] == UNTOUCHED).all()
    assert (out[before + block_bound(len(data) - begin) :] == UNTOUCHED).all(), (
        "bytes behind the bound were written"
    )
    return out[before : int(end)].tobytes()


def inflated(block: bytes, size: int) -> bytes:
    out = np.zeros(size, np.uint8)
    made = cramjam.lz4.decompress_block_into(block, out, output_len=size) if size else 0
    return out[:made].tobytes()


@given(st.lists(contents, min_size=1, max_size=40))
def test_a_block_of_records_inflates_to_them(some: list[bytes]) -> None:
    data = b"".join(map(record, some))

    assert inflated(block_of(data), len(data)) == data


@given(st.lists(contents, min_size=1, max_size=12), st.data())
def test_records_cut_changed_and_begun_anywhere_inflate_to_what_they_were(
    some: list[bytes], draw: st.DataObject
) -> None:
    """The lengths are a hint of where to look: bytes that are no records must come out as they went in."""
    data = bytearray(b"".join(map(record, some)))
    for _ in range(draw.draw(st.integers(0, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    begin = draw.draw(st.integers(0, len(data) - 1))
    first = draw.draw(st.integers(begin, len(data)))

    block = block_of(bytes(data), begin, first)

    assert inflated(block, len(data) - begin) == bytes(data[begin:])


@given(SEEDS, st.integers(1, 3_000), st.integers(1, 30))
@examples(50 if COMPILES else 5)
def test_long_records_that_repeat_each_other_in_parts(seed: int, size: int, count: int) -> None:
    """Runs longer than a window and than a length's byte, and distances beyond what a block can say."""
    rng = np.random.default_rng(seed)
    size *= 1 if not COMPILES else int(rng.choice([1, 30]))
    first = rng.integers(0, 256, size, np.uint8)
    some = []
    for _ in range(count if size < 5_000 else 3):
        other = first.copy()
        at = rng.integers(0, size, 3)
        other[at] = rng.integers(0, 256, 3)
        some.append(other[: int(rng.integers(1, size + 1))].tobytes())
    data = b"".join(map(record, some))

    assert inflated(block_of(data), len(data)) == data


def clicks(count: int, *, note: int = 0) -> list[bytes]:
    rng = np.random.default_rng(count)
    return [
        json.dumps(
            {
                "seq": 1_000_000 + n,
                "event": f"{rng.integers(2**62):016x}",
                "user": int(rng.integers(10 ** rng.integers(4, 7))),
                "campaign": f"spring-{rng.integers(4)}0",
                "agent": f"mobile/{rng.integers(2**40):010x} (android)",
                # Nothing of it stands in the record before, and all of it in one of the last fifty.
                "note": f"{n % 50:02d}" * note,
            }
        ).encode()
        for n in range(count)
    ]


def frame_of(deflater: Deflater, some: list[bytes], codec: Codec = Codec.LZ4) -> tuple[bytes, bytes]:
    """Return records as a batch holds them, and compressed."""
    data = b"".join(map(record, some))
    return data, deflater.deflate(codec, with_slack(data), len(data), len(some))


@needs_kernels
@pytest.mark.parametrize("count", [FEWEST_RECORDS, 1_000, 6_000])
def test_records_of_one_form_are_compressed_by_the_kernel_and_every_reader_reads_them(count: int) -> None:
    deflater = Deflater()

    for some in (clicks(count), clicks(count + 1)):
        data, frame = frame_of(deflater, some)

        assert deflater.by_kernel
        assert bytes(cramjam.lz4.decompress(frame)) == data
        out = np.zeros(len(data), np.uint8)
        assert lz4.inflate(np.frombuffer(frame, np.uint8), out) == len(data)
        assert out.tobytes() == data
        assert int(inflate_frame(np.frombuffer(frame, np.uint8), 0, len(frame), out, 0)) == len(data)
        assert len(frame) <= 1.2 * len(lz4.deflate(np.frombuffer(data, np.uint8)))


@needs_kernels
def test_what_the_kernel_makes_much_larger_is_left_to_the_library() -> None:
    deflater = Deflater()
    library = Deflater()

    for _ in range(3):
        data, frame = frame_of(deflater, clicks(900, note=40))

        assert not deflater.by_kernel
        assert frame == lz4.deflate(np.frombuffer(data, np.uint8))
    assert not library.by_kernel, "nothing is known of a topic of which nothing has been seen"


@needs_kernels
def test_a_topic_whose_records_change_is_found_out_within_64_batches() -> None:
    deflater = Deflater()
    frame_of(deflater, clicks(200))
    chosen = [deflater.by_kernel]

    for note in (40, 0):
        for _ in range(encode.EVERY):
            data, frame = frame_of(deflater, clicks(200, note=note))
            assert bytes(cramjam.lz4.decompress(frame)) == data
        chosen.append(deflater.by_kernel)

    assert chosen == [True, False, True]


@needs_kernels
def test_topics_that_are_written_in_turns_do_not_choose_for_each_other() -> None:
    encoders = Encoders()

    def left_to_the_library(topic: str, note: int) -> bool:
        records = [simple(at, value) for at, value in enumerate(clicks(200, note=note))]
        (piece,) = DECODER.pieces(chunk(by_aiokafka(records, LZ4)))
        (batch,) = encoders.of(topic).encode(piece, np.arange(200, dtype=np.uint8) == 0, 1_000_000)
        data = bytes(cramjam.lz4.decompress(bytes(batch.payload)))
        return bytes(batch.payload) == lz4.deflate(np.frombuffer(data, np.uint8))

    for _ in range(3):
        assert not left_to_the_library("clicks", note=0)
        assert left_to_the_library("notes", note=40)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_few_records_are_compressed_by_the_library_whatever_the_codec(codec: Codec) -> None:
    """A record that fits a topic alone by its producer's library must fit it here."""
    deflater = Deflater()
    if COMPILES:
        frame_of(deflater, clicks(200))
        assert deflater.by_kernel

    data, frame = frame_of(deflater, clicks(FEWEST_RECORDS - 1), codec)

    if codec == Codec.LZ4:
        assert frame == lz4.deflate(np.frombuffer(data, np.uint8))
    if codec == Codec.NONE:
        assert frame == data
    assert len(frame) <= len(data) + MAX_OVERHEAD_BYTES


@needs_kernels
def test_blocks_that_nothing_compresses_are_stored() -> None:
    rng = np.random.default_rng(1)
    some = [rng.integers(0, 256, 3_000, np.uint8).tobytes() for _ in range(200)]

    data, frame = frame_of(Deflater(), some)

    assert bytes(cramjam.lz4.decompress(frame)) == data
    assert len(frame) == len(data) + len(lz4.HEADER) + 3 * 4 + len(lz4.END)
