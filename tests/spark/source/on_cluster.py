"""Reads a topic on executors that are processes of their own; `test_cluster` runs it."""

from __future__ import annotations

import json
import sys

from schemas.events import ClickEvent
from spark_sink import clean_topic
from spark_sink.session import spark_session


def main() -> None:
    """Print how many events each campaign has, and how many executors there were."""
    bootstrap, topic = sys.argv[1:]
    with spark_session("seqmark-cluster", master="local-cluster[2,1,1024]", kafka=False) as spark:
        events = clean_topic(spark, bootstrap, topic, ClickEvent, stream=False, unreadable="skip")
        rows = events.groupBy("campaign").count().collect()
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        counted = {row["campaign"]: row["count"] for row in rows}
        partitions = spark.conf.get("spark.sql.shuffle.partitions")
        found = {"counted": counted, "executors": executors, "partitions": partitions}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
