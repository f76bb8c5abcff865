"""Writes quarantined records as batches, and reads them again.

As it came (key, value, timestamp, headers), with three headers after its own: ``seqmark.error`` (a stable
code), ``seqmark.detail`` (for people), ``seqmark.source`` (``topic:partition:offset``). Where a pipeline
observes, the record passes all the same, and this is a copy: before those three stands ``seqmark.observed``.

A record that is too large for the sink is told here, because it goes there whatever it is judged by.

What was judged again since notes say (`schemas.redriven`). A record is known by its source offset and its
timestamp: a source that was made again has others under the same offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine import quarantine
from processor.engine.batch.columns import ATTRIBUTES, CODEC_MASK, HEADER_BYTES, MAX_OVERHEAD_BYTES, MOST_OFFSET
from processor.engine.batch.scan import scan_run
from processor.engine.bytes.varints import read_varint, sized
from processor.engine.collision_edits import CollisionRows
from processor.engine.quarantine import QuarantineText
from processor.engine.verdict import Fault
from processor.errors import StopError
from processor.wire.codec import Codec, deflate, squeeze
from processor.wire.edited import edited, one_more_header
from processor.wire.encode import TooLargeError, batches_of, cut, equal_runs, fit, packed, plain_batch
from processor.wire.receipt_values import RecordRef
from schemas.redriven import PREFIX, RedriveNote, UnknownNoteError, is_note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.collision_edits import CollisionEditor
    from processor.engine.extract.ids import Ids
    from processor.wire.decode import Piece
    from processor.wire.encode import EncodedBatch, Encoder
    from processor.wire.receipt_values import Own
    from schemas.changelog.position import Origin

    Read = Callable[[int, int], AsyncIterator[tuple[Columns, int]]]

Header = tuple[str | bytes, bytes | None]
Item = tuple[bytes | None, bytes | None, int, list[Header]]

OURS = (quarantine.ERROR, quarantine.DETAIL, quarantine.SOURCE)
"""The headers behind the record's own, in this order."""
OBSERVED = (b"seqmark.observed", b"true")
"""The header before them of a record that has passed, observed."""
MOST_DIGITS = 19
"""Of an offset."""
EXPANSION_BYTES = 128
"""What cannot be compressed grows: by frames (gzip 18 bytes, LZ4 11, xerial 20, a little per block) and, in
snappy's worst case, by a sixth. A record within that of the limit is measured, not guessed."""

OWNER_BYTES = 128
"""More than a compressed batch differs by which owner, of 30 bytes at most, one of its records names."""


def read_record(columns: Columns, row: int) -> Item:
    """Return (key, value, timestamp in ms, headers) of one record; names of headers as bytes."""
    data = columns.data
    at, stop = int(columns.headers[row]), int(columns.end[row])
    tail = data[at:stop].tobytes()
    return (
        _span(columns, int(columns.key[row]), int(columns.key_length[row])),
        _span(columns, int(columns.value[row]), int(columns.value_length[row])),
        int(columns.timestamp[row]),
        _headers(tail),
    )


def source_offset(position: bytes | None, source: str) -> int | None:
    """Return the offset that a header ``seqmark.source`` names; None: none of ``topic:partition``."""
    named, _, digits = (position or b"").decode(errors="replace").rpartition(":")
    return _offset(digits) if named == source else None


def is_observed(headers: Sequence[Header]) -> bool:
    """Whether a quarantined record with these headers says that it has passed, observed."""
    return tuple(headers[-len(OURS) - 1 : -len(OURS)]) == (OBSERVED,)


@dataclass(frozen=True)
class QuarantineNote:
    """What a quarantined record says of itself.

    Attributes:
        source: The record that it was.
        code: Why it is there; of a `Fault`, as it should be.
        detail: The same for people.
        observed: It has passed all the same.
    """

    source: RecordRef
    code: str
    detail: str
    observed: bool

    @classmethod
    def read(cls, headers: Sequence[Header]) -> QuarantineNote | None:
        """Return what the headers of a quarantined record say; None: no worker has written them."""
        if (said := said_by(headers)) is None:
            return None
        code, detail, where = said
        named, _, offset = where.rpartition(":")
        topic, _, number = named.rpartition(":")
        partition, at = _offset(number), _offset(offset)
        if partition is None or at is None:
            return None
        return cls(RecordRef(topic, partition, at), code, detail, is_observed(headers))

    @classmethod
    def at(cls, columns: Columns, row: int) -> QuarantineNote | None:
        """Return what a row of a quarantine says; None: no worker has written it."""
        return cls.read(read_record(columns, row)[3])


def said_by(headers: Sequence[Header]) -> tuple[str, str, str] | None:
    """Return code, detail and source of a quarantined record as text; None: it has not our headers."""
    ours = headers[-len(OURS) :]
    if tuple(name for name, _ in ours) != OURS:
        return None
    code, detail, where = ((content or b"").decode(errors="backslashreplace") for _, content in ours)
    return code, detail, where


def own_quarantined(topic: str, partition: int) -> Own:
    """Return what finds the quarantined records of a source partition among others."""

    def own(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = [(row, QuarantineNote.at(columns, row)) for row in range(len(columns))]
        ours = [
            (row, note.source.offset)
            for row, note in found
            if note is not None and note.source[:2] == (topic, partition)
        ]
        rows, named = np.array(ours, np.int64).reshape(-1, 2).T.copy()
        return rows, named

    return own


def _offset(digits: str) -> int | None:
    if not digits.isascii() or not digits.isdigit() or len(digits) > MOST_DIGITS:
        return None
    offset = int(digits)
    return offset if offset <= MOST_OFFSET else None


class QuarantinedCopy(NamedTuple):
    """One record of a quarantine.

    Attributes:
        offset: In the quarantine.
        source: Its offset in the source.
        timestamp: ms.
        code: Why it is there.
        observed: It has passed all the same.
    """

    offset: int
    source: int
    timestamp: int
    code: str
    observed: bool

    @property
    def identity(self) -> tuple[int, int]:
        """What it is known by."""
        return self.source, self.timestamp

    def is_superseded(self, origin: Origin) -> bool:
        """Whether a worker judges it once more, or has: the pipeline was set back since."""
        return self.offset < origin.quarantine_offset and self.source >= origin.source_offset

    def has_own_trace(self, origin: Origin) -> bool:
        """Whether the state was made by a reset that may have judged it, though it stood here already."""
        return self.offset < origin.quarantine_offset and self.source >= origin.known_from


class PlacedNote(NamedTuple):
    """A note, and where it stands in the quarantine."""

    offset: int
    note: RedriveNote


class QuarantineIndex:
    """What one partition of a quarantine holds of one source partition, as far as it was read.

    Attributes:
        copies: The records, in order.
        notes: The notes of what was judged again, in order.

    Args:
        topic: The source.
        partition: Its number.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._source = topic, partition
        self.copies: list[QuarantinedCopy] = []
        self.notes: list[PlacedNote] = []

    def take(self, columns: Columns) -> None:
        """Take in the next records of the quarantine.

        Raises:
            StopError: A note cannot be read.
        """
        self.__dict__.pop("redriven", None)
        self.take_notes(columns)
        self.copies += self.of(columns)[1]

    def take_notes(self, columns: Columns) -> None:
        """Take in the notes among the next records, which is far quicker; raises as `take`."""
        for row in note_rows(columns).tolist():
            _, value, _, headers = read_record(columns, row)
            at = int(columns.offset[row])
            try:
                note = RedriveNote.read(value, headers)
            except UnknownNoteError as error:
                raise StopError(f"the note of a redrive at offset {at} of the quarantine: {error}") from error
            if note is not None and (note.topic, note.partition) == self._source:
                self.notes.append(PlacedNote(at, note))

    def of(self, columns: Columns) -> tuple[list[int], list[QuarantinedCopy]]:
        """Return the rows that are of the source partition, and what each is."""
        rows, copies = [], []
        for row in range(len(columns)):
            said = QuarantineNote.at(columns, row)
            if said is not None and said.source[:2] == self._source:
                place = int(columns.offset[row]), said.source.offset, int(columns.timestamp[row])
                rows.append(row)
                copies.append(QuarantinedCopy(*place, said.code, said.observed))
        return rows, copies

    def named(self, placed: PlacedNote) -> Iterator[QuarantinedCopy]:
        """Yield the copies that a note names."""
        for first, last in placed.note.offsets:
            at = bisect_left(self.copies, (first,))
            while at < len(self.copies) and self.copies[at].offset <= last:
                yield self.copies[at]
                at += 1

    @cached_property
    def redriven(self) -> set[tuple[int, int]]:
        """The identities of all that was judged again and has left quarantine."""
        return {copy.identity for placed in self.notes for copy in self.named(placed)}

    def too_large(self) -> set[tuple[int, int]]:
        """Return the identities of what was too large for the sink, and has not passed since."""
        code = Fault.TOO_LARGE.code
        return {copy.identity for copy in self.copies if copy.code == code} - self.redriven

    async def records_of(
        self, placed: PlacedNote, read: Read
    ) -> AsyncIterator[tuple[Columns, list[QuarantinedCopy]]]:
        """Yield the records that a note names, as they came, in the order in which they were judged again.

        ``read`` gives what stands between two offsets of the quarantine.

        Raises:
            StopError: They are not there any more.
        """
        note, seen = placed.note, 0
        async for columns, _ in read(note.offsets[0][0], note.offsets[-1][1] + 1):
            rows, copies = self.of(columns)
            some = [at for at, copy in enumerate(copies) if note.names(copy.offset)]
            seen += len(some)
            if some:
                kept = [copies[at] for at in some]
                yield as_came(columns, [rows[at] for at in some], kept), kept
        if seen != note.records:
            raise StopError(
                f"the quarantine of {note.topic}:{note.partition} names at offset {placed.offset} "
                f"{note.records} records that were judged again, and holds {seen} of them: retention has "
                "removed the others, so that nothing can be said of what became of them"
            )


def note_rows(columns: Columns) -> NDArray[np.int64]:
    """Return int64[k], rising: the rows of a quarantine that are notes of a redrive."""
    begin = np.frombuffer(PREFIX, np.uint8)
    rows = np.flatnonzero((columns.key_length < 0) & (columns.value_length >= begin.size))
    if rows.size:
        found = columns.data[columns.value[rows, np.newaxis] + np.arange(begin.size)]
        rows = rows[(found == begin).all(axis=1)]
    noted = [row for row in rows.tolist() if is_note(read_record(columns, row)[3])]
    return np.array(noted, np.int64)


def as_came(columns: Columns, rows: Iterable[int], copies: Sequence[QuarantinedCopy]) -> Columns:
    """Return rows of a quarantine as their records came: without our headers, under their source offsets."""
    items = []
    for row in rows:
        key, value, timestamp, headers = read_record(columns, row)
        items.append((key, value, timestamp, headers[: -len(OURS)]))
    data = np.frombuffer(plain_batch(items).payload, np.uint8).copy()
    made, wrong = scan_run(data, data.size, len(items))
    assert not wrong  # noqa: S101 - we have just written it
    made.timestamp[:] = [copy.timestamp for copy in copies]
    made.offset[:] = [copy.source for copy in copies]
    return made


def came_piece(piece: Piece, rows: Sequence[int], copies: Sequence[QuarantinedCopy]) -> Piece:
    """Return the same as a piece, which keeps the codecs of the batches; none goes on as it is."""
    batch = batches_of(piece, np.array(rows, np.int64))
    held, first = np.unique(batch, return_index=True)
    return replace(
        piece,
        columns=as_came(piece.columns, rows, copies),
        batches=piece.batches[held],
        first_row=np.append(first, len(rows)),
        whole=np.zeros(held.size, np.bool_),
    )


def _span(columns: Columns, start: int, length: int) -> bytes | None:
    return None if length < 0 else columns.data[start : start + length].tobytes()


def _headers(tail: bytes) -> list[Header]:
    """Read headers from their count on; `scan` has checked all bounds."""
    count, at = read_varint(tail, 0)
    headers: list[Header] = []
    for _ in range(count):
        size, at = read_varint(tail, at)
        name = tail[at : at + size]
        size, at = read_varint(tail, at + size)
        headers.append((name, None if size < 0 else tail[at : at + size]))
        at += max(size, 0)
    return headers


def detailed(
    text: QuarantineText, fault: NDArray[np.uint8], said: Mapping[int, str]
) -> tuple[NDArray[np.uint8], QuarantineText]:
    """Return which text each record has, and the texts: some records have words of their own.

    Args:
        text: By fault.
        fault: uint8[n], `Fault` codes of all records.
        said: By row, what is said to people; at most 200.
    """
    which, number = fault.copy(), dict[tuple[int, str], int]()
    for row, detail in said.items():
        which[row] = number.setdefault((int(fault[row]), detail), len(Fault) + len(number))
    names = quarantine.ERROR, quarantine.DETAIL, quarantine.SOURCE
    parts = [
        b"".join(map(sized, (names[0], Fault(code).code.encode(), names[1], detail.encode(), names[2])))
        for code, detail in number
    ]
    source = text.data[text.spans[-2] :].tobytes()
    data = np.frombuffer(b"".join([text.data[: text.spans[-2]].tobytes(), *parts, source]), np.uint8)
    ends = np.cumsum([*map(len, parts), len(source)]) + text.spans[-2]
    longer = max(map(len, parts), default=0)
    return which, QuarantineText(data, np.append(text.spans[:-1], ends), text.most_bytes + longer)


def quarantine_batches(
    piece: Piece,
    rows: NDArray[np.int64],
    fault: NDArray[np.uint8],
    text: QuarantineText,
    limit_bytes: int,
    observed: NDArray[np.bool_] | None = None,
) -> list[EncodedBatch]:
    """Write the records in ``rows`` for the quarantine topic, by their sources' codecs, or harder if need be.

    Args:
        piece: Where they are; must still be the newest.
        rows: int64[k], which, in order.
        fault: uint8[n], which text each of all its records has: of its `Fault` code, or see `detailed`.
        text: What is said of them; of the partition that they came from.
        limit_bytes: The quarantine topic's ``max.message.bytes``.
        observed: bool[n], which of all its records pass all the same; None: none.

    Raises:
        TooLargeError: A record exceeds the limit even alone; ``row`` names it.
    """
    columns, codecs = piece.columns, codecs_of(piece, rows)
    if observed is None or not observed[rows].any():
        return _batches(columns, codecs, rows, fault, text, limit_bytes)
    copies = edited(columns, rows, one_more_header(columns, rows[observed[rows]], *OBSERVED))
    try:
        return _batches(copies, codecs, np.arange(rows.size), fault[rows], text, limit_bytes)
    except TooLargeError as error:
        raise TooLargeError(int(rows[error.row]), error.size_bytes) from error


def _batches(
    columns: Columns,
    codecs: NDArray[np.int64],
    rows: NDArray[np.int64],
    fault: NDArray[np.uint8],
    text: QuarantineText,
    limit_bytes: int,
) -> list[EncodedBatch]:
    """Write ``rows``, of which ``codecs`` are those of their sources."""
    batches: list[EncodedBatch] = []
    size = columns.end[rows] - columns.body[rows]
    # A record that fits by its own codec need not do so by its neighbour's.
    for begin, end in equal_runs(codecs):
        for start, stop in cut(size[begin:end], limit_bytes):
            some = rows[begin + start : begin + stop]
            codec = int(codecs[begin])
            write = partial(_batch, columns, some, fault, text, codec)
            if codec == Codec.NONE:
                batches += fit(some, limit_bytes, write)
            else:
                batches += fit(some, limit_bytes, write, partial(_squeezed, columns, some, fault, text))
    return batches


def _batch(
    columns: Columns,
    rows: NDArray[np.int64],
    fault: NDArray[np.uint8],
    text: QuarantineText,
    codec: int,
    start: int,
    stop: int,
) -> EncodedBatch:
    some = rows[start:stop]
    out = np.empty(int((columns.end[some] - columns.body[some]).sum()) + some.size * text.most_bytes, np.uint8)
    base = int(columns.timestamp[some[0]])
    used = quarantine.encode(text, columns.data, columns.table, some, fault, base, out)
    return packed(columns, some, codec, deflate(codec, out[: int(used)]))


def _squeezed(
    columns: Columns, rows: NDArray[np.int64], fault: NDArray[np.uint8], text: QuarantineText, index: int
) -> Iterator[EncodedBatch]:
    """Yield the batch of one record made as small as it can be: its producer may compress harder than we do."""
    plain = _batch(columns, rows, fault, text, Codec.NONE, index, index + 1)
    yield replace(plain, codec=Codec.ZSTD, payload=squeeze(np.frombuffer(plain.payload, np.uint8)))


def mark_too_large(encoder: Encoder, piece: Piece, fault: NDArray[np.uint8], limit_bytes: int) -> None:
    """Give records that the sink cannot take their code in ``fault``, before they are judged.

    Too large is what makes a batch above ``limit_bytes`` (the sink's ``max.message.bytes``) alone, compressed
    by its source's codec. Most records are far below and cost one comparison.
    """
    columns = piece.columns
    for row in oversized(columns, surely_fits(limit_bytes)).tolist():
        if encoder.alone_bytes(columns, row, codec_of(piece, row)) > limit_bytes:
            fault[row] = Fault.TOO_LARGE


def too_large_as_collisions(
    encoder: Encoder, piece: Piece, ids: Ids, editor: CollisionEditor, limit_bytes: int
) -> NDArray[np.int64]:
    """Return the rows, rising, whose record the sink cannot take as a collision: before it is judged.

    What the sink does not take is not remembered, so the judge has to know it. Where an edit names the owner,
    the longest there can be stands for it; as a compressed batch differs a little by who it is, `OWNER_BYTES`
    are left.

    Args:
        encoder: Of the sink.
        piece: The records; must still be the newest.
        ids: Of all of them.
        editor: Makes their edits.
        limit_bytes: The sink's ``max.message.bytes``.
    """
    columns = piece.columns
    most = columns.end - columns.body + editor.most_growth(ids)
    rows = np.flatnonzero((most > surely_fits(limit_bytes)) & (ids.fault == 0) & ~ids.unjudged)
    if not rows.size:
        return rows
    edits = editor.edits(columns, ids, CollisionRows.unowned(rows))
    codecs = codecs_of(piece, rows)
    left = np.where(editor.needs_owner & (codecs != Codec.NONE), OWNER_BYTES, 0)
    size = [
        encoder.alone_bytes(columns, row, codec, edits)
        for row, codec in zip(rows.tolist(), codecs.tolist(), strict=True)
    ]
    return rows[np.array(size) + left > limit_bytes]


def named_rows(columns: Columns, named: Collection[tuple[int, int]]) -> NDArray[np.int64]:
    """Return int64[k], rising: the rows with one of these pairs of offset and timestamp (ms)."""
    offsets = np.fromiter((offset for offset, _ in named), np.int64, len(named))
    rows = np.flatnonzero(np.isin(columns.offset, offsets))
    pairs = zip(columns.offset[rows].tolist(), columns.timestamp[rows].tolist(), strict=True)
    return rows[np.fromiter((pair in named for pair in pairs), np.bool_, rows.size)]


def codecs_of(piece: Piece, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[k]: the codecs of the source batches that records stand in."""
    found: NDArray[np.int64] = piece.batches[batches_of(piece, rows), ATTRIBUTES] & CODEC_MASK
    return found


def codec_of(piece: Piece, row: int) -> int:
    """Return the codec of the source batch that a record stands in."""
    return int(codecs_of(piece, np.array([row]))[0])


def surely_fits(limit_bytes: int) -> int:
    """Return up to how many bytes a record alone makes a batch of ``limit_bytes`` at most, by any codec."""
    return (limit_bytes - HEADER_BYTES - MAX_OVERHEAD_BYTES - EXPANSION_BYTES) * 6 // 7


def oversized(columns: Columns, most_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows whose record could make a batch of more than ``most_bytes`` alone."""
    return np.flatnonzero(columns.end - columns.body > most_bytes)
