"""Makes Python workers that have loaded all that the source's tasks need: `spark.python.daemon.module`.

As `spark_sink.batch.tasks.daemon` for files: what each worker would load by itself is loaded once per executor.
Where a session has another daemon everything works as well, and costs more.
"""

from __future__ import annotations

from processor.engine.events import warm_events
from spark_sink.batch.cluster import be_daemon
from spark_sink.source import format as source
from spark_sink.source import task

LOADED = (source, task)
"""Imported so that tasks find them."""

if __name__ == "__main__":
    be_daemon(warm_events)
