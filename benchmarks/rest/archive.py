"""Makes the files that are made clean, and knows what has to come out.

An event is a number: its id, time and content are hashes of it. History has the events from 0 on, each once.
Of a run's rows 90 % are new events, 5 % are events of the history that came again, 4 % are copies inside the
run, and 1 % have the id of an event of the history with other content: no copies, but whoever goes by ids alone
drops them. All within thirty dates, 100 bytes per row and less in Parquet, zstd.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rest.protocol import ID, TIME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

DAYS = 30
RESENT, COPIED, COLLIDING = 0.05, 0.04, 0.01
ROWS_PER_FILE = 2_500_000
RUNS = 8
"""At most."""
_DAY_S = 86_400
_HEX = 32


class Expected(NamedTuple):
    """What is to be kept of a run: how many rows, and the sum of the numbers in their ids, modulo 2^64."""

    rows: int
    id_sum: int


class RestInput(NamedTuple):
    """The files of one run, and what has to come out.

    Attributes:
        files: Paths.
        rows: In all of them.
        by_id: What is kept where an id is an event.
        by_content: What is kept where an id with other content is another event.
    """

    files: list[str]
    rows: int
    by_id: Expected
    by_content: Expected


def write_history(folder: Path, rows: int) -> list[str]:
    """Write the events that are remembered, in a file per 2.5 million, and four at least."""
    size = min(ROWS_PER_FILE, -(-rows // 4))
    return [
        _write(folder / f"old-{at // size:03d}.parquet", np.arange(at, min(at + size, rows)))
        for at in range(0, rows, size)
    ]


class RunShape(NamedTuple):
    """What a run is like.

    Attributes:
        number: Of the run, below `RUNS`; no two share one.
        rows: How many.
        history: How many events are remembered.
        first: The number of its first new event; runs must not share any.
        day: Of all rows; None: all days, as the events have them.
    """

    number: int
    rows: int
    history: int
    first: int
    day: int | None = None


def write_run(folder: Path, name: str, shape: RunShape) -> RestInput:
    """Write the rows of one run, into files whose names begin so."""
    number, rows, history, first, day = shape
    dice = np.random.default_rng(first)
    counts = [int(rows * share) for share in (RESENT, COPIED, COLLIDING)]
    new = np.arange(first, first + rows - sum(counts))
    resent, copied = dice.integers(0, history, counts[0]), dice.choice(new, counts[1])
    # No two runs collide with the same: the later one's would be a copy.
    colliding = dice.integers(0, history // RUNS, counts[2]) * RUNS + number
    events = np.concatenate([new, resent, copied, colliding])
    other = np.zeros(rows, np.bool_)
    other[rows - counts[2] :] = True
    order = dice.permutation(rows)
    events, other = events[order], other[order]
    files = [
        _write(folder / f"{name}-{at // ROWS_PER_FILE:03d}.parquet", events[part], other[part], day)
        for at in range(0, rows, ROWS_PER_FILE)
        if (part := slice(at, at + ROWS_PER_FILE))
    ]
    collided = np.unique(colliding)
    whole = Expected(new.size + collided.size, (_sum(new) + _sum(collided)) % 2**64)
    return RestInput(files, rows, Expected(new.size, _sum(new)), whole)


def id_sum(files: Sequence[str]) -> Expected:
    """Return what files have: their rows, and the sum of the numbers in their ids."""
    rows, total = 0, 0
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(1 << 20, columns=[ID]):
            column = batch.column(0).cast(pa.binary())
            raw = b"".join(column.to_pylist())
            words = np.frombuffer(binascii.unhexlify(raw), ">u8")
            rows, total = rows + len(batch), (total + int(words[1::2].sum(dtype=np.uint64))) % 2**64
    return Expected(rows, total)


def mixed(numbers: NDArray[Any], salt: int) -> NDArray[np.uint64]:
    """Return a hash of each number (the finalizer of SplitMix64)."""
    words = numbers.astype(np.uint64) + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % 2**64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _sum(events: NDArray[Any]) -> int:
    return int(mixed(events, 1).sum(dtype=np.uint64))


def _write(
    file: Path, events: NDArray[Any], other: NDArray[np.bool_] | None = None, day: int | None = None
) -> str:
    seconds = (mixed(events, 2) % np.uint64(DAYS * _DAY_S)).astype(np.int64)
    if day is not None:
        seconds = day * _DAY_S + seconds % _DAY_S
    times = np.datetime64("2026-01-01", "us") + (seconds * 1_000_000).astype("timedelta64[us]")
    amount = (mixed(events, 3) % np.uint64(1_000)).astype(np.int64)
    table = pa.table(
        {
            ID: _ids(events),
            TIME: pa.array(times).cast(pa.timestamp("us", "UTC")),
            "amount": amount if other is None else amount + 1_000 * other,
            "campaign": _texts("campaign-", mixed(events, 4) % np.uint64(50), 50),
            "page": _texts("page/", mixed(events, 5) % np.uint64(100_000), 100_000),
        }
    )
    pq.write_table(table, file, compression="zstd", row_group_size=250_000)
    return str(file)


def _ids(events: NDArray[Any]) -> Any:
    words = np.stack([mixed(events, 0), mixed(events, 1)], axis=1).astype(">u8")
    data = binascii.hexlify(words.tobytes())
    offsets = np.arange(events.size + 1, dtype=np.int32) * _HEX
    return pa.StringArray.from_buffers(events.size, pa.py_buffer(offsets), pa.py_buffer(data))


def _texts(begins: str, numbers: NDArray[np.uint64], most: int) -> Any:
    names = pa.array([f"{begins}{each}" for each in range(most)])
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names).cast(pa.string())
