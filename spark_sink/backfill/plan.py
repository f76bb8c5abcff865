"""Says what of a history's rows is read, and by what; it travels to the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.engine.rest import Normal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_sink.batch.rows.constants import Constant


class IdSource(NamedTuple):
    """Where a part of the id stands.

    Attributes:
        column: Of a table its name, of JSON lines a pointer (RFC 6901).
        as_bytes: Whether the stream has it as bytes, in a header or the key; otherwise it is a string, a number
            or a boolean of a JSON value.
        normal: What does not count of it.
    """

    column: str
    as_bytes: bool
    normal: Normal = Normal.NONE


class HistoryColumns(NamedTuple):
    """What a history's columns mean; of JSON lines they are pointers.

    Attributes:
        id: The parts of an id, in their order.
        time: Of the event, or of the record.
        partition: Of the source; None: it is made of the key, or there is one only.
        key: By which producers chose the partition; None: it is not needed.
        offset: In the source; None: not known.
        ignore: What else is not of the record's value, and does not count in fingerprints.
    """

    id: list[IdSource]
    time: str
    partition: str | None = None
    key: str | None = None
    offset: str | None = None
    ignore: Sequence[str] = ()

    @property
    def beside_value(self) -> list[str]:
        """What is not of the record's value: where it stood, and its headers."""
        headers = [each.column for each in self.id if each.as_bytes]
        places = [each for each in (self.partition, self.offset) if each is not None]
        return list(dict.fromkeys([*places, *headers, *self.ignore]))

    @property
    def texts(self) -> set[str]:
        """What the stream has as bytes: headers and keys."""
        bytes_of = {each.column for each in self.id if each.as_bytes}
        return bytes_of if self.key is None else {*bytes_of, self.key}


class HistoryPlan(NamedTuple):
    """One preparation.

    Attributes:
        format: "parquet", "json", "delta" or "batch" (the clean table of a batch: its rows have hashes).
        folder: Where hashed rows are put.
        files: Paths of the history's files.
        columns: What they mean.
        partitions: How many the source has.
        secret: 16 bytes, the key of the hashes.
        exclude: Pointers to what does not count in fingerprints; None: there are none.
        before: By partition the offset from which on rows are left out; None: none are.
        before_ms: The time from which on rows are left out; None: none are.
        route: Over how many partitions ids are sent by their hash; None: they stay in that of their row.
        constants: Of each file the columns that stand beside it; empty: none has any.
    """

    format: str
    folder: str
    files: list[str]
    columns: HistoryColumns
    partitions: int
    secret: bytes
    exclude: list[str] | None
    before: list[int] | None = None
    before_ms: int | None = None
    route: int | None = None
    constants: Sequence[Sequence[Constant]] = ()

    @property
    def places(self) -> int:
        """How many partitions ids are remembered in."""
        return self.partitions if self.route is None else self.route

    @property
    def needs_partition(self) -> bool:
        """Whether nothing is known of a row that does not say its partition: where it belongs, or its cut."""
        return self.route is None or self.columns.offset is not None
