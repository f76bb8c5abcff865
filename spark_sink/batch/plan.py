"""Names a run, finds the commit that it already has, and says what its tasks have to know."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import StopError
from spark_sink.batch.table.commits import RUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.rest import Normal
    from schemas.config import FileBatch
    from spark_sink.batch.inputs import RunInputs
    from spark_sink.batch.rows.constants import Constant
    from spark_sink.batch.table.commits import Commit, Snapshot


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
    """One attempt of one run; it travels to its tasks.

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
        normal: Of each what does not count of it.
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
    normal: list[Normal]
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


class NamedRun(NamedTuple):
    """A run and its commit; None: it has none yet."""

    name: str
    commit: Commit | None


def name_run(
    inputs: RunInputs, given: str | None, since: str | None, snapshot: Snapshot, batch: FileBatch
) -> NamedRun:
    """Return the name of a run and its commit.

    Without a name that is given, a run is named by its inputs. What is made again from a date on is a run of
    its own; done once more right after itself, by the same rules, it is the same one. Where nothing has come
    into a topic since the last run over it, that is the run.

    Raises:
        StopError: A run of this name has committed over other inputs, or for other dates.
    """
    if given is None and (latest := inputs.latest()) is not None:
        return NamedRun(latest.run, latest)
    name = given or inputs.identity()
    if since is not None and given is None:
        runs = [each for each in snapshot.commits if each.kind == RUN]
        begins = f"{name}-by-{_rules(batch)}-from-{since}-"
        again = runs and runs[-1].run.startswith(begins)
        name = runs[-1].run if again else f"{begins}{len(snapshot.commits) + 1}"
    commit = snapshot.of_run(name)
    if commit is not None:
        inputs.require_same(commit)
        if commit.since != since:
            raise StopError(
                f"run {name} has committed {_dates(commit.since)}, and is asked for {_dates(since)}: give "
                f"this run "
                "a name of its own"
            )
    return NamedRun(name, commit)


def _rules(batch: FileBatch) -> str:
    """Return a name of what may change between runs: it is applied to what is there by making it again."""
    rules = {"window", "on_collision", "rename", "rename_first", "duplicates", "quarantine"}
    told = json.dumps(batch.model_dump(mode="json", include=rules), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:8]


def _dates(since: str | None) -> str:
    return "all dates" if since is None else f"the dates from {since} on"
