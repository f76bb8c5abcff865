"""Says up to which number the commits of a table count, where the table's own log decides it. Needs no JVM.

A commit of ours and the commit of a Delta or Iceberg table are two files; the second makes the first count, by
its number, which stands in it, and a mark of its text:

    Delta     the transaction of the application "seqmark" has the number as version, "seqmark.mark" its mark
    Iceberg   the properties "seqmark.number" and "seqmark.mark" have them

Runs that die one after the other can put several files of one number, and any of them may be the one that the
table has committed: the mark says which. Tables of earlier versions have none.

So the log is read from its end, as far as it takes to find one number. Who reads rows lets Spark read the log.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from processor.errors import StopError

if TYPE_CHECKING:
    from pathlib import Path

    from spark_sink.batch.table.layout import TableLayout

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
APPLICATION = "seqmark"
"""Of Delta's transactions. One name for all tables: a log that has it is that of a table of ours."""
NUMBER, MARK = "seqmark.number", "seqmark.mark"
_MARK_BITS = 40
"""Of the commit's SHA-256: one in 10^12 is taken for another; 23 bits are left for 8 million commits."""
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..+)?\.(parquet|json)")
_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json")


class Counted(NamedTuple):
    """The last commit that counts.

    Attributes:
        number: Its number; 0: none does.
        mark: Of its file, see `mark_of`; 0: the log does not say.
    """

    number: int
    mark: int

    @classmethod
    def of(cls, number: int, mark: int) -> Counted:
        """Return what a log says; a mark of another number was left by a version that writes none."""
        return cls(number, mark if mark >> _MARK_BITS == number else 0)


def mark_of(number: int, sha256: str) -> int:
    """Return the mark of a commit's file, positive and of 63 bits, as a version of Delta's transactions is."""
    return number << _MARK_BITS | int(sha256[: _MARK_BITS // 4], 16)


def table_format(layout: TableLayout) -> str:
    """Return the format of a table that is there."""
    try:
        return str(json.loads((layout.own / "table.json").read_text()).get("format", PARQUET))
    except FileNotFoundError:
        return PARQUET
    except (ValueError, AttributeError) as error:
        raise StopError(
            f"{layout.own / 'table.json'} is damaged ({error}); restore it from a backup"
        ) from error


def counted_commits(layout: TableLayout) -> Counted | None:
    """Return the last commit that counts; None: all that are put do.

    Raises:
        StopError: The table's log cannot be read.
    """
    found = {DELTA: delta_counted, ICEBERG: iceberg_counted}.get(table_format(layout))
    if found is None:
        return None
    try:
        return found(layout.output)
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError) as error:
        raise StopError(
            f"the table's log in {layout.output} cannot be read ({error}); restore the folder from a backup"
        ) from error


def delta_counted(table: Path) -> Counted:
    """Return the commit that a Delta log has last.

    Args:
        table: Folder of the table.
    """
    log = table / "_delta_log"
    names = [each.name for each in log.iterdir()] if log.is_dir() else []
    versions = {int(match[1]): name for name in names if (match := _VERSION.fullmatch(name))}
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(match[1]), []).append(name)
    for version in sorted({*versions, *checkpoints}, reverse=True):
        parts = [_actions((log / versions[version]).read_text())] if version in versions else []
        parts += [_checkpoint(log / name) for name in checkpoints.get(version, [])]
        actions = [each for part in parts for each in part]
        if (number := _version_of(actions, APPLICATION)) is not None:
            return Counted.of(number, _version_of(actions, MARK) or 0)
    return Counted(0, 0)


def _actions(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _checkpoint(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".json":
        return _actions(file.read_text())
    with pq.ParquetFile(file) as parquet:
        if "txn" not in parquet.schema_arrow.names:
            return []
        rows: list[dict[str, Any]] = parquet.read(columns=["txn"]).to_pylist()
    return rows


def _version_of(actions: list[dict[str, Any]], application: str) -> int | None:
    found = [each["txn"]["version"] for each in actions if (each.get("txn") or {}).get("appId") == application]
    return int(max(found)) if found else None


def iceberg_counted(table: Path) -> Counted:
    """Return the commit that the last metadata of an Iceberg table has.

    Args:
        table: Folder of the table.
    """
    folder = table / "metadata"
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    versions = {int(match[1]): name for name in names if (match := _METADATA.fullmatch(name))}
    if not versions:
        return Counted(0, 0)
    last = folder / versions[max(versions)]
    raw = last.read_bytes()
    properties = json.loads(gzip.decompress(raw) if ".gz." in last.name else raw)["properties"]
    return Counted.of(int(properties.get(NUMBER, 0)), int(properties.get(MARK, 0)))
