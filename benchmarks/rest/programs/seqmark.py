"""Makes files clean by `seqmark batch`, as its command does it, in one session.

What reading and writing take of it is measured beside it: the columns of id and time of the same input, and
the rows that were kept, are read, and these are written once more, by the same writer, into as many files. The
hashes of the table, which a run reads too, are not: they count as judging.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rest.protocol import (
    CLEANED,
    COPIED,
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
from spark_sink.batch.rows.data_files import DataFiles
from spark_sink.batch.rows.parquet_rows import ROWS_AT_A_TIME, open_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from enum import StrEnum


class _Quiet:
    """Is told how far a run is, and tells nobody."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def done(self, step: StrEnum) -> None:
        """Do what the command does."""
        reached(step)


def copy(inputs: Sequence[str], kept: Iterable[Path], folder: Path) -> None:
    """Read what a run has read of its input, and write what it has written, see the module."""
    for name in inputs:
        for _ in pq.ParquetFile(name).iter_batches(ROWS_AT_A_TIME, columns=[ID, TIME], use_threads=False):
            pass
    # As the run has them: one text for all rows.
    texts = ("seqmark_run", "seqmark_file")
    with DataFiles(str(folder), str(folder), COPIED, distinct=ID) as files:
        for day, file in enumerate(kept):
            with open_parquet(str(file), coded=texts) as parquet:
                for batch in parquet.iter_batches(ROWS_AT_A_TIME, use_threads=False):
                    files.write(pa.Table.from_batches([batch]), np.full(len(batch), day))


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
            kept = parquet_files(clean) - before
            marks.say(CLEANED, kept)
            if step.copied:
                copy(step.inputs, sorted(kept), Path(job.folder) / COPIED)
                marks.say(COPIED)


if __name__ == "__main__":
    main()
