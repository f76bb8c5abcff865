"""Ids out of plain bytes, and a partition whose pages lie in a dictionary."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.extract.ids import NO_CONTENT, NO_FINGERPRINT, Ids
from processor.engine.extract.normalise import IdTextForm
from processor.engine.ids.block import IdRows, confirm, decode, decode_pages, encode
from processor.engine.ids.bloom import snapshot as bloom_snapshot
from processor.engine.ids.clock import NEVER
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.ids.judgement import IdColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from processor.engine.ids.bloom.filter import Filter
    from processor.engine.ids.bloom.window import BloomWindow
    from processor.engine.ids.exact.kernels import Candidates
    from processor.engine.ids.judgement import IdJudgement
    from processor.engine.ids.page import CandidateRows
    from processor.engine.verdict import Fault

KEY = b"block"


def ids_of(
    hashes: NDArray[np.uint64], fault: Sequence[Fault] | None = None, unjudged: Sequence[bool] | None = None
) -> Ids:
    """Return ids that have these hashes; all can be judged unless something else is said."""
    rows = len(hashes)
    none = np.zeros((1, rows), np.int64)
    return Ids(
        hashes,
        np.zeros(rows, np.uint8) if fault is None else np.array(fault, np.uint8),
        np.zeros(rows, np.bool_) if unjudged is None else np.array(unjudged, np.bool_),
        np.full((1, rows), IdTextForm.BYTES, np.uint8),
        none,
        none,
        NO_CONTENT,
        NO_FINGERPRINT,
        np.zeros(rows, np.uint64),
        np.zeros(0, np.uint8),
    )


def hash_of(name: bytes) -> tuple[int, int]:
    """Return 128 bits for a name: evenly spread, as those of the keyed hash are."""
    digest = hashlib.blake2b(name, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def hashes_of(names: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return uint64[n, 2]."""
    return np.array([hash_of(name) for name in names], np.uint64).reshape(len(names), 2)


def read_snapshot(pieces: Iterable[bytes]) -> list[Filter]:
    """Return the filters that pieces make, in whatever order they come."""
    reader = bloom_snapshot.SnapshotReader()
    for piece in pieces:
        reader.take(piece)
    return [reader.filter(*name) for name in reader.pieces()]


class ExactPartition:
    """An index, and the pages and blocks that its commits have written, each under its key.

    Args:
        window_ms: Of the index.
        refresh: Of the index.
        line_bits: Of the index.
        tag_bits: Of the index.
    """

    def __init__(self, window_ms: int, *, refresh: bool, line_bits: int = 10, tag_bits: int = 28) -> None:
        self._form = (window_ms, refresh, line_bits, tag_bits)
        self.index = self._new()
        self.clock = NEVER
        self.pages: dict[int, bytes] = {}
        self.blocks: list[bytes] = []
        self.fetched = 0

    def _new(self) -> ExactIndex:
        window_ms, refresh, line_bits, tag_bits = self._form
        return ExactIndex(window_ms, refresh=refresh, line_bits=line_bits, tag_bits=tag_bits)

    def judge(self, ids: Ids, offset: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> IdJudgement:
        """Judge a chunk, and fetch what that takes."""
        records = IdColumns.of(ids, offset, reading_ms)
        wanted = self.index.look_up(records)
        return self.index.judge(records, wanted, self.confirmed(wanted))

    def confirmed(self, wanted: Candidates) -> CandidateRows:
        """Read what stands in the pages of candidates."""
        self.fetched += wanted.page.size
        pages = [self.pages[int(first)] for first in wanted.page]
        return confirm(pages, wanted.page, wanted.which, wanted.at)

    def commit(self, clock_ms: int, sweep: int = 0) -> IdRows:
        """Write what is staged; returns it."""
        rows = self.index.staged()
        pages = None
        if len(rows):
            block, pages = encode(rows, clock_ms, KEY)
            self.blocks.append(block)
            for k, first in enumerate(pages.first.tolist()):
                self.pages[first] = block[pages.at[k] : pages.at[k + 1]]
        self.index.commit(pages, clock_ms, sweep)
        self.clock = clock_ms
        # What is below the floor is never asked for again.
        floor = self.index.floor
        self.pages = {first: page for first, page in self.pages.items() if self.last_of(first) >= floor}
        return rows

    def last_of(self, first: int) -> int:
        """Return the last number of a page."""
        return first + len(decode_pages([self.pages[first]], first)[0]) - 1

    def restart(self) -> None:
        """Lose the index, and build it again from the blocks."""
        self.index = self._new()
        for block in self.blocks:
            rows, _, pages = decode(block, KEY)
            self.index.restore(rows, pages)
        self.index.commit(None, self.clock)


class BloomPartition:
    """Filters, and what was committed.

    Args:
        window: Whose filters.
    """

    def __init__(self, window: BloomWindow) -> None:
        self.window = window
        self.log: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
        self.clock = NEVER

    def judge(self, ids: Ids, offset: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> IdJudgement:
        """Judge a chunk."""
        records = IdColumns.of(ids, offset, reading_ms)
        return self.window.judge(records, self.window.look_up(records))

    def commit(self, clock_ms: int) -> None:
        """Write what is staged."""
        staged = self.window.staged_rows(0)
        self.log.append((staged.hash, staged.reading_ms))
        self.window.commit(clock_ms)
        self.clock = clock_ms

    def restart(self, *, snapshot: bool) -> None:
        """Lose the filters; make them again from a snapshot, or from the ids that were committed."""
        pieces = [piece for each in self.window.filters for piece in bloom_snapshot.write(each)]
        self.window.clear()
        if snapshot:
            self.window.filters = read_snapshot(pieces)
            return
        for hashes, reading_ms in self.log:
            self.window.restore(hashes, reading_ms, self.clock)
