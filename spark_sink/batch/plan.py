"""Says what the tasks of one run have to know; it travels to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_sink.batch.rows.constants import Constant


class Split(NamedTuple):
    """What one task reads: an input file, or some row groups of one.

    Attributes:
        number: Of the split, from 0 on, in the order of files and rows.
        file: Number of its file in ``RunPlan.files``.
        first_row: The number of its first row in that file.
        first_group: Its first row group.
        groups: How many of them; 0 of JSON lines, which are one whole file.
    """

    number: int
    file: int
    first_row: int = 0
    first_group: int = 0
    groups: int = 0


class RunPlan(NamedTuple):
    """One attempt of one run.

    Attributes:
        batch: The batch's name.
        run: The run's name.
        number: Of the commit that it will be.
        attempt: A name of its own, in what it writes.
        staging: Folder for what is put aside.
        output: Folder of the table.
        folders: By kind of file, where it goes; None: nowhere.
        format: Of the input's files, ``json``, ``parquet`` or ``kafka``: records that were put aside.
        files: Paths of the input files, by base name; rows of one time are judged in this order.
        names: Their base names.
        id: Columns of the id.
        event_time: Column of the event's time.
        window_us: How far apart two copies are.
        key: The table's secret.
        exclude: Columns that do not count in fingerprints; None: there are none.
        on_collision: What becomes of a collision.
        renamed: The column that gets new ids; None: none does.
        rename_first: Whether the first of rows that collide is renamed too.
        since_day: The first date that is made; None: all are.
        buckets: Groups of ids that are judged by themselves, a power of two.
        schema: Columns of the table's rows as the input has them, in Arrow's form; empty: not known yet.
        constants: Of each input file the columns that stand beside it; empty: none has any.
        declared: Columns whose types the config gives, in Arrow's form; empty: there are none.
        known: Columns of the table that is there, in Arrow's form; empty: there is none.
    """

    batch: str
    run: str
    number: int
    attempt: str
    staging: str
    output: str
    folders: dict[str, str | None]
    format: str
    files: list[str]
    names: list[str]
    id: list[str]
    event_time: str
    window_us: int
    key: bytes
    exclude: list[str] | None
    on_collision: str
    renamed: str | None
    rename_first: bool
    since_day: int | None
    buckets: int
    schema: str = ""
    constants: Sequence[Sequence[Constant]] = ()
    declared: str = ""
    known: str = ""
