"""Keeps what a clean table is: hash key, format, and what its ids, times and fingerprints are read from.

Written once, with the first run. Ids under another key, or of other columns, would never meet those that are
there: a definition that has changed is refused.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.errors import StopError
from spark_sink.batch.table.layout import put_if_absent

if TYPE_CHECKING:
    from schemas.config import FileBatch
    from spark_sink.batch.table.layout import TableLayout

_VERSION = 1
KEY_BYTES = 16


class TableDefinition(NamedTuple):
    """What a table is.

    Attributes:
        key: 16 bytes, the secret of its hashes and of its new ids.
        columns: What the hashes are of, and the table's format unless it is plain Parquet.
    """

    key: bytes
    columns: dict[str, Any]


def open_definition(layout: TableLayout, batch: FileBatch, *, keep: bool) -> TableDefinition:
    """Return the table's definition, made where there is none yet.

    Args:
        layout: Where the table lies.
        batch: What it should be.
        keep: Whether one that is made is written down.

    Raises:
        StopError: It is another.
    """
    fingerprint = None if batch.fingerprint is None else {"exclude": sorted(set(batch.fingerprint.exclude))}
    columns = {
        "id": batch.id,
        "normalise": batch.normalise,
        "event_time": batch.event_time,
        "fingerprint": fingerprint,
        "format": batch.output.format,
    }
    file = layout.own / "table.json"
    if not file.exists():
        if next((layout.own / "commits").glob("*.json"), None) is not None:
            raise StopError(
                f"{file} is missing, and there are commits beside it: without the key in it no id that was "
                "kept would be found again; restore it from a backup"
            )
        made = TableDefinition(os.urandom(KEY_BYTES), columns)
        if not keep:
            return made
        put_if_absent(file, json.dumps({"version": _VERSION, "key": made.key.hex(), **columns}, indent=1))
    key, read = read_definition(layout)
    if changed := [name for name, wanted in columns.items() if read.get(name) != wanted]:
        told = "; ".join(
            f"{name} was {json.dumps(read.get(name))} and is {json.dumps(columns[name])}" for name in changed
        )
        raise StopError(
            f"batch {batch.name}: {told}. What is in {layout.output} was made by the old definition: set it "
            "back, or name another output"
        )
    return TableDefinition(key, columns)


def read_definition(layout: TableLayout) -> TableDefinition:
    """Return the definition of a table that is there.

    Raises:
        FileNotFoundError: There is none.
        StopError: It is damaged, or of a later version.
    """
    file = layout.own / "table.json"
    try:
        read = json.loads(file.read_text())
        version, key = read.pop("version"), bytes.fromhex(read.pop("key"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StopError(f"{file} is damaged ({error}); restore it from a backup") from error
    if version != _VERSION:
        raise StopError(f"{file}: version {version}, this Seqmark reads {_VERSION}; install a newer one")
    if lacks := {"id", "fingerprint", "normalise"} - read.keys():
        raise StopError(f"{file} is damaged (it lacks {min(lacks)}); restore it from a backup")
    return TableDefinition(key, read)
