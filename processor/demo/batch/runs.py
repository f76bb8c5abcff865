"""Runs `seqmark batch` over the archive, step by step, and checks all that counts after each.

1. Monday is made clean. 2. Tuesday's run is killed half way. 3. It is started again. 4. Wednesday, whose prices
are wrong. 5. Wednesday's files come once more, and its date is made again. One Spark in this process serves all
but the run that is killed, which is a process of its own, as a user starts it.

A worker goes on from here on a topic (`processor.demo.batch.stream`): the table is its history.
"""

from __future__ import annotations

import gc
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from processor.demo.batch.archive import DAYS, make_archive, write_day
from processor.demo.batch.check import (
    FAULT_COLUMNS,
    RECEIPT_COLUMNS,
    ROW_COLUMNS,
    ArchiveState,
    check_archive,
)
from processor.demo.processes import ran
from processor.errors import StopError
from spark_sink.batch.cluster import files_session
from spark_sink.batch.job import BatchJob, BatchOptions, BatchOutcome, BatchStep
from spark_sink.batch.reader import committed_files, committed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import StrEnum

    from processor.demo.batch.archive import ArchiveRow
    from processor.demo.batch.check import ArchiveCheck
    from processor.demo.batch.plan import ArchivePlan
    from spark_sink.batch.job import BatchAudience

    MakeJob = Callable[[BatchOptions, BatchAudience], BatchJob]

RUNS = ("monday", "tuesday", "wednesday")
AGAIN = "wednesday-corrected"
KILLED_AFTER = BatchStep.WRITTEN
"""Step 7: all its files are there, and no commit names one."""
_MASTER = "local[*,4]"
# A run of seconds: what the second compiler would make faster is over before it is done.


@dataclass(frozen=True, slots=True)
class KilledRun:
    """What a run that was killed has left.

    Attributes:
        signal: By which it ended.
        left: Files of rows that no commit names.
        counted: Rows of the run that count all the same.
    """

    signal: int
    left: int
    counted: int


@dataclass(frozen=True, slots=True)
class ArchiveRuns:
    """What came of all steps.

    Attributes:
        days: The rows of each day.
        outcomes: Of the runs that have committed, in order.
        checked: The last check.
        killed: What the killed run has left.
        wrong: Prices of Wednesday before it was made again, in cents.
        differences: Of all checks, for people.
        seconds: All together.
    """

    days: list[list[ArchiveRow]]
    outcomes: Sequence[BatchOutcome]
    checked: ArchiveCheck
    killed: KilledRun
    wrong: int
    differences: Sequence[str]
    seconds: float


class ArchiveWalkthrough:
    """Does the steps.

    Args:
        plan: Of this run.
        records: How many rows, all days together.
        seed: Of the rows.
        say: Told of each step.
        stop: Called between them; raises where the demo is to end.
    """

    def __init__(
        self, plan: ArchivePlan, records: int, seed: int, say: Callable[[str], None], stop: Callable[[], None]
    ) -> None:
        self._plan, self._say, self._stop = plan, say, stop
        self._days = make_archive(records, seed)
        gc.freeze()  # the rows stay to the end: the collector would look at each of them again and again
        self._outcomes: list[BatchOutcome] = []
        self._differences: list[str] = []

    def run(self, ready: Callable[[], None]) -> ArchiveRuns:
        """Do them all; ``ready`` is called when Spark has started.

        Raises:
            StopError: A run failed that should not have.
        """
        began, days = time.monotonic(), self._days
        with files_session("seqmark-demo", master=_MASTER, say=self._say) as session:
            make = partial(BatchJob, session, self._plan.batch)
            ready()
            self._commit(make, 1, 0)
            self._check("monday", ArchiveState(days[:1], list(RUNS[:1])))
            killed = self._kill(write_day(days[1], self._plan.raw))
            self._check("the killed run", ArchiveState(days[:1], list(RUNS[:1])))
            self._commit(make, 3, 1)
            self._check("tuesday", ArchiveState(days[:2], list(RUNS[:2])))
            self._commit(make, 4, 2)
            before = self._check("wednesday", ArchiveState(days, list(RUNS)))
            self._make_again(make)
            checked = self._check("wednesday made again", ArchiveState(days, list(RUNS), AGAIN))
        return ArchiveRuns(
            days=days,
            outcomes=self._outcomes,
            checked=checked,
            killed=killed,
            wrong=before.revenue[len(DAYS) - 1],
            differences=self._differences,
            seconds=time.monotonic() - began,
        )

    def _commit(self, make: MakeJob, step: int, day: int) -> None:
        """Let the run of a day commit."""
        files = write_day(self._days[day], self._plan.raw)
        again = ", once more" if RUNS[day] == "tuesday" else ""
        self._say(f"{step}. the files of {RUNS[day].capitalize()}, {DAYS[day]}{again}")
        self._run(make, BatchOptions([str(each) for each in files], RUNS[day]))

    def _make_again(self, make: MakeJob) -> None:
        """Replace Wednesday's files, and make its date again."""
        self._say(f"5. Wednesday's prices were wrong; its files come once more, and {DAYS[-1]} is made again")
        write_day(self._days[-1], self._plan.raw, corrected=True)
        self._run(make, BatchOptions((), AGAIN, DAYS[-1]))

    def _run(self, make: MakeJob, options: BatchOptions) -> None:
        self._stop()
        self._say(f"   $ seqmark batch {' '.join(self._arguments(options))}")
        outcome = make(options, _Quiet()).run()
        counts = outcome.counts
        told = ", ".join(f"{counts[key]:,} {key}" for key in ("read", "kept", "duplicates", "collisions"))
        self._say(f"   commit {outcome.commit} after {outcome.seconds:.1f} s: {told}")
        self._outcomes.append(outcome)
        self._stop()

    def _arguments(self, options: BatchOptions) -> list[str]:
        found = ["-c", str(self._plan.config)]
        for each in options.inputs:
            found += ["--input", each]
        found += ["--run", options.run or ""]
        return found if options.since is None else [*found, "--from", options.since]

    def _kill(self, files: Sequence[Path]) -> KilledRun:
        """Start Tuesday's run as a process, which is killed by SIGKILL after a step; return what is left.

        Raises:
            StopError: It failed in another way.
        """
        self._stop()
        self._say(f"2. the files of Tuesday, {DAYS[1]}; the run is killed (SIGKILL) after step 7, written")
        arguments = self._arguments(BatchOptions([str(each) for each in files], RUNS[1]))
        self._say(f"   $ seqmark batch {' '.join(arguments)}")
        done = ran({**self._plan.environ, "SEQMARK_FAULT_STEP": str(KILLED_AFTER)}, "batch", *arguments)
        if done.returncode != -signal.SIGKILL:
            raise StopError(f"the run to kill ended with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
        named = set(committed_files(self._plan.batch.output.path))
        there = {str(each) for each in Path(self._plan.batch.output.path).rglob("*.parquet")}
        rows = committed_rows(self._plan.batch.output.path, ["seqmark_run"])
        counted = sum(row["seqmark_run"] == RUNS[1] for row in rows)
        killed = KilledRun(signal.SIGKILL, len(there - named), counted)
        if not killed.left:
            self._differences.append("the run that was killed had written nothing yet")
        self._say(f"   it has left {killed.left:,} files of rows, and {killed.counted:,} rows that count")
        return killed

    def _check(self, when: str, state: ArchiveState) -> ArchiveCheck:
        """Compare all that counts with the truth, row by row."""
        self._stop()
        batch = self._plan.batch
        checked = check_archive(
            state,
            committed_rows(batch.output.path, ROW_COLUMNS),
            committed_rows(batch.duplicates or "", RECEIPT_COLUMNS),
            committed_rows(batch.quarantine or "", FAULT_COLUMNS),
        )
        self._differences += [f"after {when}: {each}" for each in checked.differences]
        agrees = "agree with the truth" if not checked.differences else "do NOT agree with the truth"
        rows = checked.kept.total() + checked.dropped.total() + checked.notes + checked.quarantined
        self._say(f"   {rows:,} rows of table, receipts and quarantine {agrees}")
        return checked


class _Quiet:
    """The job's audience: a run of seconds has no news."""

    def say(self, text: str) -> None:
        del text

    def done(self, step: StrEnum) -> None:
        del step
