"""Runs the whole plan: which case is measured when, on which topics.

A case's source is made once and read by all systems and repetitions, each with a group, a sink and a folder of
its own, which are gone before the next begins. A system with a limit reads a source of its own with fewer
records.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from benchmarks.cases import STANDARD, Case, scaled, turns
from benchmarks.cluster import create, remove
from benchmarks.load import produce
from benchmarks.measure.cost import measure
from benchmarks.measure.latency import Times, measure_latency, percentile
from benchmarks.peers import BLOOM, RECEIPTS, SEQMARK, SHIPPED, VERDICTS, FailedError, Job, find_peer
from benchmarks.results import Latency, Run, median
from processor.commands.console import bar, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.cases import Turn
    from benchmarks.load import Load
    from benchmarks.options import Options
    from benchmarks.peers import Guarantee, Peer
    from benchmarks.results import Results

LATENCY_SYSTEMS = (SEQMARK, "kafka_streams", "flink")
LATENCY = Times(warm_s=20.0, counted_s=15.0)
QUICK_LATENCY = Times(warm_s=5.0, counted_s=5.0)
LATENCY_PARTITIONS = 4


def lacking(case: Case, memory_bytes: int, disk_bytes: int) -> str:
    """Return what a case takes that is not there; empty where it can be run."""
    for what, wanted, free in (("memory", case.memory_gib, memory_bytes), ("disk", case.disk_gib, disk_bytes)):
        if free < wanted << 30:
            return f"it takes {wanted} GiB of {what}, and {free / 2**30:.0f} are free"
    return ""


def _prepared(name: str) -> tuple[Peer | None, str]:
    """Return a system that has all that it needs, and why it cannot take part; empty where it can."""
    try:
        peer = find_peer(name)
    except ImportError as error:
        return None, f"its module cannot be imported: {error}"
    return peer, peer.prepare(say) or ""


class Bench:
    """One benchmark on one broker; ``broker`` is its process id, None where it is not ours."""

    def __init__(
        self, options: Options, results: Results, servers: str, broker: int | None, folder: Path
    ) -> None:
        self._options, self._results = options, results
        self._servers, self._broker, self._folder = servers, broker, folder
        self._systems: dict[str, Peer] = {}
        self._number = 0

    def run(self) -> None:
        """Measure all of it."""
        self._prepare()
        for case in self._options.cases:
            if reason := lacking(case, psutil.virtual_memory().available, shutil.disk_usage(self._folder).free):
                self._results.missing[case.name] = reason
                say(f"{case.title}: left out, {reason}", "yellow")
            else:
                self._case(case)
        if self._options.latency and not self._options.ids:
            for system in LATENCY_SYSTEMS[:1] if self._options.quick else LATENCY_SYSTEMS:
                if system in self._systems:
                    self._latency(system)

    def _prepare(self) -> None:
        beside: tuple[str, ...] = (BLOOM, VERDICTS) if self._options.ids else (RECEIPTS, VERDICTS)
        if any(case.shipped for case in self._options.cases):
            beside += (SHIPPED,)
        names = (SEQMARK, *beside, *self._options.peers)
        # Some compile and some wait for the network, for half a minute each, once.
        with ThreadPoolExecutor(len(names)) as pool:
            found = list(pool.map(_prepared, names))
        for name, (peer, reason) in zip(names, found, strict=True):
            if peer is None or reason:
                self._results.missing[name] = reason
                say(f"{peer.name if peer else name} does not take part: {reason}", "yellow")
            else:
                self._systems[name] = peer
                self._results.systems[name] = peer.name

    def _case(self, case: Case) -> None:
        say(f"{case.title}: {case.load.records:,} records")
        self._results.records[case.name] = case.load.records
        began, producing_s = time.monotonic(), 0.0
        sources: dict[int, str] = {}
        guarantees = {
            name: self.guarantees(peer, brief=name != SEQMARK) for name, peer in self._systems.items()
        }
        for turn in turns(case, guarantees, self._options.repetitions):
            limit = self._options.limit(self._systems[turn.system].record_limit)
            load = scaled(case, min(case.load.records, limit or case.load.records)).load
            if load.records not in sources:
                before = time.monotonic()
                sources[load.records] = self._produce(f"bench-source-{case.name}-{load.records}", load)
                producing_s += time.monotonic() - before
            run = self._turn(turn, load, sources[load.records])
            if run is not None:
                self._results.runs.append(run)
        asyncio.run(remove(self._servers, "bench-source-"))
        took = {"all_s": time.monotonic() - began, "producing_s": producing_s}
        self._results.took[case.name] = took

    def guarantees(self, peer: Peer, *, brief: bool) -> Sequence[Guarantee]:
        """Return what a system is measured with: all that it promises; in a ``brief`` quick run the best."""
        return peer.guarantees[:1] if self._options.quick and brief else peer.guarantees

    def _produce(self, topic: str, load: Load) -> str:
        asyncio.run(create(self._servers, topic, load.partitions))
        with bar("producing", load.records) as advance:
            asyncio.run(produce(self._servers, topic, load, advance))
        return topic

    def _turn(self, turn: Turn, load: Load, source: str) -> Run | None:
        peer = self._systems[turn.system]
        job = self._job(turn.case, turn.system, turn.guarantee, source, load.partitions)
        if load.ids is not None:
            job = replace(job, ids=load.ids, expected=load.a_day(0))
        if not peer.supports(job):
            return None
        asyncio.run(create(self._servers, job.sink, job.partitions))
        named = turn.case.name, turn.system, turn.guarantee, turn.repetition
        if turn.case.name == STANDARD or load.ids is not None:
            by_guarantee = self._results.settings.setdefault(turn.system, {})
            by_guarantee[turn.guarantee] = dict(peer.settings(job))
        try:
            with bar(f"{peer.name}, {turn.guarantee}", load.records) as advance:
                figures = measure(peer, job, load, self._broker, advance)
        except FailedError as error:
            say(str(error), "bold red")
            return Run(*named, failure=str(error).partition("\n")[0])
        finally:
            self._clear(job)
        say(f"  {peer.name}, {turn.guarantee}: {figures.half_rate:,.0f} records per CPU second, 2nd half")
        return Run(*named, figures)

    def _job(self, case: Case, system: str, guarantee: Guarantee, source: str, partitions: int) -> Job:
        self._number += 1
        group = f"bench-{self._number}-{system.replace('_', '-')}"
        folder = self._folder / group
        folder.mkdir()
        names = self._servers, source, f"{group}-sink", group
        return Job(*names, partitions, guarantee, folder, case.sequence, case.scope)

    def _clear(self, job: Job) -> None:
        asyncio.run(remove(self._servers, job.group))
        shutil.rmtree(job.folder, ignore_errors=True)

    def _latency(self, system: str) -> None:
        peer = self._systems[system]
        for guarantee in self.guarantees(peer, brief=True):
            rate = median(self._results.of(STANDARD, system, guarantee), lambda figures: figures.half_wall_rate)
            if rate is None:
                continue
            source = f"bench-offer-{system.replace('_', '-')}-{guarantee.replace('_', '-')}"
            job = self._job(Case(STANDARD, ""), system, guarantee, source, LATENCY_PARTITIONS)
            for topic in (source, job.sink):
                asyncio.run(create(self._servers, topic, LATENCY_PARTITIONS))
            half = int(rate / 2)
            say(f"from produce to visible: {peer.name}, {guarantee}, {half:,} records a second")
            try:
                times = QUICK_LATENCY if self._options.quick else LATENCY
                records, found = measure_latency(peer, job, half, times)
            except FailedError as error:
                say(f"{peer.name}: {error}", "bold red")
                continue
            finally:
                self._clear(job)
                asyncio.run(remove(self._servers, source))
            delays = percentile(found, 0.5), percentile(found, 0.99), float(found.size - 1)
            self._results.latency.append(Latency(system, guarantee, half, records, *delays))
