"""Makes files clean by `seqmark batch`, as its command does it, in one session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rest.protocol import (
    CLEANED,
    ID,
    REMEMBERED,
    STARTED,
    TIME,
    ProgramMarks,
    RestJob,
    parquet_files,
)
from processor.ops.fault_points import reached
from schemas.config import Settings
from spark_sink.batch.cluster import files_session
from spark_sink.batch.job import BatchJob, BatchOptions

if TYPE_CHECKING:
    from enum import StrEnum


class _Quiet:
    """Is told how far a run is, and tells nobody."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def done(self, step: StrEnum) -> None:
        """Do what the command does."""
        reached(step)


def main() -> None:
    """Do the job."""
    marks, job = ProgramMarks(), RestJob.of_arguments()
    clean = Path(job.folder) / "clean"
    with files_session("rest") as spark:
        marks.say(STARTED)

        def run(inputs: list[str], window: str) -> None:
            table = {
                "name": "rest",
                "input": {"format": "parquet", "path": str(Path(job.folder) / "raw")},
                "output": {"format": "parquet", "path": str(clean)},
                "id": [ID],
                "event_time": TIME,
                "window": window,
                **({"fingerprint": {}} if job.fingerprints else {}),
            }
            batch = Settings.model_validate({"batches": [table]}).batches[0]
            BatchJob(spark, batch, BatchOptions(inputs), _Quiet()).run()

        run(job.history, job.steps[0].window)
        marks.say(REMEMBERED)
        for step in job.steps:
            before = parquet_files(clean)
            run(step.inputs, step.window)
            marks.say(CLEANED, parquet_files(clean) - before)


if __name__ == "__main__":
    main()
