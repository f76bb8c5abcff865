"""How long until a worker with many ids is ready: from its files, and from the changelog alone?

``python -m benchmarks.id_restore [MILLIONS] [SYSTEM ...]`` prints seconds and ids a second for each backend
(``seqmark``, ``seqmark_bloom``, ``seqmark_bloom_confirm``), Kafka included.

A worker takes in and commits so many million ids of 16 random bytes, in 4 partitions, and is ended; what it
wrote is compared with the load. Then it is started and ended again some times with its files as they are, and
as often after its state folder was deleted. Times are those of its own log: "process" is from just before it is
started until its last partition is ready, "restore" from where its log says that there is no local state.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster import cluster, create, remove
from benchmarks.id_cases import spread
from benchmarks.load import Load, produce
from benchmarks.measure import LOG, FailedError, measure
from benchmarks.peers import BLOOM, SEQMARK, Job, find_peer
from benchmarks.tree import running
from processor.commands.console import say
from processor.commands.progress import bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.peers import Peer

STARTS = 3
POLL_S = 0.05
START_S = 300.0
READY = re.compile(r"ready, partitions \[(.*)\]")
NO_STATE = "there is no local state"
MILLION = 1_000_000
SETTINGS = {
    "SEQMARK_WORKER__LOG_FORMAT": "json",
    # A static member gets its partitions back at once, as after a restart of a real one.
    "SEQMARK_WORKER__GROUP_INSTANCE_ID": "bench",
}


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a worker.

    Attributes:
        process_s: From the start of the process until its last partition was ready.
        restore_s: From where it said that a partition has no local state; None where each had.
    """

    process_s: float
    restore_s: float | None


def events(text: str) -> Iterator[tuple[float, str]]:
    """Yield seconds since the epoch and message of each line of a worker's log that is JSON."""
    for line in text.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            yield datetime.fromisoformat(told["time"]).timestamp(), told["message"]


def start_of(text: str, began_s: float, partitions: int) -> Start | None:
    """Read a start from a worker's log.

    Args:
        text: The log so far.
        began_s: When the process was started, seconds since the epoch.
        partitions: How many have to be ready.

    Returns:
        None where not all are ready yet.
    """
    ready: set[str] = set()
    missing_s: float | None = None
    for at_s, message in events(text):
        if message.startswith(NO_STATE) and missing_s is None:
            missing_s = at_s
        if found := READY.search(message):
            ready |= {number.strip() for number in found[1].split(",")} - {""}
            if len(ready) == partitions:
                return Start(at_s - began_s, None if missing_s is None else at_s - missing_s)
    return None


def start(peer: Peer, job: Job) -> Start:
    """Start the worker, wait until it is ready, and end it.

    Raises:
        FailedError: It ended, or was not ready in time; the message quotes its log.
    """
    log, began_s = job.folder / LOG, time.time()
    with running(peer.command(job), {**peer.environment(job), **SETTINGS}, log) as process:
        while process.poll() is None and time.time() < began_s + START_S:
            if found := start_of(log.read_text(errors="replace"), began_s, job.partitions):
                return found
            time.sleep(POLL_S)
    raise FailedError(f"{peer.name} was not ready in {START_S:.0f} s. Its log:\n{log.read_text()[-2_000:]}")


def told(what: str, starts: list[Start], ids: int) -> str:
    """Return a line about some starts."""
    words = " ".join(f"{one.process_s:.1f}" for one in starts)
    line = f"  {what}: ready {words} s from the start of the process"
    restores = [one.restore_s for one in starts if one.restore_s is not None]
    if not restores:
        return line
    seconds = " ".join(f"{one:.1f}" for one in restores)
    rates = " ".join(f"{ids / one / MILLION:.1f}" for one in restores)
    return f"{line}; restored in {seconds} s: {rates} million ids a second"


def measure_system(name: str, load: Load, servers: str, broker: int | None, source: str, folder: Path) -> None:
    """Fill a worker's state, and start it again and again."""
    peer, group = find_peer(name), f"restore-{name.replace('_', '-')}"
    if reason := peer.prepare(say):
        raise SystemExit(f"{peer.name} cannot run: {reason}")
    home = folder / group
    home.mkdir()
    job = Job(
        servers, source, f"{group}-sink", group, load.partitions, "exactly_once", "header", "partition", home
    )
    job = replace(job, ids=load.ids, expected=load.a_day(0))
    asyncio.run(create(servers, job.sink, job.partitions))
    with bar(peer.name, load.records) as advance:
        measure(peer, job, load, broker, advance)
    ids = load.all_passing()
    print(f"{peer.name}, {ids:,} ids in {load.partitions} partitions:")
    print(told("from its files", [start(peer, job) for _ in range(STARTS)], ids))
    starts = []
    for _ in range(STARTS):
        shutil.rmtree(home / "state")
        starts.append(start(peer, job))
    if any(one.restore_s is None for one in starts):
        raise SystemExit(f"{peer.name} found local state though its folder was deleted")
    print(told("from the changelog", starts, ids), flush=True)
    asyncio.run(remove(servers, group))


def main() -> None:
    """Measure what is asked for."""
    millions, *systems = sys.argv[1:] or ["10"]
    records = int(float(millions) * MILLION / 0.95)
    load = spread(Load(records=records, ids="binary", far=True))
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as folder, cluster(say) as (servers, broker):
        source = "restore-source"
        asyncio.run(create(servers, source, load.partitions))
        with bar("producing", load.records) as advance:
            asyncio.run(produce(servers, source, load, advance))
        for name in systems or (SEQMARK, *BLOOM):
            measure_system(name, load, servers, broker, source, Path(folder))


if __name__ == "__main__":
    main()
