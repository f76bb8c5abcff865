"""Runs aggregates on executors that are processes of their own, when `test_cluster` says so.

For each config that a line of standard input names a line of JSON goes to standard output: what the audience
was told, how many records were read, and what stopped the job. Each has a cluster of its own, and all of them
the one JVM of this process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from processor.config.load import load
from processor.errors import StopError
from spark_sink.job import SinkJob, SinkOptions
from tests.support.spark_sink.job import Silent

# A state partition per core: each has a RocksDB of its own.
CONF = {"spark.sql.shuffle.partitions": "2"}


def run(config: Path) -> dict[str, object]:
    """Run what a config names until all that is there now is done."""
    settings, audience = load(config), Silent()
    options = SinkOptions(master="local-cluster[2,1,1024]", available_now=True, conf=CONF)
    stopped = ""
    job = SinkJob(settings, settings.aggregates, options, audience)
    try:
        job.run()
    except StopError as error:
        stopped = str(error)
    return {"said": audience.said, "read": sum(each.rows for each in job.totals.values()), "stopped": stopped}


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(Path(line.strip()))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
