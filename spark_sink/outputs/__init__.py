"""Outputs of aggregates, a module for each kind; `open_output` gives the one that an aggregate names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from spark_sink.outputs.output import OutputPlace, SinkOutput


def open_output(place: OutputPlace) -> SinkOutput:
    """Return the output that the aggregate's config names.

    Raises:
        StopError: What it needs is not installed.
    """
    kind = place.sink.output.kind
    # Each is imported where it is asked for: one may need a library that the others do without.
    if kind == "parquet":
        from spark_sink.outputs.parquet import ParquetFiles  # noqa: PLC0415 - see above

        return ParquetFiles(place)
    if kind == "kafka":
        from spark_sink.outputs.kafka import CompactedTopic  # noqa: PLC0415 - see above

        return CompactedTopic(place)
    if kind == "console":
        from spark_sink.outputs.console import Terminal  # noqa: PLC0415 - see above

        return Terminal(place)
    if kind in {"delta", "iceberg"}:
        from spark_sink.outputs.lake import ClosedWindows  # noqa: PLC0415 - see above

        return ClosedWindows(place)
    if kind == "postgres":
        from spark_sink.outputs.postgres.output import PostgresTable  # noqa: PLC0415 - see above

        return PostgresTable(place)
    raise StopError(f"aggregate {place.sink.name}: there is no output of kind {kind} in this version")
