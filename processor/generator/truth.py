"""The truth file: what must come out of a generated source.

One `Truth` per partition: for every record that was produced its offset and what the rules say of it. As a
file, JSON lines by the contract: ``{"partition", "offset", "passes", "kind"}``, and ``"quarantine"`` with
the code where the record belongs there; partition after partition, offsets rising. The kind says why a
record was sent, not what becomes of it: in mode ``insert-id`` a copy passes when its window is over. Only
``collision`` is what the rules say, of copies too: such a one has an id that is remembered with other content.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from processor.generator import FAULTS, RecordKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_LINES_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Truth:
    """One partition; all columns have a row per record, in offset order.

    Attributes:
        offset: int64[n].
        passes: bool[n].
        kind: uint8[n], `RecordKind`.
        fault: uint8[n], index into `FAULTS`; where it is not 0 the record belongs to quarantine.
    """

    offset: NDArray[np.int64]
    passes: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    fault: NDArray[np.uint8]

    def __len__(self) -> int:
        return int(self.offset.size)


def require_room(path: Path) -> None:
    """Raise OSError where the file could not be written, before there is a stream that has no truth."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    draft.touch()
    draft.unlink()


def write(path: Path, truths: Sequence[Truth]) -> None:
    """Replace the file; whoever looks sees the whole of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    try:
        with draft.open("wb") as file:
            for partition, truth in enumerate(truths):
                for start in range(0, len(truth), _LINES_AT_ONCE):
                    file.writelines(_lines(partition, truth, start))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _lines(partition: int, truth: Truth, start: int) -> Iterator[bytes]:
    labels = [kind.label for kind in RecordKind]
    columns = (truth.offset, truth.passes, truth.kind, truth.fault)
    some = (column[start : start + _LINES_AT_ONCE].tolist() for column in columns)
    for offset, passes, kind, fault in zip(*some, strict=True):
        line = {"partition": partition, "offset": offset, "passes": passes, "kind": labels[kind]}
        if fault:
            line["quarantine"] = FAULTS[fault]
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
