"""Writes quarantined records as batches, and reads them again.

As it came (key, value, timestamp, headers), with three headers after its own: ``seqmark.error`` (a stable
code), ``seqmark.detail`` (for people), ``seqmark.source`` (``topic:partition:offset``). Where a pipeline
observes, the record passes all the same, and this is a copy: before those three stands ``seqmark.observed``.

A record that is too large for the sink is told here, because it goes there whatever it is judged by.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from processor.engine import quarantine
from processor.engine.batch.columns import ATTRIBUTES, CODEC_MASK, HEADER_BYTES, MAX_OVERHEAD_BYTES
from processor.engine.bytes.varints import read_varint, sized
from processor.engine.collision_edits import CollisionRows
from processor.engine.quarantine import QuarantineText
from processor.engine.verdict import Fault
from processor.wire.codec import Codec, deflate, squeeze
from processor.wire.edited import edited, one_more_header
from processor.wire.encode import TooLargeError, batches_of, cut, equal_runs, fit, packed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.collision_edits import CollisionEditor
    from processor.engine.extract.ids import Ids
    from processor.wire.decode import Piece
    from processor.wire.encode import EncodedBatch, Encoder

Header = tuple[str | bytes, bytes | None]
Item = tuple[bytes | None, bytes | None, int, list[Header]]

OURS = (quarantine.ERROR, quarantine.DETAIL, quarantine.SOURCE)
"""The headers behind the record's own, in this order."""
OBSERVED = (b"seqmark.observed", b"true")
"""The header before them of a record that has passed, observed."""
MOST_OFFSET = 2**63 - 1
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
    if named != source or not digits.isascii() or not digits.isdigit() or len(digits) > MOST_DIGITS:
        return None
    offset = int(digits)
    return offset if offset <= MOST_OFFSET else None


def is_observed(headers: Sequence[Header]) -> bool:
    """Whether a quarantined record with these headers says that it has passed, observed."""
    return tuple(headers[-len(OURS) - 1 : -len(OURS)]) == (OBSERVED,)


def called(columns: Columns, fault: Fault, source: str) -> list[tuple[int, int]]:
    """Return source offset and timestamp (ms) of those records of a quarantine that have a code.

    A source that was made again has other records under the same offsets: timestamps tell them apart.

    Args:
        columns: Of the quarantine.
        fault: Whose code.
        source: ``topic:partition``; records of any other are left out.
    """
    found = []
    for row in range(len(columns)):
        headers = read_record(columns, row)[3][-len(OURS) :]
        if tuple(name for name, _ in headers) != OURS or headers[0][1] != fault.code.encode():
            continue
        where = source_offset(headers[2][1], source)
        if where is not None:
            found.append((where, int(columns.timestamp[row])))
    return found


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
