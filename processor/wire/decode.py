"""Opens a fetched run of batches: their records as columns, some at a time.

A `Chunk` is what one fetch brought of one partition: whole batches, as bytes. `Decoder.pieces` opens it,
a bounded number of inflated bytes at a time. A piece has passed once its decoder opens the next one, of
whatever chunk: both use one buffer. In tests it is an error to read one that has passed
(`processor.wire.decode`).

Invariants: every batch's CRC is checked before anything that follows from its bytes is given out, also of
those that are left out: corruption is never written again under a new CRC, and a flipped bit never makes data
look like a control batch. Records below the wanted position, control batches and aborted transactions never
reach a piece; positions only go up, over gaps and control records too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from processor.engine.batch.columns import (
    BASE_OFFSET,
    BATCH_COLUMNS,
    COUNT,
    HEADER_BYTES,
    LAST_DELTA,
    MIN_RECORD_BYTES,
    Columns,
)
from processor.engine.batch.scan import Malformed, cut_records, scan_spans, walk
from processor.engine.batch.small import open_small
from processor.engine.repartition import MORE_BYTES
from processor.wire.batch_run import BatchRun, LongBatchError, forwardable, is_gzip
from processor.wire.codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable

# The pieces of a decoder use one buffer, and the slots of a worker one decoder: nothing of a piece is used
# after its turn. With ``SEQMARK_TEST_BUFFERS=1``, as in all tests, that is looked at. Each piece's columns
# have its number, and to read those of one that has passed is an `AssertionError`. What it left in the
# buffers is overwritten, so that a view that somebody has kept shows as well. Without the variable nothing
# of this is done: the decoder counts its pieces, once per piece.

CHECKED = os.environ.get("SEQMARK_TEST_BUFFERS") == "1"
"""Whether it is looked at. Each read of a column costs a call then."""
POISON = 0xAA
"""What bytes are overwritten with; in a column -0xAA, which is no offset, position or length either."""
_COLUMNS = frozenset(Columns.__slots__)


class Generations:
    """The pieces of one decoder, counted: those before ``newest`` have passed."""

    def __init__(self, *, checked: bool) -> None:
        self._checked = checked
        self.newest = 0

    def pass_on(self, columns: Columns, rows: int, used: int) -> None:
        """Let the newest piece pass, of so many rows and bytes: its columns are about to be written into."""
        self.newest += 1
        if self._checked:
            for column in columns.table:
                column[:rows] = -POISON
            columns.data[:used] = POISON

    def current(self, columns: Columns) -> Columns:
        """Return the columns of the newest piece."""
        if not self._checked:
            return columns
        return CheckedColumns(columns.data, columns.table, self, self.newest)


class CheckedColumns(Columns):
    """Columns that cannot be read once their piece has passed; what is made of them cannot either."""

    __slots__ = ("generation", "generations")

    def __init__(
        self, data: NDArray[np.uint8], table: RecordTable, generations: Generations, generation: int
    ) -> None:
        super().__init__(data, table)
        self.generations, self.generation = generations, generation

    def __getattribute__(self, name: str) -> Any:
        read = object.__getattribute__
        if name in _COLUMNS:
            newest, mine = read(self, "generations").newest, read(self, "generation")
            assert newest == mine, f"piece {mine} has passed: its decoder is at piece {newest}"  # noqa: S101 - in tests
        return read(self, name)

    @override
    def over(self, table: RecordTable) -> CheckedColumns:
        return CheckedColumns(self.data, table, self.generations, self.generation)


MAX_INFLATED_BYTES = 64 * 1024 * 1024
"""The contract's bound for one batch."""
ROUTED_BYTES = MORE_BYTES
"""What a batch of one record may have more once it is routed; those of several are far smaller."""
PIECE_BYTES = 4 * 1024 * 1024
"""A piece is closed once it holds this much: about 25,000 records of 150 B, about 25 ms of work, so that the
event loop answers heartbeats and health checks in between."""
PIECE_ROWS = 20 * 1024
"""The same of records, however small: each takes up to 8 µs, where a page has to be read for it. A fetch of
1 MiB of records as short as in the benchmark holds 16,690, and is one piece."""
PIECE_BATCHES = 1024
"""The same of batches that no kernel opens: each takes about 50 µs."""
LONG_BYTES = 4 * 1024 * 1024
"""A batch that inflates to more is opened and judged apart from the event loop."""
GZIP_BYTES = 1024 * 1024
"""Both with gzip, by which records are written again ten times as slowly as by other codecs."""


class UndecodableError(Exception):
    """A batch cannot be read; records before it are fine.

    Attributes:
        offset: Its base offset.
        detail: What is wrong with it.
        next_offset: Where what follows it begins, as far as that can be told; above ``offset``.
    """

    def __init__(self, offset: int, detail: str, next_offset: int | None = None) -> None:
        self.offset = offset
        self.detail = detail
        self.next_offset = next_offset
        super().__init__(f"the batch at offset {offset} cannot be decoded: {detail}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive batches of one partition: the unit of work, of failure and of commit.

    Attributes:
        topic: Source topic.
        partition: Its number.
        position: The first offset wanted; batches may begin below it.
        data: The fetched bytes, whole batches first; a cut one may follow.
        aborted: (producer id, first offset) of the aborted transactions in it, as the broker said.
        last_stable_offset: As of the fetch.
    """

    topic: str
    partition: int
    position: int
    data: bytes
    aborted: Sequence[tuple[int, int]] = ()
    last_stable_offset: int = -1


@dataclass(slots=True)
class Piece:
    """Some consecutive batches of a chunk, opened.

    Attributes:
        columns: All wanted records, in offset order.
        raw: uint8[n], the chunk's bytes.
        batches: int64[b, BATCH_COLUMNS], those that hold the columns' records.
        first_row: int64[b + 1]; rows of batch i are ``first_row[i]`` to ``first_row[i + 1]``.
        whole: bool[b]; True where a batch can go on as it is if all its records pass.
        next_offset: The position after this piece; past control batches and gaps.
    """

    columns: Columns
    raw: NDArray[np.uint8]
    batches: NDArray[np.int64]
    first_row: NDArray[np.int64]
    whole: NDArray[np.bool_]
    next_offset: int

    def up_to(self, stop: int) -> tuple[Columns, int]:
        """Return the records before offset ``stop``, and the position after them: ``stop`` at most."""
        if self.next_offset <= stop:
            return self.columns, self.next_offset
        return self.columns.rows(0, int(self.columns.offset.searchsorted(stop))), stop


class Decoder:
    """Opens chunks; owns the buffer that batches are inflated into.

    One buffer of 64 MiB (and a little, for what routing adds, and so that "too large" is told from "just fits")
    serves all partitions of a worker: memory is only touched as far as batches reach.

    Args:
        checked: Whether a piece that has passed cannot be read.
    """

    def __init__(self, *, checked: bool = CHECKED) -> None:
        self._generations = Generations(checked=checked)
        self._scratch = np.empty(MAX_INFLATED_BYTES + ROUTED_BYTES + 1, np.uint8)
        self._table = np.empty((0, BATCH_COLUMNS), np.int64)
        self._looked = self._table
        self._columns = Columns.empty(0, self._scratch)
        self._used = self._rows = 0

    def next_offset(self, chunk: Chunk) -> int | None:
        """Return the position after the chunk's last whole batch.

        None where nothing came. (Bytes that hold no whole batch count as something: `pieces` will say what
        is wrong with them.)
        """
        if not chunk.data:
            return None
        raw = np.frombuffer(chunk.data, np.uint8)
        # A table of its own: a thread may be opening pieces.
        self._looked = _roomy(self._looked, raw)
        count, _, _ = walk(raw, self._looked)
        if count == 0:
            return chunk.position
        return max(chunk.position, _after(self._looked[count - 1]))

    def pieces(self, chunk: Chunk, most_bytes: int | None = None, *, routed: bool = False) -> Iterator[Piece]:
        """Yield the chunk's records piece by piece; the last may be empty and only move the position.

        Args:
            chunk: What one fetch has brought.
            most_bytes: A piece is closed once it holds so much; None: `PIECE_BYTES`.
            routed: Whether its records have been routed: what could be decoded before must be now.

        Raises:
            UndecodableError: After the pieces before it have been yielded.
        """
        return (piece for piece in self.steps(chunk, most_bytes, routed=routed) if piece is not None)

    def steps(
        self, chunk: Chunk, most_bytes: int | None = None, *, routed: bool = False
    ) -> Iterator[Piece | None]:
        """Yield what `pieces` does, and None before the next step takes long, whatever the piece then holds.

        Arguments and errors are those of `pieces`.
        """
        if chunk.aborted:
            yield None  # each of its batches is looked at apart
        raw = np.frombuffer(chunk.data, np.uint8)
        self._table = _roomy(self._table, raw)
        count, stop, wrong = walk(raw, self._table)
        table = self._table[:count].copy()
        run = BatchRun(
            raw, table, chunk.position, chunk.aborted, MAX_INFLATED_BYTES + (ROUTED_BYTES if routed else 0)
        )
        at = 0
        while at < count:
            if run.wanted[at] and int(table[at, COUNT]) > PIECE_ROWS:
                yield None
                yield from self._parts(chunk.position, run, at)
                at += 1
                continue
            found = self._piece(chunk.position, run, at, most_bytes or PIECE_BYTES)
            if found is None:
                yield None
                found = self._piece(chunk.position, run, at, most_bytes or PIECE_BYTES, long=True)
                assert found is not None  # noqa: S101 - nothing is larger
            piece, at, error = found
            if piece.next_offset > chunk.position:
                yield piece
            if error is not None:
                raise error
        if wrong:
            # The base offset of a batch that cannot be walked over cannot be trusted either.
            after = max(chunk.position, _after(table[-1])) if count else chunk.position
            raise UndecodableError(after, f"{Malformed(wrong).text} (at byte {stop} of the fetch)")
        if not count and raw.size:
            # Brokers send a first batch whole, however large (KIP-74): a cut one has a forged length.
            raise UndecodableError(chunk.position, f"its length leaves the {raw.size:,} bytes that came")

    def _piece(
        self, position: int, run: BatchRun, start: int, most_bytes: int, *, long: bool = False
    ) -> tuple[Piece, int, UndecodableError | None] | None:
        """Open batches from ``start`` on until the piece is full; returns it and the next batch.

        None: the first one may be a long one, and ``long`` is not set.
        """
        raw, table = run.raw, run.table
        self._generations.pass_on(self._columns, self._rows, self._used)
        self._used = self._rows = 0
        rows = used = filled = opened = 0
        spans = np.empty((len(table) - start, 3), np.int64)
        at = start
        error: UndecodableError | None = None
        while at < len(table) and used < most_bytes and rows < PIECE_ROWS and opened < PIECE_BATCHES:
            if run.small[at]:
                done = open_small(
                    raw, table, run.small, at, self._scratch, used, most_bytes, PIECE_ROWS - rows, spans, filled
                )
                if done[0] > at:
                    at, used, filled = (int(number) for number in done[:3])
                    rows += int(done[3])
                    continue
            batch = table[at].tolist() if run.wanted[at] else None
            if batch and _overflows(batch, used, rows):
                break
            try:
                run.check_crc(at)
                size = self._open(run, batch, used, long=long and not used) if batch else 0
            except LongBatchError:
                if not used:
                    return None
                break  # it begins the next piece
            except CodecError as failure:
                error = _undecodable(table, at, str(failure))
                break
            opened += 1
            if batch:
                spans[filled] = at, used, used + size
                filled += 1
                used += size
                rows += max(0, min(batch[COUNT], size // MIN_RECORD_BYTES))
            at += 1
        self._used, self._rows = used, rows
        piece, failed = self._scan(position, run, spans[:filled], rows, (start, at))
        return piece, at, failed or error

    def _open(self, run: BatchRun, batch: list[int], used: int, *, long: bool) -> int:
        """Inflate a batch behind the first ``used`` bytes of the buffer."""
        most = run.most if long else GZIP_BYTES if is_gzip(batch) else LONG_BYTES
        return run.inflate(batch, self._scratch[used : used + most + 1], most)

    def _parts(self, position: int, run: BatchRun, at: int) -> Iterator[Piece]:
        """Yield the records of one batch of many, some at a time.

        Its bytes lie in memory of its own: the buffer serves others while it is at work. Before the first part
        is given out all of them have been looked at: what is malformed is no batch, not the rest of one.

        Raises:
            UndecodableError: The batch cannot be decoded; nothing of it has been yielded.
        """
        batch = run.table[at]
        space = np.empty(run.most + 1, np.uint8)
        try:
            run.check_crc(at)
            size = run.inflate(batch.tolist(), space, run.most)
        except CodecError as failure:
            raise _undecodable(run.table, at, str(failure)) from failure
        count = int(batch[COUNT])
        most = min(count, size // MIN_RECORD_BYTES)
        ends = np.empty(most // PIECE_ROWS + 1, np.int64)
        parts = 0 if count > most else int(cut_records(space, 0, size, count, PIECE_ROWS, ends))
        if parts <= 0:
            # As a whole, to say what is wrong with it.
            raise self._malformed(position, run, at, space, size)
        begins = np.append(0, ends[: parts - 1])
        table = np.repeat(batch[None], parts, axis=0)
        table[:, COUNT] = PIECE_ROWS
        table[-1, COUNT] = count - (parts - 1) * PIECE_ROWS
        columns = Columns.empty(PIECE_ROWS, space)
        scanned = np.empty((3, 2), np.int64)

        def read(part: int) -> int:
            """Read a part; returns how many of its rows are wanted, -1: it is malformed."""
            spans = np.array([[part, begins[part], ends[part]]])
            opened, first_row, skipped = scanned
            found = scan_spans(space, spans, table, position, columns.table, opened, first_row, skipped)
            return -1 if found[2] else int(first_row[found[0]])

        last = -1
        for part in range(parts):
            rows = read(part)
            if rows < 0 or (rows and int(columns.offset[0]) <= last):
                raise self._malformed(position, run, at, space, size)
            last = int(columns.offset[rows - 1]) if rows else last
        for part in range(parts):
            self._generations.pass_on(columns, PIECE_ROWS, 0)
            rows = read(part)
            after = (
                _after(batch) if part == parts - 1 else int(columns.offset[rows - 1]) + 1 if rows else position
            )
            if rows or part == parts - 1:
                yield Piece(
                    self._generations.current(columns.rows(0, rows)),
                    run.raw,
                    batch[None] if rows else run.table[:0],
                    np.array([0, rows] if rows else [0]),
                    np.zeros(1 if rows else 0, np.bool_),
                    max(after, position),
                )

    def _malformed(
        self, position: int, run: BatchRun, at: int, space: NDArray[np.uint8], size: int
    ) -> UndecodableError:
        """Return the error for a batch of many records, read as a whole to find it."""
        rows = max(0, min(int(run.table[at, COUNT]), size // MIN_RECORD_BYTES))
        spans, found = np.array([[at, 0, size]]), np.empty((3, 2), np.int64)
        _, _, wrong, record = scan_spans(
            space, spans, run.table, position, Columns.empty(rows, space).table, found[0], found[1], found[2]
        )
        return _undecodable(run.table, at, f"{Malformed(wrong).text} (record {record} of the batch)")

    def _scan(
        self, position: int, run: BatchRun, spans: NDArray[np.int64], rows: int, batches: tuple[int, int]
    ) -> tuple[Piece, UndecodableError | None]:
        """Read the inflated ``spans`` into columns; a malformed batch ends the piece before it."""
        if len(self._columns) < rows:
            self._columns = Columns.empty(rows, self._scratch)
        columns, table = self._columns, run.table
        opened, skipped = np.empty((2, len(spans)), np.int64)
        first_row = np.empty(len(spans) + 1, np.int64)
        kept, bad, wrong, record = scan_spans(
            columns.data, spans, table, position, columns.table, opened, first_row, skipped
        )
        start, stop = batches
        next_offset = _after(table[stop - 1]) if stop > start else position
        error: UndecodableError | None = None
        if wrong:
            index = int(spans[bad, 0])
            error = _undecodable(table, index, f"{Malformed(wrong).text} (record {record} of the batch)")
            next_offset = int(table[index, BASE_OFFSET])
        found = table[opened[:kept]]
        piece = Piece(
            self._generations.current(columns.rows(0, int(first_row[kept]))),
            run.raw,
            found,
            first_row[: kept + 1],
            forwardable(found) & (skipped[:kept] == 0),
            max(next_offset, position),
        )
        return piece, error


def _overflows(batch: list[int], used: int, rows: int) -> bool:
    """Whether a batch does not go into a piece with what is in it already; one of very many records into none.

    Such a one is opened in parts, and comes here only behind what holds no records, such as a marker.
    """
    many = batch[COUNT] > PIECE_ROWS
    return many or (used > 0 and (rows + batch[COUNT] > PIECE_ROWS or (used >= GZIP_BYTES and is_gzip(batch))))


def _roomy(table: NDArray[np.int64], raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return a table for all batches that so many bytes can hold: this one, where it is large enough."""
    most = raw.size // HEADER_BYTES + 1
    return table if len(table) >= most else np.empty((most, BATCH_COLUMNS), np.int64)


def _undecodable(table: NDArray[np.int64], index: int, detail: str) -> UndecodableError:
    """Return the error for one batch of those walked over: where the next begins does not rest on its bytes."""
    base = int(table[index, BASE_OFFSET])
    after = int(table[index + 1, BASE_OFFSET]) if index + 1 < len(table) else _after(table[index])
    return UndecodableError(base, detail, after if after > base else None)


def _after(batch: NDArray[np.int64]) -> int:
    return int(batch[BASE_OFFSET] + batch[LAST_DELTA]) + 1
