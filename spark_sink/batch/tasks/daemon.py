"""Makes Python workers out of a process that has loaded all that tasks need: `spark.python.daemon.module`.

PySpark forks its workers off a daemon that knows nothing of us, so that each would import the same modules and
load the same kernels by itself, which takes two seconds of CPU. Here that is done once per executor. Where a
session has another daemon everything works as well, and costs more.
"""

from __future__ import annotations

from processor.engine.rest import warm_rest
from spark_sink.batch.cluster import be_daemon
from spark_sink.batch.tasks import extract, inspect, judge, merge, probe, write

LOADED = (extract, inspect, judge, merge, probe, write)
"""Imported so that tasks find them."""

if __name__ == "__main__":
    be_daemon(warm_rest)
