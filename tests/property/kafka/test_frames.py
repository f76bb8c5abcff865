"""However a socket cuts what a broker sends, each answer is handed on whole, once, in order."""

from __future__ import annotations

import asyncio
import struct
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.kafka.protocol.frames import Answer, Frames

STAGING_BYTES = 40
EDGES = [
    0,
    1,
    3,
    4,
    5,
    STAGING_BYTES - 5,
    STAGING_BYTES - 4,
    STAGING_BYTES - 3,
    STAGING_BYTES,
    3 * STAGING_BYTES,
]
SIZES = st.lists(st.sampled_from(EDGES) | st.integers(0, 300), max_size=12)
CUTS = st.lists(st.integers(1, 6) | st.integers(1, 400), min_size=1, max_size=8)


class Taker:
    """Keeps what it is given, as it is; fails at one of them where asked."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.given: list[bytes | memoryview] = []
        self._fails_at = fails_at

    def take(self, answer: bytes | memoryview) -> None:
        if len(self.given) == self._fails_at:
            raise ValueError("not an answer")
        self.given.append(answer)


def fed(stream: bytes, cuts: list[int], taker: Taker) -> BaseException | None:
    """Have a socket write ``stream`` in pieces of these sizes, in turns; return why nothing more is taken."""

    async def story() -> BaseException | None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        frames = Frames(asyncio.Protocol(), weakref.WeakMethod(taker.take), ended, STAGING_BYTES)
        at = turn = 0
        while at < len(stream):
            buffer = frames.get_buffer(-1)
            assert len(buffer), "a transport takes that for an error"
            some = stream[at : at + min(len(buffer), cuts[turn % len(cuts)])]
            buffer[: len(some)] = some
            frames.buffer_updated(len(some))
            at, turn = at + len(some), turn + 1
        return ended.exception() if ended.done() else None

    return asyncio.run(story())


def framed(size: int, number: int) -> bytes:
    """An answer with its size, whose bytes no other one has in their places."""
    return struct.pack(">i", size) + (bytes(range(number, 251)) * (size // (251 - number) + 1))[:size]


@given(SIZES, CUTS)
def test_answers_come_whole_and_in_order_however_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    taker = Taker()
    sent = [framed(size, number) for number, size in enumerate(sizes)]
    assert fed(b"".join(sent), cuts, taker) is None
    # Looked at when all have come: nothing has written into one that was handed on.
    assert [bytes(each) for each in taker.given] == [each[4:] for each in sent]


@given(SIZES, CUTS, st.data())
def test_a_negative_size_ends_it_behind_what_came_before(
    sizes: list[int], cuts: list[int], data: st.DataObject
) -> None:
    taker = Taker()
    sent = [framed(size, number) for number, size in enumerate(sizes)]
    wrong = struct.pack(">i", data.draw(st.integers(-(2**31), -1)))
    assert isinstance(fed(b"".join([*sent, wrong, *sent]), cuts, taker), ConnectionError)
    assert [bytes(each) for each in taker.given] == [each[4:] for each in sent]


@given(SIZES.filter(bool), CUTS, st.data())
def test_nothing_is_taken_behind_an_answer_that_cannot_be_read(
    sizes: list[int], cuts: list[int], data: st.DataObject
) -> None:
    fails_at = data.draw(st.integers(0, len(sizes) - 1))
    taker = Taker(fails_at)
    sent = [framed(size, number) for number, size in enumerate(sizes)]
    assert isinstance(fed(b"".join(sent), cuts, taker), ValueError)
    assert [bytes(each) for each in taker.given] == [each[4:] for each in sent[:fails_at]]


@given(st.binary(max_size=60), st.lists(st.integers(0, 30), max_size=6))
def test_an_answer_is_read_as_a_file_is(data: bytes, sizes: list[int]) -> None:
    answer, at = Answer(memoryview(data)), 0
    for turn, size in enumerate(sizes):
        found = answer.view(size) if turn % 2 else answer.read(size)
        assert bytes(found) == data[at : at + size]
        at += size


def test_a_large_answer_cannot_be_written_to() -> None:
    taker = Taker()
    assert fed(framed(2 * STAGING_BYTES, 0), [1_000_000], taker) is None
    (answer,) = taker.given
    assert isinstance(answer, memoryview)
    with pytest.raises(TypeError):
        answer[0] = 1
