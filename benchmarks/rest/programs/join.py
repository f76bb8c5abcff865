"""Makes files clean by Spark's `dropDuplicates` and a left-anti join on the id: no commit, no window."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rest.programs.spark_peers import session
from benchmarks.rest.protocol import CLEANED, ID, REMEMBERED, STARTED, ProgramMarks, RestJob, parquet_files


def main() -> None:
    """Do the job."""
    marks, job = ProgramMarks(), RestJob.of_arguments()
    with session(job) as spark:
        marks.say(STARTED)
        earlier = list(job.history)
        marks.say(REMEMBERED)
        for step in job.steps:
            out = Path(job.folder) / step.name
            new = spark.read.parquet(*step.inputs).dropDuplicates([ID])
            new.join(spark.read.parquet(*earlier).select(ID), ID, "left_anti").write.parquet(str(out))
            earlier.append(str(out))
            marks.say(CLEANED, parquet_files(out))


if __name__ == "__main__":
    main()
