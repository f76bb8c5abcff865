"""Makes files clean by Iceberg and a manifest of hashes beside the table, joined by Spark.

The manifest has 128 bits per id. Rows and hashes are two commits: who dies between them loses rows or repeats
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rest.programs.spark_peers import session
from benchmarks.rest.protocol import CLEANED, ID, REMEMBERED, STARTED, ProgramMarks, RestJob, parquet_files
from spark_sink.session import lake_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HASH = ["low", "high"]


def main() -> None:
    """Do the job."""
    marks, job = ProgramMarks(), RestJob.of_arguments()
    warehouse = Path(job.folder) / "warehouse"
    settings = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }
    with session(job, jars=lake_jars("iceberg", lambda _: None), settings=settings) as spark:
        marks.say(STARTED)
        history = spark.read.parquet(*job.history)
        history.writeTo("lake.rest.events").tableProperty("write.parquet.compression-level", "1").create()
        _hashed(history).select(*_HASH).writeTo("lake.rest.manifest").create()
        marks.say(REMEMBERED)
        events = warehouse / "rest" / "events"
        for step in job.steps:
            before = parquet_files(events)
            new = _hashed(spark.read.parquet(*step.inputs)).dropDuplicates(_HASH)
            fresh = new.join(spark.table("lake.rest.manifest"), _HASH, "left_anti").persist()
            fresh.drop(*_HASH).writeTo("lake.rest.events").append()
            fresh.select(*_HASH).writeTo("lake.rest.manifest").append()
            fresh.unpersist()
            marks.say(CLEANED, parquet_files(events) - before)


def _hashed(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", f"xxhash64({ID}) AS low", f"xxhash64({ID}, 'high') AS high")


if __name__ == "__main__":
    main()
