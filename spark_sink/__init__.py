"""The Spark side: reads the clean topics and files at rest, and is the only importer of pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_clean"]


def read_clean(spark: SparkSession, path: str) -> DataFrame:
    """Read what is committed of a clean table that `seqmark batch` writes; see `spark_sink.batch.reader`.

    Args:
        spark: A session.
        path: The folder that the config names as output, duplicates or quarantine.

    Raises:
        StopError: No batch has written there, or a commit is damaged.
    """
    from spark_sink.batch import reader  # noqa: PLC0415 - pyarrow is slow to import, and not every install has it

    return reader.read_clean(spark, path)
