"""Reads ``--columns`` of a pipeline of mode watermark: which have the sequence, the epoch and the scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.commands.spark.backfill_columns import (
    as_column,
    last_member,
    read_columns,
    refused_columns,
)
from processor.errors import ConfigError, Problem
from schemas.config import HeaderSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.reset.backfill.intake.cuts import CutChoice
    from schemas.config import WatermarkDedup
    from schemas.config.dedup import SequenceSource
    from spark_sink.backfill.plan import HistoryColumns, NumberSource

KNOWN = ("sequence", "epoch", "scope", "key", "partition", "offset", "time")


def sequence_columns(
    given: Sequence[str], kind: str, dedup: WatermarkDedup, choice: CutChoice
) -> HistoryColumns:
    """Return what the columns of a history mean, with defaults for the sequence, the epoch and the scope.

    Args:
        given: Of the command line.
        kind: Format of the history.
        dedup: Of the pipeline.
        choice: What is said of the cut.

    Raises:
        ConfigError: Something is named that the pipeline does not judge by, or lacks for the cut.
    """
    from spark_sink.backfill.plan import HistoryColumns, SequenceSources  # noqa: PLC0415 - of the extra `spark`

    if kind == "batch":
        raise ConfigError(
            [
                Problem(
                    "--format",
                    "a batch remembers ids, and the pipeline is of mode watermark: give the files themselves, "
                    "--format parquet or json",
                )
            ]
        )
    found = {name: columns[0] for name, columns in read_columns(given, KNOWN).items()}
    _require_fitting(found, dedup, choice)
    one = {name: as_column(column, kind) for name, column in found.items()}
    sources = SequenceSources(
        _number(dedup.sequence, found.get("sequence"), kind),
        None if dedup.epoch is None else _number(dedup.epoch, found.get("epoch"), kind),
        _scope(dedup.scope, found, kind),
        dedup.reorder_window,
    )
    places = one.get("partition"), one.get("key"), one.get("offset")
    return HistoryColumns([], one.get("time"), *places, sequences=sources)


def _require_fitting(found: dict[str, str], dedup: WatermarkDedup, choice: CutChoice) -> None:
    if "epoch" in found and dedup.epoch is None:
        raise refused_columns("epoch names a column, and the pipeline has no epoch")
    if "scope" in found and not dedup.scope.startswith("header:"):
        key = ": its column is key=COL" if dedup.scope == "key" else ""
        raise refused_columns(f'scope names a column, and the pipeline\'s scope is "{dedup.scope}"{key}')
    by_time = choice.leave_out and choice.time_ms is not None and "offset" not in found
    if by_time and "time" not in found:
        raise refused_columns(
            "time=COL is missing: by it --up-to-cut tells what lies before --cut-time, where no column has "
            "the offsets"
        )
    if "time" in found and not by_time:
        raise refused_columns(
            "time is not needed: sequences have none. It goes with --up-to-cut and --cut-time, without offset"
        )


def _number(source: SequenceSource, name: str | None, kind: str) -> NumberSource:
    from spark_sink.backfill.plan import NumberSource  # noqa: PLC0415 - of the extra `spark`

    text = source.format == "text"
    if isinstance(source, HeaderSource):
        column = as_column(name or source.name, kind)
        return NumberSource(column, texts=text, numbers=True, narrow=source.format == "int32")
    default = source.pointer if kind == "json" else last_member(source.pointer)
    # A line of JSON is read as a record's value is.
    numbers = not text or kind != "json"
    return NumberSource(as_column(name or default, kind), texts=text, numbers=numbers, narrow=False)


def _scope(scope: str, found: dict[str, str], kind: str) -> str | None:
    if scope == "partition":
        return None
    if scope == "key":
        return as_column(found.get("key", "key"), kind)
    return as_column(found.get("scope", scope.removeprefix("header:")), kind)
