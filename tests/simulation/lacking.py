"""Says which fault the simulation lacks a model of, of each planted mistake that its seeds do not notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.crash.planted.mistakes import Mistake

TWO_HOPS = "two hops: no episode has a pipeline with a route"
EXPLAIN = "explain: no episode asks what became of a record"
MARKS = "marks: they are written, and nobody in an episode searches by them"
BY_FILE: Mapping[str, str] = {
    "processor/commands/run/page_answers.py": "the web server: an episode's workers have none",
    "processor/commands/spark/": "histories in files and tables at rest: Spark",
    "processor/inspection/explain/": EXPLAIN,
    "processor/kafka/protocol/connections.py": "sockets and SASL: nothing lies below a request",
    "processor/reset/backfill/hop_load.py": TWO_HOPS,
    "processor/reset/backfill/intake/topic.py": TWO_HOPS,
    "processor/reset/backfill/load.py": TWO_HOPS,
    "processor/reset/run.py": MARKS,
    "processor/state/home.py": "folders: local state is in memory",
    "processor/worker/worker.py": "the worker's service: readiness, and a group's leader that sees no source",
    "spark_sink/": "Spark",
}
"""By a file, or the folder it is in."""
BY_NAME: Mapping[str, str] = {}
"""Where a file's others are noticed."""


def lacking(mistake: Mistake) -> str:
    """Return what the simulation lacks to notice a mistake; empty: nothing that is known."""
    if mistake.name in BY_NAME:
        return BY_NAME[mistake.name]
    return next((why for place, why in BY_FILE.items() if mistake.file.startswith(place)), "")
