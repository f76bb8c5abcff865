"""The truth file: what must come out of a generated source.

One `Truth` per partition: for every record that was produced its offset and what the rules say of it. As a
file, JSON lines by the contract: ``{"partition", "offset", "passes", "kind"}``, and ``"quarantine"`` with
the code where the record cannot be judged; partition after partition, offsets rising. The kind says why a
record was sent, not what becomes of it: in mode ``insert-id`` a copy passes when its window is over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import orjson

from processor.generator import FAULTS, RecordKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

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


def write(path: Path, truths: Sequence[Truth]) -> None:
    """Replace the file; whoever looks sees the whole of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="ascii") as file:
            for partition, truth in enumerate(truths):
                for start in range(0, len(truth), _LINES_AT_ONCE):
                    file.writelines(_lines(partition, truth, start))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _lines(partition: int, truth: Truth, start: int) -> Iterator[str]:
    # What follows the offset takes few forms: they are written once.
    tails = {
        (passes, kind, fault): f',"passes":{"true" if passes else "false"},"kind":"{kind.label}"'
        + (f',"quarantine":"{code}"' if code else "")
        + "}\n"
        for passes in (False, True)
        for kind in RecordKind
        for fault, code in enumerate(FAULTS)
    }
    head = f'{{"partition":{partition},"offset":'
    rows = slice(start, start + _LINES_AT_ONCE)
    for offset, passes, kind, fault in zip(
        truth.offset[rows].tolist(),
        truth.passes[rows].tolist(),
        truth.kind[rows].tolist(),
        truth.fault[rows].tolist(),
        strict=True,
    ):
        yield f"{head}{offset}{tails[passes, kind, fault]}"


def read(path: Path) -> list[Truth]:
    """Read such a file back; partitions without a record are empty."""
    rows: list[list[tuple[int, bool, int, int]]] = []
    with path.open("rb") as file:
        for partition, row in _parsed(file):
            while len(rows) <= partition:
                rows.append([])
            rows[partition].append(row)
    truths = []
    for part in rows:
        offset, passes, kind, fault = zip(*part, strict=True) if part else ((), (), (), ())
        truths.append(
            Truth(
                np.array(offset, np.int64),
                np.array(passes, np.bool_),
                np.array(kind, np.uint8),
                np.array(fault, np.uint8),
            )
        )
    return truths


def _parsed(lines: Iterable[bytes]) -> Iterator[tuple[int, tuple[int, bool, int, int]]]:
    for line in lines:
        item = orjson.loads(line)
        kind = int(RecordKind[item["kind"].upper()])
        fault = FAULTS.index(item.get("quarantine", ""))
        yield item["partition"], (item["offset"], item["passes"], kind, fault)
