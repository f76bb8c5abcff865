"""Adds to kept rows what makes the clean table its own manifest, and makes receipts and quarantined rows.

seqmark_low, seqmark_high   int64, the id's hash, under the table's key
seqmark_fingerprint         int64, null without fingerprints
seqmark_time, seqmark_date  when the event was, in UTC
seqmark_run, seqmark_file, seqmark_row   where the row comes from; rows are numbered from 0 on
seqmark_collision           with on_collision "tag": the row it collides with, FILE:ROW
seqmark_original_id         with on_collision "rename": the old id of a row that has a new one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan
    from spark_sink.batch.staging import Name

TIME = pa.timestamp("us", "UTC")
_OWN = [
    ("seqmark_low", pa.int64()),
    ("seqmark_high", pa.int64()),
    ("seqmark_fingerprint", pa.int64()),
    ("seqmark_time", TIME),
    ("seqmark_date", pa.date32()),
    ("seqmark_run", pa.string()),
    ("seqmark_file", pa.string()),
    ("seqmark_row", pa.int64()),
    ("seqmark_collision", pa.string()),
    ("seqmark_original_id", pa.string()),
]
OWN_NAMES = [name for name, _ in _OWN]
OWN_SCHEMA = pa.schema(_OWN)
RECEIPTS = pa.schema(
    [
        ("batch", pa.string()),
        ("run", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("event_time", TIME),
        ("verdict", pa.string()),
        ("id", pa.list_(pa.field("element", pa.string()))),
        ("owner", pa.struct([("file", pa.string()), ("row", pa.int64()), ("run", pa.string())])),
        ("fingerprint", pa.string()),
        ("action", pa.string()),
        ("new_id", pa.string()),
    ]
)
WHY = ["seqmark_error", "seqmark_detail", "seqmark_source"]
LINE = "seqmark_line"
"""The column of a quarantined line of JSON, as it came."""


class JudgedRow(NamedTuple):
    """One row that is dropped or collides, as its receipt says."""

    row: int
    time_us: int
    verdict: str
    id: list[str]
    owner: Name
    owner_row: int
    fingerprint: str | None
    action: str | None
    new_id: str | None


def receipts(plan: RunPlan, name: str, judged: Sequence[JudgedRow]) -> Any:
    """Return receipts as a table.

    Args:
        plan: Of the run.
        name: The file's base name.
        judged: Rows of it.
    """
    rows = [
        {
            "batch": plan.batch,
            "run": plan.run,
            "file": name,
            "row": each.row,
            "event_time": each.time_us,
            "verdict": each.verdict,
            "id": each.id,
            "owner": {"file": each.owner[0], "row": each.owner_row, "run": each.owner[1]},
            "fingerprint": each.fingerprint,
            "action": each.action,
            "new_id": each.new_id,
        }
        for each in judged
    ]
    columns = [pa.array([each[field.name] for each in rows], field.type) for field in RECEIPTS]
    return pa.table(columns, schema=RECEIPTS)


class OwnValues(NamedTuple):
    """What rows get, one value per row.

    Attributes:
        keys: int64[n, 5], as staged.
        days: int64[n], their dates.
        collision: The row that each collides with, FILE:ROW; None: none.
        original_id: The old id of each that has a new one; None: it has none.
    """

    keys: NDArray[Any]
    days: NDArray[Any]
    collision: Any | None
    original_id: Any | None


def with_own(table: Any, values: OwnValues, plan: RunPlan, name: str) -> Any:
    """Return rows with the columns of ours."""
    keys, count = values.keys, len(table)
    prints = pa.array(keys[:, 2]) if plan.exclude is not None else pa.nulls(count, pa.int64())
    made = [
        pa.array(keys[:, 0]),
        pa.array(keys[:, 1]),
        prints,
        pa.array(keys[:, 3]).cast(TIME),
        pa.array(values.days.astype("int32")).cast(pa.date32()),
        _repeated(plan.run, count),
        _repeated(name, count),
        pa.array(keys[:, 4]),
        values.collision if values.collision is not None else pa.nulls(count, pa.string()),
        values.original_id if values.original_id is not None else pa.nulls(count, pa.string()),
    ]
    own = [pa.field(name, each.type) for name, each in zip(OWN_NAMES, made, strict=True)]
    return pa.table([*table.columns, *made], schema=pa.schema([*table.schema, *own]))


def _repeated(text: str, count: int) -> Any:
    """Return the same text for all rows, as a dictionary: files have one as well, and nothing is hashed."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def with_reasons(table: Any, codes: Sequence[str], details: Sequence[str], sources: Sequence[str]) -> Any:
    """Return quarantined rows with why and where from."""
    for name, texts in zip(WHY, (codes, details, sources), strict=True):
        table = table.append_column(name, pa.array(texts, pa.string()))
    return table
