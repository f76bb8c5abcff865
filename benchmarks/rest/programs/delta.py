"""Makes files clean by Delta's insert-only `MERGE` on the id."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rest.programs.spark_peers import session
from benchmarks.rest.protocol import CLEANED, ID, REMEMBERED, STARTED, ProgramMarks, RestJob, parquet_files
from spark_sink.session import lake_jars

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main() -> None:
    """Do the job."""
    marks, job = ProgramMarks(), RestJob.of_arguments()
    table = Path(job.folder) / "table"
    with session(job, jars=lake_jars("delta", lambda _: None), settings=_SETTINGS) as spark:
        marks.say(STARTED)
        spark.read.parquet(*job.history).write.format("delta").save(str(table))
        marks.say(REMEMBERED)
        for step in job.steps:
            before = parquet_files(table)
            spark.read.parquet(*step.inputs).dropDuplicates([ID]).createOrReplaceTempView("new")
            spark.sql(
                f"MERGE INTO delta.`{table}` AS old USING new ON old.{ID} = new.{ID} "
                "WHEN NOT MATCHED THEN INSERT *"
            )
            marks.say(CLEANED, parquet_files(table) - before)


if __name__ == "__main__":
    main()
