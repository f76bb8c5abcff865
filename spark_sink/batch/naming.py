"""Names a run, and finds the commit that it already has."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import StopError
from spark_sink.batch.table.commits import RUN

if TYPE_CHECKING:
    from schemas.config import FileBatch
    from spark_sink.batch.inputs import RunInputs
    from spark_sink.batch.table.commits import Commit, Snapshot


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
