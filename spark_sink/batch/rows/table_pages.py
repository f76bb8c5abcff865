"""Reads columns of ours of a file of the table, page by page: hashes of all rows, the rest of a few rows.

A run looks at every file that its window reaches, and most of them have a few rows that matter. What a library
does per file, row group and column then costs more than the rows do, so the pages that `data_files` writes are
read here. Whatever looks otherwise, or has a checksum that is wrong, is left to pyarrow, which reads it or says
what is wrong with it. Of a file whose counts of rows differ pyarrow reads the fewest without a word: such a one
is refused here, for a row that is not read is an id that is forgotten.

A few high words are read by themselves, without the page around them and its checksum: one that is what it is
expected to be, which 64 bits have to be for that, is not damaged. If one is not, the page is read whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from processor.engine.rest import (
    DELTA,
    PLAIN,
    SLACK,
    crc32,
    differences_at,
    footer_columns,
    page_head,
    values_begin,
    words_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.engine.rest import ChunkPlace, FooterColumns, LowProbe

_LEAST_BUFFER = 1 << 20
_TAIL_BYTES = 1 << 15
"""Of a file, read at once: its footer is in it. That of 30 columns takes 6 kB per row group."""
_MAGIC = b"PAR1"
_HEAD_BYTES = 1 << 9
"""Of a page: its header and its levels are in it. Ours take 60 to 90."""
_WORD_COSTS = 4 << 10
"""Bytes that are read and checked in the time that it takes to read one word by itself."""
_NAMES = ("seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row")
_PLAIN_BYTES, _ZSTD, _MICROSECONDS = 0, 6, 10
"""Codecs, and what words of times stand for, as Parquet numbers them."""
_MOST_BYTES, _MORE = 16, 1 << 10
"""Per value of a page, inflated, and besides: a header that is damaged must not ask for gigabytes."""


class _Page(NamedTuple):
    """The values of one page: its content and `SLACK`, where they begin, how many and how they are written."""

    content: NDArray[np.uint8]
    begin: int
    values: int
    encoding: int

    @property
    def has_words(self) -> bool:
        """Whether the values are words, all of which are there."""
        return self.encoding == PLAIN and self.begin + 8 * self.values <= self.content.size - SLACK


class UnknownPagesError(Exception):
    """Pages that are not read here: pyarrow has to."""


class TablePages:
    """One file of the table.

    Args:
        path: Of the file.

    Raises:
        pa.ArrowException: It is cut or damaged, or no Parquet file.
        OSError: It cannot be read, or its footer cannot.
    """

    def __init__(self, path: str | Path) -> None:
        self._stream = open(path, "rb", buffering=0)  # noqa: SIM115,PTH123 - closed with this object
        try:
            self._footer = self._read_footer()
            self._metadata: Any = None if self._footer else self._read_metadata()
        except BaseException:
            self._stream.close()
            raise
        self._buffer = np.empty(_LEAST_BUFFER, np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def groups(self) -> int:
        """How many row groups it has."""
        return self._footer.groups if self._footer else int(self._metadata.num_row_groups)

    def rows(self, group: int) -> int:
        """Return how many rows a row group has."""
        return self._footer.rows(group) if self._footer else int(self._metadata.row_group(group).num_rows)

    def matches(self, group: int, probe: LowProbe) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of a row group whose low words are among new ones, rising, and these words.

        Raises:
            UnknownPagesError: They are not read here.
        """
        rows, words, first = [], [], 0
        for page in self._pages(group, "seqmark_low"):
            if not page.has_words:
                raise UnknownPagesError
            found = probe.matches_in(page.content, page.begin, page.values)
            rows.append(found + first)
            words.append(words_at(page.content, page.begin, found))
            first += page.values
        return _joined(rows), _joined(words)

    def values(self, group: int, name: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a column of whole numbers or times, of some rows of a row group that rise.

        Raises:
            UnknownPagesError: It is not read here.
        """
        found, first = [], 0
        for page in self._pages(group, name):
            begin, end = np.searchsorted(rows, (first, first + page.values)).tolist()
            if end > begin:
                found.append(_some(page, rows[begin:end] - first))
            first += page.values
        values = _joined(found)
        if values.size != rows.size:
            raise UnknownPagesError
        return values

    def words(
        self,
        group: int,
        name: str,
        rows: NDArray[np.int64],
        expected: Callable[[], NDArray[np.int64] | None],
    ) -> NDArray[np.int64]:
        """Return what `values` does, of words that are nearly always what is expected.

        Args:
            group: The row group.
            name: The column.
            rows: Of it, rising.
            expected: Says what, if anybody knows.

        Raises:
            UnknownPagesError: They are not read here.
        """
        column = self._place(group, name)
        if rows.size * _WORD_COSTS < column.size and (told := expected()) is not None:
            found = self._few_words(column, rows)
            if found is not None and (found == told).all():
                return found
        return self.values(group, name, rows)

    def _few_words(self, column: ChunkPlace, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the words of some rows, whatever the checksums of their pages; None: they are not found."""
        if column.codec != _PLAIN_BYTES or column.has_dictionary:
            return None
        file, at = self._stream.fileno(), column.data
        end, first, found = at + column.size, 0, []
        while first < column.values:
            begins = np.frombuffer(bytearray(os.pread(file, min(_HEAD_BYTES, end - at), at)), np.uint8)
            head = page_head(begins, 0, end - at - begins.size)
            if head is None or head.encoding != PLAIN or head.values < 1:
                return None
            begin = values_begin(begins[head.begin :], head.values)
            if begin is None or begin + 8 * head.values > head.size:
                return None
            low, high = np.searchsorted(rows, (first, first + head.values)).tolist()
            place = at + head.begin + begin
            found += [os.pread(file, 8, place + 8 * (row - first)) for row in rows[low:high].tolist()]
            at, first = at + head.begin + head.size, first + head.values
        words = b"".join(found)
        return np.frombuffer(words, "<i8").astype(np.int64) if len(words) == 8 * rows.size else None

    def texts(self, group: int, names: tuple[str, str]) -> tuple[str, str] | None:
        """Return the one value that each of two columns has in a row group; None: one has several.

        By the least and the greatest as the footer has them. Where long ones are cut, the greatest is made
        greater: equal ones are whole.
        """
        if self._metadata is None:
            self._metadata = self._read_metadata()
        columns, found = self._metadata.schema.names, list[str]()
        for name in names:
            told = self._metadata.row_group(group).column(columns.index(name)).statistics
            if told is None or not told.has_min_max or told.null_count or told.min != told.max:
                return None
            if not isinstance(told.min, str):
                return None
            found.append(told.min)
        return found[0], found[1]

    def require_all(self, group: int, count: int) -> None:
        """Refuse what was read of a row group by other means where it is not all of its rows.

        Raises:
            pa.ArrowInvalid: It is not.
        """
        if count != self.rows(group):
            raise pa.ArrowInvalid(f"row group {group} has {self.rows(group)} rows, and {count} can be read")

    def _read_metadata(self) -> Any:
        metadata = pq.read_metadata(self._stream)
        groups = sum(metadata.row_group(each).num_rows for each in range(metadata.num_row_groups))
        if metadata.num_rows != groups:
            raise pa.ArrowInvalid(
                f"the footer is damaged: it tells of {metadata.num_rows} rows, its row groups of {groups}"
            )
        return metadata

    def _read_footer(self) -> FooterColumns | None:
        """Return what the file's end says of our columns; None: it is read by pyarrow, or refused."""
        file = self._stream.fileno()
        size = os.fstat(file).st_size
        tail = bytearray(os.pread(file, _TAIL_BYTES, max(size - _TAIL_BYTES, 0)))
        length = int.from_bytes(tail[-8:-4], "little")
        if tail[-4:] != _MAGIC or length > len(tail) - 8:
            return None
        return footer_columns(np.frombuffer(tail, np.uint8)[len(tail) - 8 - length : -8], _NAMES)

    def _place(self, group: int, name: str) -> ChunkPlace:
        """Return where a column lies that is as ours are: of 64 bits, with nulls, times in microseconds.

        Raises:
            UnknownPagesError: It is not.
            pa.ArrowInvalid: It has not a value per row.
            KeyError: It is not there.
        """
        place = None if self._footer is None else self._footer.place(group, name)
        if self._footer is None or place is None:
            raise UnknownPagesError
        self.require_all(group, place.values)
        if name == "seqmark_time" and self._footer.converted(name) != _MICROSECONDS:
            raise UnknownPagesError
        return place

    def _pages(self, group: int, name: str) -> Iterator[_Page]:
        """Yield the pages of a column chunk; what one has is lent until the next chunk is read.

        Raises:
            UnknownPagesError: It has a page that is not known here, damaged or cut, or has nulls.
        """
        column = self._place(group, name)
        size, left, packed = column.size, column.values, None
        if column.has_dictionary or column.codec not in {_PLAIN_BYTES, _ZSTD}:
            raise UnknownPagesError
        if column.codec == _ZSTD:
            packed = pa.Codec("zstd")
        chunk, at = self._read(column.data, size), 0
        while left > 0:
            head = page_head(chunk, at)
            if head is None or (at := head.begin + head.size) > size or not 0 < head.values <= left:
                raise UnknownPagesError
            content = chunk[head.begin : at + SLACK]
            if head.crc is not None and crc32(content[:-SLACK]) != head.crc:
                raise UnknownPagesError
            if packed is not None:
                if head.inflated > _MOST_BYTES * head.values + _MORE:
                    raise UnknownPagesError
                content = _inflated(packed, content[:-SLACK], head.inflated)
            begin = values_begin(content, head.values)
            if begin is None:
                raise UnknownPagesError
            left -= head.values
            yield _Page(content, begin, head.values, head.encoding)

    def _read(self, at: int, size: int) -> NDArray[np.uint8]:
        if size + SLACK > self._buffer.size:
            self._buffer = np.empty(size + SLACK, np.uint8)
        if os.preadv(self._stream.fileno(), [self._buffer[:size].data], at) != size:
            raise UnknownPagesError
        return self._buffer[: size + SLACK]


def _joined(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])


def _inflated(codec: Any, content: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    try:
        plain = codec.decompress(pa.py_buffer(content), decompressed_size=size)
    except (pa.ArrowException, OSError) as error:
        raise UnknownPagesError from error
    page = np.zeros(size + SLACK, np.uint8)
    page[:size] = np.frombuffer(plain, np.uint8)
    return page


def _some(page: _Page, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    if page.has_words:
        return words_at(page.content, page.begin, rows)
    made = None
    if page.encoding == DELTA:
        made = differences_at(page.content, page.begin, page.values, rows)
    if made is None:
        raise UnknownPagesError
    return made
