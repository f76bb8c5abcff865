"""Keeps arrays of whole numbers in staging, parted for whoever reads them next.

What splits have extracted is judged by bucket, and what buckets have judged is written by split. A file has the
rows of its writer, sorted by part, so that a reader takes its own part out of each file: little-endian int64::

    | columns | parts | parts + 1 times where a part begins, in rows | rows, one after the other |

Names (of files and runs) stand beside it as JSON, and in the rows by number. A file gets its name when it is
whole, so a task that is done again writes it again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_HEAD = 2
KEYS, OLD, VERDICTS, FAULTS = "keys", "old", "verdicts", "faults"
# Columns of the rows of each kind; hashes and fingerprints are the same 64 bits as signed numbers.
LOW, HIGH, PRINT, TIME, ROW = range(5)  # of keys
OLD_NAME = 5  # of old ones too: number of (file, run)
FAULT_ROW, FAULT_CODE, FAULT_TIME = range(3)
JUDGED_ROW, JUDGED, JUDGED_NAME, JUDGED_OWNER_ROW, JUDGED_COLLIDED = range(5)

Name = tuple[str, str]
"""A file's base name, and the run that read it."""


def staged(folder: str, kind: str, number: int) -> Path:
    """Return the file of one writer."""
    return Path(folder) / f"{kind}-{number:05d}"


def write_parted(
    file: Path, rows: NDArray[np.int64], part: NDArray[np.int64], parts: int, names: Sequence[Name] = ()
) -> None:
    """Write rows by part; those of one part keep their order.

    Args:
        file: It.
        rows: int64[n, columns].
        part: int64[n], from 0 on.
        parts: How many there are.
        names: What rows have numbers of.
    """
    # Words of 16 bits are sorted by their digits, in a tenth of the time.
    order = np.argsort(part.astype(np.min_scalar_type(parts)), kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=parts))])
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_name(f".{file.name}.{os.getpid()}")
    with hidden.open("wb") as stream:
        stream.write(np.array([rows.shape[1], parts, *begins], "<i8").tobytes())
        stream.write(np.ascontiguousarray(rows[order], "<i8").tobytes())
    file.with_suffix(".names").write_text(json.dumps(list(names)))
    hidden.replace(file)


def read_part(file: Path, part: int) -> NDArray[np.int64]:
    """Return int64[n, columns], the rows of one part."""
    words = np.memmap(file, "<i8", "r")
    columns, parts = (int(each) for each in words[:_HEAD])
    begin, end = (int(each) for each in words[_HEAD + part : _HEAD + part + 2])
    first = _HEAD + parts + 1
    return np.array(words[first + begin * columns : first + end * columns]).reshape(-1, columns)


def read_all(file: Path) -> NDArray[np.int64]:
    """Return int64[n, columns], the rows of all parts."""
    words = np.memmap(file, "<i8", "r")
    columns, parts = (int(each) for each in words[:_HEAD])
    return np.array(words[_HEAD + parts + 1 :]).reshape(-1, columns)


def read_names(file: Path) -> list[Name]:
    """Return the names that stand beside a file."""
    return [(name, run) for name, run in json.loads(file.with_suffix(".names").read_text())]
