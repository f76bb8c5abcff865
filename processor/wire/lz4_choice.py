"""Chooses, topic by topic and as it goes, who makes the blocks of an LZ4 frame: the library or the kernel.

The kernel (`processor.engine.bytes.lz4_records`) takes a third of the library's time where records are of one
form, and hardly compresses long ones whose texts differ. Of every 64th batch the first block is made by both.
Until the next, the kernel is used if what it made was at most 1.15 times as large.

Invariant: a batch of a few records is left to the library. Each record needs one before it, and a record that
fits a topic by its producer's codec alone must not become too large here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import cramjam
import numpy as np

from processor.engine.bytes.lz4_records import block_bound, deflate_block
from processor.engine.jit import COMPILES
from processor.wire import lz4
from processor.wire.codec import Codec, deflate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.jit import Int

EVERY = 64
"""Batches from one whose first block is made by both to the next: 3 ns per record."""
MOST_LARGER = 1.15
"""How many times as large as the library's block the kernel's may be: bytes cost brokers and every reader."""
FEWEST_RECORDS = 64
"""The first one of a block is written as it is: of 64 it makes the block larger by a 60th."""

_WORD = struct.Struct("<I")


class Deflater:
    """Compresses the batches of one topic; not for use by several threads at once."""

    def __init__(self) -> None:
        self._until_both = 0
        self._by_kernel = False
        self._frame = np.empty(0, np.uint8)

    @property
    def by_kernel(self) -> bool:
        """Whether the kernel is in use."""
        return self._by_kernel

    def deflate(self, codec: int, space: NDArray[np.uint8], size: int, records: int) -> bytes:
        """Compress the records of a batch as a producer would with ``codec``.

        Args:
            codec: The lowest three bits of the batch's attributes.
            space: uint8[m], the records as the batch holds them, and `vectors.SLACK` bytes behind them.
            size: Bytes of the records.
            records: How many there are.
        """
        if codec != Codec.LZ4 or records < FEWEST_RECORDS or not COMPILES:
            return deflate(codec, space[:size])
        blocks = -(-size // lz4.BLOCK_BYTES)
        room = len(lz4.HEADER) + blocks * (_WORD.size + block_bound(lz4.BLOCK_BYTES)) + len(lz4.END)
        if self._frame.size < room:
            self._frame = np.empty(room, np.uint8)
        both = self._until_both == 0
        self._until_both = EVERY - 1 if both else self._until_both - 1
        record: Int = 0
        at = self._put(0, lz4.HEADER)
        for start in range(0, size, lz4.BLOCK_BYTES):
            block = space[start : min(start + lz4.BLOCK_BYTES, size)]
            begin = made = at + _WORD.size
            if both or self._by_kernel:
                wrote, record = deflate_block(space, start, start + block.size, record, self._frame, begin)
                made = int(wrote)
            if both or not self._by_kernel:
                packed = cramjam.lz4.compress_block(block, store_size=False)
                self._by_kernel = both and made - begin <= MOST_LARGER * len(packed)
                if not self._by_kernel:
                    made = self._put(begin, bytes(packed))
            both = False
            stored = made - begin >= block.size
            if stored:
                made = self._put(begin, block.tobytes())
            self._put(at, _WORD.pack(made - begin | (lz4.STORED if stored else 0)))
            at = made
        return self._frame[: self._put(at, lz4.END)].tobytes()

    def _put(self, at: int, content: bytes) -> int:
        """Write bytes of the frame; return where they end."""
        after = at + len(content)
        self._frame[at:after] = np.frombuffer(content, np.uint8)
        return after
