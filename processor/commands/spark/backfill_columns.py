"""Reads ``--columns``: which columns of a history are the parts of an id, its time and its place.

With what else a command line says it is an `AskedBackfill`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.errors import ConfigError, Problem, StopError
from schemas.config.dedup import (
    AnyId,
    ColumnId,
    ContentId,
    HeaderId,
    KeyId,
    TextId,
    ValueId,
    plain_parts,
)
from schemas.config.values import is_deep_pointer, is_pointer
from schemas.near import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from processor.engine.rest import Normal
    from processor.reset.backfill.intake.cuts import CutChoice
    from schemas.config import InsertIdDedup, Pipeline, Settings
    from schemas.config.dedup import IdPart
    from spark_sink.backfill.job import CleanTable, HistoryFiles
    from spark_sink.backfill.plan import HistoryColumns

_OPTION = "--columns"
_KNOWN = ("id", "time", "partition", "key", "offset", "ignore")
_SEVERAL = ("id", "ignore")
_BATCH_TIME = "seqmark_time"


class AskedBackfill(NamedTuple):
    """The command line, checked.

    Attributes:
        settings: The whole config.
        pipeline: One of it.
        history: Path or topic.
        kind: Its format.
        columns: What its columns mean; None: it is a topic.
        files: Its files; None: it is a topic.
        run: Name of the backfill.
        cut: What is said of the cut.
        staging: Folder for what is staged; None: that of the config.
        master: Where Spark runs.
        memory: Its heap.
    """

    settings: Settings
    pipeline: Pipeline
    history: str
    kind: str
    columns: HistoryColumns | None
    files: HistoryFiles | None
    run: str
    cut: CutChoice
    staging: Path | None
    master: str
    memory: str


def read_columns(given: Sequence[str]) -> dict[str, list[str]]:
    """Return what ``id=a,b,time=c`` names, by what it is for.

    Raises:
        ConfigError: It is not of that form, or names something unknown or twice.
    """
    found: dict[str, list[str]] = {}
    last: list[str] | None = None
    for text in ",".join(given).split(",") if given else []:
        name, equals, column = text.partition("=")
        if equals:
            if name not in _KNOWN:
                hint = f"{did_you_mean(name, _KNOWN)} There are {listed(_KNOWN)}".lstrip()
                raise _refused_columns(f"there is no {name}; {hint}")
            if name in found:
                raise _refused_columns(f"{name} is given twice; several columns follow each other: id=COL,COL")
            last = found.setdefault(name, [])
        else:
            column = text
        if last is None or not column:
            raise _refused_columns(f"{text!r} is not NAME=COL, such as id=event_id,time=occurred_at")
        last.append(column)
    for name, columns in found.items():
        if name not in _SEVERAL and len(columns) > 1:
            raise _refused_columns(f"{name} is one column, not {listed(columns)}")
    return found


def history_columns(given: Sequence[str], kind: str, dedup: InsertIdDedup) -> HistoryColumns:
    """Return what the columns of a history mean, with defaults for the parts of the id.

    Args:
        given: Of the command line.
        kind: Format of the history.
        dedup: Of the pipeline.

    Raises:
        ConfigError: A part or the time has no column, or the pipeline's ids cannot be read from a history.
    """
    from spark_sink.backfill.plan import HistoryColumns, IdSource  # noqa: PLC0415 - of the extra `spark`

    found = read_columns(given)
    if "time" not in found and kind != "batch":
        raise _refused_columns(
            "time=COL is missing: the column with the time that each id was delivered at, or of its event"
        )
    if "id" in found and len(found["id"]) != len(dedup.id):
        raise _refused_columns(
            f"id has {len(found['id'])} columns, and the ids of the pipeline have {len(dedup.id)} parts"
        )
    _require_readable(dedup)
    names = found.get("id") or [_default(part, kind) for part in dedup.id]
    ids = [
        IdSource(
            _as_column(name, kind, is_deep_pointer),
            isinstance(part, HeaderId | KeyId | ColumnId | TextId),
            _normal(part),
        )
        for name, part in zip(names, dedup.id, strict=True)
    ]
    one = {
        name: _as_column(found[name][0], kind)
        for name in ("time", "partition", "key", "offset")
        if name in found
    }
    ignore = [_as_column(each, kind) for each in found.get("ignore", [])]
    return HistoryColumns(
        ids,
        one.get("time", _BATCH_TIME),
        one.get("partition"),
        one.get("key"),
        one.get("offset"),
        ignore,
    )


def require_alike(table: CleanTable, columns: HistoryColumns, dedup: InsertIdDedup, path: str) -> None:
    """Refuse a clean table whose hashes are not those that the stream would make with the table's key.

    Raises:
        StopError: Names the difference.
    """
    wanted = [each.column for each in columns.id]
    known = [name for name, _ in table.id]
    if wanted != known:
        raise StopError(
            f"the ids of {path} are made of {listed(known)}, and those of the pipeline of {listed(wanted)}: "
            f"they would never meet. If they are the same, say so: --columns id={','.join(known)}"
        )
    normal = {each.column: each.normal for each in columns.id}
    if otherwise := [name for name, how in normal.items() if how != table.normal[name]]:
        raise StopError(
            f"{listed(otherwise)} of {path} is not normalised as in the pipeline's ids: ids of the two would "
            "never meet. Give the batch's input as the history: --format parquet or json"
        )
    for source, (name, as_bytes) in zip(columns.id, table.id, strict=True):
        if source.as_bytes != as_bytes:
            has, stream = (
                "bytes" if as_bytes else "texts or numbers",
                "bytes" if source.as_bytes else "a JSON value",
            )
            raise StopError(
                f"column {name} of {path} has {has}, and the stream has {stream} there: ids of the two would "
                "never meet. Give the batch's input as the history: --format parquet or json"
            )
    if dedup.fingerprint is None:
        return
    excluded = sorted(dedup.fingerprint.exclude)
    if table.exclude is None or sorted(f"/{each}" for each in table.exclude) != excluded:
        raise StopError(
            f"the fingerprints of {path} are of other content than the pipeline's: of the batch, exclude is "
            f"{table.exclude}, of the pipeline {excluded}"
        )


def _require_readable(dedup: InsertIdDedup) -> None:
    if any(isinstance(part, ContentId) for part in plain_parts(dedup.id)):
        raise _refused("its ids are made of the record's content, which a file's columns are not: backfill it")
    counted = dedup.fingerprint
    if counted is not None and (counted.of == "bytes" or counted.headers):
        raise _refused("its fingerprints are of bytes or headers of the record, which no file has: backfill it")


def _refused(why: str) -> ConfigError:
    return ConfigError([Problem("--format", f"{why} from a topic, with --format topic")])


def _default(part: IdPart, kind: str) -> str:
    match part:
        case ValueId():
            return part.pointer if kind == "json" else _last_member(part.pointer)
        case HeaderId():
            return part.name
        case KeyId():
            return "key"
        case AnyId():
            return _default(part.any[0], kind)
        case ColumnId() | TextId():
            raise _refused_columns(
                "id=COL is missing: the pipeline's ids are made of text, which names no columns"
            )
        case ContentId():
            raise AssertionError(part)  # was refused


def _normal(part: IdPart) -> Normal:
    """Return what does not count of a part; of several it has to be the same."""
    from processor.engine.rest import Normal  # noqa: PLC0415 - slow to import

    inherited = None if isinstance(part, ContentId) else part.normalise
    every = {each.normalise or inherited for each in plain_parts([part]) if not isinstance(each, ContentId)}
    if len(every) > 1:
        raise _refused("parts of any are normalised in several ways, and a column is in one: backfill it")
    (how,) = every
    return Normal.of(how)


def _last_member(pointer: str) -> str:
    """Return the name of the member that a JSON pointer leads to."""
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _as_column(name: str, kind: str, may_be: Callable[[str], bool] = is_pointer) -> str:
    """Return what a reader looks for: of JSON a pointer, which a plain name is one level of."""
    if kind != "json":
        return name
    if name.startswith("/"):
        if not may_be(name):
            raise _refused_columns(f"{name} is no JSON pointer (RFC 6901)")
        return name
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _refused_columns(message: str) -> ConfigError:
    """Return what says that ``--columns`` is wrong."""
    return ConfigError([Problem(_OPTION, message)])


def columns_said(columns: HistoryColumns) -> Iterable[tuple[str, object]]:
    """Yield what the columns are, as a note that can be compared later keeps it."""
    normal = {each.column: each.normal.name for each in columns.id if each.normal}
    yield "id", [[each.column, each.as_bytes] for each in columns.id]
    if normal:
        yield "normal", normal
    for name in ("time", "partition", "key", "offset"):
        yield name, getattr(columns, name)
    yield "ignore", list(columns.ignore)
