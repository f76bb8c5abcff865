"""Gives the programs of Spark's own ways their session: two cores, and the heap that they may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_sink.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from benchmarks.rest.protocol import RestJob

_SETTINGS = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",  # what pyarrow takes
    "spark.sql.shuffle.partitions": "32",  # adaptive execution makes fewer of them where there is little
}


def session(
    job: RestJob, *, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> AbstractContextManager[SparkSession]:
    """Return a session with these jars and settings."""
    more = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    return spark_session(
        "rest", memory=job.heap, settings={**_SETTINGS, **more, **(settings or {})}, kafka=False
    )
