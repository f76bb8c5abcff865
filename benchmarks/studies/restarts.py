"""Measures how soon a worker with many ids is ready again: ``python -m benchmarks.studies.restarts [IDS]``.

A worker takes in so many ids of 16 random bytes, in 4 partitions, and is ended by SIGTERM. Then it is started
again some times with the local state as it lies on disk: from the start of the process it takes until
``/ready`` answers that all of it is loaded. It is a static member of its group, which has its partitions back
at once, and what is read from disk is in the page cache. A fiftieth of the ids tells what any start takes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases import RESTART_IDS, spread
from benchmarks.cluster import cluster, create, remove
from benchmarks.load import Load, produce
from benchmarks.measure.cost import SAMPLE_S, program, until_committed
from benchmarks.measure.processes import Tree
from benchmarks.peers import FailedError, Job
from benchmarks.peers.seqmark import Seqmark
from benchmarks.studies.spark import free_port
from benchmarks.studies.starts import first_answer

if TYPE_CHECKING:
    from collections.abc import Callable

FEW = 50
"""A so-manieth of the ids shows what any start takes."""
READY_S = 300.0
SOURCE = "bench-restarts"


@dataclass(frozen=True, slots=True)
class Restart:
    """One start with local state.

    Attributes:
        ids: In the window, over all partitions.
        ready_s: Until ``/ready`` answered 200; ``cpu_s``: of the process tree until then.
    """

    ids: int
    ready_s: float
    cpu_s: float


class _Static(Seqmark):
    """A worker that keeps its place in the group while it is away, and a port to ask."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def environment(self, job: Job) -> dict[str, str]:
        """Return what names both."""
        own = {"SEQMARK_WORKER__WEB_PORT": str(self._port), "SEQMARK_WORKER__GROUP_INSTANCE_ID": "bench"}
        return {**super().environment(job), **own}


def run_restarts(servers: str, ids: int, repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure starts with so many ids, and with few; figures as JSON takes them.

    Raises:
        FailedError: A worker ended, or was not ready in time.
    """
    restarts: list[Restart] = []
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-restarts-") as name:
        for count in (ids // FEW, ids):
            folder = Path(name, str(count))
            folder.mkdir()
            restarts += _restarts(servers, count, repetitions, folder, say)
    return {"restarts": [asdict(restart) for restart in restarts]}


def _restarts(
    servers: str, ids: int, repetitions: int, folder: Path, say: Callable[[str], None]
) -> list[Restart]:
    """Fill a worker's state, and start it again and again."""
    load = spread(Load(records=ids, ids="binary", duplicates=0.0))
    group = f"{SOURCE}-{ids}-{os.getpid()}"
    job = Job(servers, f"{group}-source", f"{group}-sink", group, load.partitions, "exactly_once", folder)
    job = replace(job, ids=load.ids, expected=load.a_day(0))
    peer = Seqmark()
    try:
        for topic in (job.source, job.sink):
            asyncio.run(create(servers, topic, load.partitions))
        say(f"restarts: {ids:,} ids")
        asyncio.run(produce(servers, job.source, load))
        with program(peer, job) as process:
            asyncio.run(until_committed(process, job, load.records, lambda _: None))
        found = []
        for _ in range(repetitions):
            found.append(_again(job, load.all_passing()))
            say(f"  ready after {found[-1].ready_s:.1f} s, {found[-1].cpu_s:.1f} s of CPU")
        return found
    finally:
        asyncio.run(remove(servers, group))


def _again(job: Job, ids: int) -> Restart:
    """Start the worker once more, and end it when it is ready."""
    port = free_port()
    with program(_Static(port), job) as process:
        tree, began = Tree(process.pid), time.monotonic()

        async def followed() -> Restart:
            ready, cpu_s = asyncio.create_task(first_answer(port, "/ready")), 0.0
            while not ready.done():
                if process.poll() is not None:
                    raise FailedError(f"it ended by itself with {process.returncode}")
                if time.monotonic() - began > READY_S:
                    raise FailedError(f"it was not ready within {READY_S:.0f} s")
                await asyncio.wait({ready}, timeout=SAMPLE_S)
                cpu_s = tree.look()
            return Restart(ids, ready.result() - began, cpu_s)

        return asyncio.run(followed())


def main() -> None:
    """Measure with as many ids as are asked for, and print."""
    ids = int(sys.argv[1]) if sys.argv[1:] else RESTART_IDS
    with cluster(print) as (servers, _):
        for restart in run_restarts(servers, ids, 3, print)["restarts"]:
            print(restart)


if __name__ == "__main__":
    main()
