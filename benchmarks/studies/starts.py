"""Measures how soon a started worker lets its first record through: ``python -m benchmarks.studies.starts``.

Records wait in the source. From the start of the process it takes until a reader with read_committed has the
first clean one, and until ``/health`` answers; CPU seconds are those of the process tree until that record.
Each start has a group, a sink, a local state and a cache folder of its own:

    compiled    an empty cache, from this checkout: all kernels of the mode are compiled
    wheel       an empty cache, with the kernels that a wheel brings along, from the tree that is in the wheel
    kept        the cache that the start before has filled, from this checkout

The wheel's kernels are those of ``make dist`` where they belong to these sources; else they are compiled once,
which is not measured. What is read from disk is in the page cache in all of them.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import cluster, create, remove
from benchmarks.load import Load, produce
from benchmarks.measure.cost import SAMPLE_S, program
from benchmarks.measure.processes import Tree
from benchmarks.peers import ROOT, FailedError, Job, Peer
from benchmarks.peers.seqmark import Seqmark
from benchmarks.studies.spark import free_port
from packing.hook import FACE, write_packed
from packing.kernels import compile_kernels
from processor.engine.shipped import processor
from processor.kafka.client import Client, TopicPartition
from processor.kafka.fetch import Fetcher
from processor.paths import cache_dir
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECORDS = 400_000
"""More than a worker takes before it commits first, so that its first commit is not its last."""
SOURCE = "bench-starts"
LOOK_S = 0.02
FIRST_S = 900.0
"""Compiling all kernels of ids takes two minutes of one core, and cores are slow on some machines."""
LOADS = {"watermark": Load(records=RECORDS), "insert-id": Load(records=RECORDS, ids="binary")}
"""By mode, what waits."""
COMPILED, WHEEL, KEPT = "compiled", "wheel", "kept"
DIST = ROOT / "build" / "kernels"
"""Where `make dist` leaves what it has compiled."""
_ANY_SHIPPED = f"import {FACE}.processor.engine.jit as jit, sys; sys.exit(jit.SHIPPED is None)"


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    Attributes:
        kernels: Where they came from, see the module.
        mode: Of the pipeline.
        first_s: Until the first clean record was read; ``health_s``: until ``/health`` answered.
        cpu_s: Of the process tree until that record.
    """

    kernels: str
    mode: str
    first_s: float
    health_s: float
    cpu_s: float


class _Fresh(Seqmark):
    """A worker with a cache of its own, and a port to ask for its health; ``tree``: of the wheel's."""

    def __init__(self, cache: Path, port: int, tree: Path | None) -> None:
        super().__init__()
        self._cache, self._port, self._tree = cache, port, tree

    def command(self, job: Job) -> list[str]:
        """Start the one of the tree, where there is one: by ``-P`` nothing else has its name."""
        call = super().command(job)
        return call if self._tree is None else [call[0], "-P", "-m", f"{FACE}.processor", *call[3:]]

    def environment(self, job: Job) -> dict[str, str]:
        """Return what names the cache and the port."""
        return {
            **super().environment(job),
            **({} if self._tree is None else {"PYTHONPATH": str(self._tree)}),
            "XDG_CACHE_HOME": str(self._cache),
            "SEQMARK_WORKER__WEB_PORT": str(self._port),
        }


def wheel_tree(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Write what a wheel installs, with its kernels; return its folder.

    None where nothing is compiled for machines of this kind, or this one cannot run it.
    """
    known = processor()
    if known is None or not known.runs_here():
        return None
    write_packed(ROOT, folder / FACE)
    inside = folder / FACE / "processor" / "engine" / "compiled"
    own = cache_dir() / "bench-kernels"
    for kept in (DIST, own):
        if kept.is_dir():
            shutil.copytree(kept, inside, dirs_exist_ok=True)
    call = [sys.executable, "-P", "-c", _ANY_SHIPPED]
    if subprocess.run(call, env={**os.environ, "PYTHONPATH": str(folder)}, check=False).returncode:
        say("compiling a wheel's kernels, once")
        shutil.rmtree(own, ignore_errors=True)  # of other sources
        compile_kernels(own, list(LOADS))
        shutil.copytree(own, inside, dirs_exist_ok=True)
    compileall.compile_dir(folder, quiet=1)  # as pip does
    return folder


def run_starts(
    servers: str, repetitions: int, say: Callable[[str], None], kernels: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Measure all starts; figures as JSON takes them.

    ``kernels``: only these; none: all. What is kept was compiled before: it takes both.

    Raises:
        FailedError: A worker did not let a record through.
    """
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-starts-") as name:
        folder = Path(name)
        wanted = [each for each in (COMPILED, WHEEL, KEPT) if not kernels or each in kernels]
        tree = wheel_tree(folder / "tree", say) if WHEEL in wanted else None
        starts: list[Start] = []
        for mode, load in LOADS.items():
            source = f"{SOURCE}-{mode}"
            asyncio.run(create(servers, source, load.partitions))
            asyncio.run(produce(servers, source, load))
            try:
                for number in range(repetitions):
                    one = partial(_start, servers, source, load, folder / f"{mode}-{number}")
                    say(f"starts, {mode}, {number + 1} of {repetitions}")
                    ways = [(which, tree if which == WHEEL else None) for which in wanted]
                    for which, where in ways:
                        if which != WHEEL or where is not None:
                            found = replace(one(which, where), mode=mode)
                            starts.append(found)
                            say(f"  {which}: {found.first_s:.1f} s, {found.cpu_s:.1f} s of CPU")
            finally:
                asyncio.run(remove(servers, source))
        return {"records": RECORDS, "starts": [asdict(start) for start in starts]}


def _start(servers: str, source: str, load: Load, folder: Path, kernels: str, tree: Path | None) -> Start:
    """Start a worker once."""
    # What one start has compiled another finds; each round has a folder of its own.
    cache = folder / ("wheel-cache" if kernels == WHEEL else "cache")
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    group = f"{source}-{folder.name}-{kernels}-{os.getpid()}"
    job = Job(servers, source, f"{group}-sink", group, load.partitions, "exactly_once", folder / kernels)
    job = replace(job, ids=load.ids, expected=load.a_day(0))
    job.folder.mkdir()
    asyncio.run(create(servers, job.sink, job.partitions))
    port = free_port()
    try:
        return asyncio.run(_followed(_Fresh(cache, port, tree), job, port, kernels))
    finally:
        asyncio.run(remove(servers, group))


async def _followed(peer: Peer, job: Job, port: int, kernels: str) -> Start:
    """Start a worker, and follow it until its first record is there."""
    # Connected before, so that nothing of the reader is measured.
    client = await Client.open({"bootstrap_servers": job.bootstrap_servers}, "bench-starts", [job.sink])
    try:
        began, cpu_s = time.monotonic(), 0.0
        with program(peer, job) as process:
            tree = Tree(process.pid)
            health = asyncio.create_task(first_answer(port, "/health"))
            first = asyncio.create_task(_first_record(client, job))
            pending = {health, first}
            while pending:
                if process.poll() is not None:
                    raise FailedError(f"it ended by itself with {process.returncode}")
                if time.monotonic() - began > FIRST_S:
                    raise FailedError(f"it let no record through within {FIRST_S:.0f} s")
                counts = first in pending
                done, pending = await asyncio.wait(
                    pending, timeout=SAMPLE_S, return_when=asyncio.FIRST_COMPLETED
                )
                cpu_s = tree.look() if counts else cpu_s
                for task in done:
                    task.result()  # or what it failed by
            return Start(kernels, "", first.result() - began, health.result() - began, cpu_s)
    finally:
        await client.close()


async def first_answer(port: int, path: str) -> float:
    """Return when a worker's page answered with 200 first, by `time.monotonic`."""

    def asked() -> float:
        while True:
            with suppress(OSError), urllib.request.urlopen(url, timeout=1):
                return time.monotonic()
            if given_up.wait(LOOK_S):
                return 0.0

    url, given_up = f"http://127.0.0.1:{port}{path}", Event()
    try:
        return await asyncio.to_thread(asked)
    finally:
        given_up.set()


async def _first_record(client: Client, job: Job) -> float:
    """Return when a reader with read_committed had a record of the sink."""
    fetcher, decoder = Fetcher(client), Decoder()
    positions = dict.fromkeys((TopicPartition(job.sink, number) for number in range(job.partitions)), 0)
    while True:
        for chunk in await fetcher.fetch(positions):
            if any(len(piece.columns) for piece in decoder.pieces(chunk)):
                return time.monotonic()


def main() -> None:
    """Measure once, and print."""
    with cluster(print) as (servers, _):
        found: Mapping[str, Any] = run_starts(servers, 1, print, tuple(sys.argv[1:]))
        for start in found["starts"]:
            print(start)


if __name__ == "__main__":
    main()
