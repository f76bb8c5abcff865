"""Reads files of JSON lines, also compressed by gzip, as blocks of lines.

Invariant: a row's number is that of its line, from 0 on. Empty lines are no rows, and are counted.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import numpy as np

from processor.engine.rest import Fault, JsonIds, JsonRows, pointer_of
from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan

_BLOCK_BYTES = 8 << 20
_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"
"""Of byte order, which some write before UTF-8."""


class LineBlock(NamedTuple):
    """Some lines of a file.

    Attributes:
        text: Them, one after the other.
        rows: int64[n], their numbers.
        cut: Whether the last one is the file's last and has no end.
    """

    text: JsonRows
    rows: NDArray[np.int64]
    cut: bool

    def line(self, at: int) -> bytes:
        """Return one line."""
        begin, end = self.text.offsets[at : at + 2]
        return self.text.data[begin:end].tobytes().rstrip(b"\r\n")


def read_lines(path: str) -> Iterator[LineBlock]:
    """Yield all lines of a file.

    Raises:
        StopError: It is cut, or its compressed form is corrupt.
    """
    number, rest = 0, b""
    first = True
    try:
        with _opened(path) as stream:
            while raw := stream.read(_BLOCK_BYTES):
                raw = raw.removeprefix(_MARK) if first else raw
                first = False
                whole, end, begun = raw.rpartition(b"\n")
                if not end:
                    rest += begun
                    continue
                block = rest + whole + end
                rest = begun
                made, number = _block(block, number, cut=False)
                yield made
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StopError(f"{path} is cut or corrupt ({error}); nothing of this run counts") from error
    if rest:
        yield _block(rest, number, cut=True)[0]


def _opened(path: str) -> BinaryIO:
    with Path(path).open("rb") as stream:
        packed = stream.read(len(_GZIP)) == _GZIP
    return cast("BinaryIO", gzip.open(path)) if packed else Path(path).open("rb")


def _block(raw: bytes, number: int, *, cut: bool) -> tuple[LineBlock, int]:
    data = np.frombuffer(raw, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    ends = np.append(ends, data.size) if cut else ends
    begins = np.concatenate([[0], ends[:-1]])
    # A line is empty where nothing but blanks stands in it; most are longer than what that needs a look for.
    some = np.ones(ends.size, np.bool_)
    for at in np.flatnonzero(ends - begins <= 64):
        some[at] = bool(raw[begins[at] : ends[at]].strip())
    rows = number + np.flatnonzero(some)
    kept = raw if some.all() else b"".join(raw[begins[at] : ends[at]] for at in np.flatnonzero(some))
    lengths = (ends - begins)[some]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    text = JsonRows.of(np.frombuffer(kept, np.uint8), offsets)
    return LineBlock(text, rows, cut and bool(some[-1])), number + ends.size


def id_reader(plan: RunPlan) -> JsonIds:
    """Return what reads the ids, and fingerprints, of lines."""
    return JsonIds(
        [pointer_of(each) for each in plan.id],
        plan.key,
        exclude=None if plan.exclude is None else [pointer_of(each) for each in plan.exclude],
        only_text=None if plan.renamed is None else pointer_of(plan.renamed),
        normal=plan.normal,
    )


def require_end(block: LineBlock, fault: NDArray[np.uint8], path: str) -> None:
    """Refuse a file whose last line has no end and is no JSON: it was cut.

    Raises:
        StopError: So it is.
    """
    if block.cut and fault.size and fault[-1] == Fault.VALUE_NOT_JSON:
        raise StopError(
            f"{path} is cut: its last line, row {block.rows[-1]}, has no end and is no JSON; nothing of "
            f"this run "
            "counts"
        )
