"""Measures what one run of one system cost, from outside and in the same way for all.

Progress is what the system's consumer group has committed on the source: the broker is asked ten times a
second. CPU seconds are those of the system's whole process tree, user and system; the broker's are told apart.
The second half begins with the first look that finds half of the records committed: start-up, first fetches
and a JVM's compiling lie before it, for the most part.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from benchmarks.measure.processes import Tree, noise_s, running
from benchmarks.measure.truth import WrongOutputError, check
from benchmarks.peers import CHECKPOINTS, FailedError
from processor.errors import SeqmarkError
from processor.kafka.client import Client, TopicPartition
from processor.kafka.offsets import committed

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.load import Load
    from benchmarks.peers import Job, Peer

SAMPLE_S = 0.1
TICK_S = 0.01
"""CPU time is counted in hundredths of a second: less was not measured."""
STALL_S = 120.0
"""A system that commits nothing for so long is given up; the slowest starts take some 20 s on two cores."""
LOG = "log"
"""Name in a job's folder."""
_LOG_CHARACTERS = 2_000


class Sample(NamedTuple):
    """One look at a running system; the broker's time is 0 where it is not ours."""

    at_s: float
    cpu_s: float
    broker_cpu_s: float
    records: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run cost; "half" is its second half, see `figures`.

    Attributes:
        repeats: Records that the sink holds more than once.
        first_s: From the start of the process to the first commit that was seen.
        wall_s: Until everything was committed; ``cpu_s``: of the whole process tree, start-up included.
        peak_rss_bytes: Of the process tree; pages that processes share count in each.
        noise_before_s: The fixed loop before the start; ``noise_after_s``: after the end.
        ids: Different ids in the source: all of them are in the window at the end.
        local_bytes: Files of local state at the end, before or after the process was ended: what is more.
        written_bytes: Of all topics that it has written to, its state's too; 0 where the broker is not ours.
        remote_bytes: What state can be restored from: changelog topics on the broker's disk, or checkpoints.
    """

    records: int
    repeats: int
    first_s: float
    wall_s: float
    cpu_s: float
    broker_cpu_s: float
    half_records: int
    half_wall_s: float
    half_cpu_s: float
    peak_rss_bytes: int
    noise_before_s: float
    noise_after_s: float
    ids: int = 0
    local_bytes: int = 0
    remote_bytes: int = 0
    written_bytes: int = 0
    half_broker_cpu_s: float = 0.0

    @property
    def half_rate(self) -> float:
        """Records per CPU second in the second half."""
        return self.half_records / max(self.half_cpu_s, TICK_S)

    @property
    def rate(self) -> float:
        """Records per CPU second of the whole run."""
        return self.records / self.cpu_s

    @property
    def half_wall_rate(self) -> float:
        """Records per second in the second half."""
        return self.half_records / max(self.half_wall_s, TICK_S)


def measure(
    peer: Peer, job: Job, load: Load, broker: int | None, advance: Callable[[int], object] = lambda _: None
) -> Figures:
    """Run a system over a full source until it has committed all, measure it and check its output.

    ``broker`` is the process id of the broker, None where it is not ours; ``advance`` is called with the number
    of records that were committed since its last call.

    Raises:
        FailedError: It ended, stood still or wrote something wrong.
    """
    before = noise_s()
    with program(peer, job) as process:
        tree, broker_tree = Tree(process.pid), Tree(broker) if broker else None
        # Its working folder is where it keeps its topics.
        data = Path(psutil.Process(broker).cwd()) if broker else None
        began, broker_before = time.monotonic(), broker_tree.look() if broker_tree else 0.0
        samples = [Sample(0.0, 0.0, 0.0, 0)]

        def look(done: int) -> None:
            broker_cpu = broker_tree.look() - broker_before if broker_tree else 0.0
            advance(done - samples[-1].records)
            samples.append(Sample(time.monotonic() - began, tree.look(), broker_cpu, done))

        asyncio.run(until_committed(process, job, load.records, look))
        written = topic_bytes(job, data)
        peer.settle(job)
        timestamps = peer.keeps_timestamps
        repeats = asyncio.run(
            check(job.bootstrap_servers, job.sink, load, job.guarantee, timestamps=timestamps)
        )
        local, remote = state_bytes(job, data)
    return replace(
        figures(samples, repeats, tree.peak_rss_bytes, before, noise_s(), load.measured),
        ids=load.all_passing() if load.ids else 0,
        # Some write the last of it when they end, others tidy up then.
        local_bytes=max(local, state_bytes(job, None)[0]),
        remote_bytes=remote,
        written_bytes=written,
    )


@contextmanager
def program(peer: Peer, job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """Run a system while the block runs; what fails in the block quotes the end of its log.

    Raises:
        FailedError: The block failed.
    """
    log = job.folder / LOG
    try:
        with running(peer.command(job), peer.environment(job), log) as process:
            yield process
    except (FailedError, WrongOutputError, SeqmarkError) as error:
        text = log.read_text(errors="replace")[-_LOG_CHARACTERS:]
        raise FailedError(f"{peer.name}, {job.guarantee}: {error}.\nThe end of its log:\n{text}") from error


async def until_committed(
    process: subprocess.Popen[bytes], job: Job, records: int, look: Callable[[int], None]
) -> None:
    """Ask what the group has committed until it is so much; ``look`` is told each time.

    Raises:
        FailedError: The process ended, or commits nothing more.
    """
    moved, done = time.monotonic(), 0
    sources = [TopicPartition(job.source, number) for number in range(job.partitions)]
    client = await Client.open({"bootstrap_servers": job.bootstrap_servers}, "bench-watch", [job.source])
    try:
        while done < records:
            if process.poll() is not None:
                raise FailedError(f"it ended by itself with {process.returncode}")
            found = sum((await committed(client, job.group, sources)).values())
            now = time.monotonic()
            if found > done:
                moved, done = now, found
            elif now - moved > STALL_S:
                raise FailedError(f"nothing was committed for {STALL_S:.0f} s, after {done:,} records")
            look(done)
            await asyncio.sleep(max(0.0, SAMPLE_S - (time.monotonic() - now)))
    finally:
        await client.close()


def state_bytes(job: Job, data: Path | None) -> tuple[int, int]:
    """Return the bytes of a run's local state, and of what it can be restored from.

    ``data`` is the broker's folder; None where it is not ours: then its part is 0. Segments of topics are
    counted without their indexes, which a broker makes larger than they are.
    """
    sizes = [0, 0]
    for file in job.folder.rglob("*"):
        with suppress(FileNotFoundError):  # a store tidies up while we look
            if file.is_file() and not _is_no_state(file, job.folder):
                sizes[CHECKPOINTS in file.relative_to(job.folder).parts] += file.stat().st_size
    return sizes[False], sizes[True] + topic_bytes(job, data, without=job.sink)


def topic_bytes(job: Job, data: Path | None, without: str | None = None) -> int:
    """Return the bytes of the topics that a run has made, but for one; 0 where the broker is not ours."""
    found = 0
    for file in data.glob(f"**/*{job.group}*/*.log") if data else ():
        with suppress(FileNotFoundError):
            if without is None or not file.parent.name.startswith(without):
                found += file.stat().st_size
    return found


def _is_no_state(file: Path, folder: Path) -> bool:
    """Identify the log, libraries that a system unpacks, and Spark's shuffles."""
    parts = file.relative_to(folder).parts
    shuffles = any(part.startswith("blockmgr-") for part in parts)
    return shuffles or parts == (LOG,) or file.suffix in {".so", ".jar"}


def figures(
    samples: Sequence[Sample],
    repeats: int,
    peak_rss_bytes: int,
    noise_before_s: float,
    noise_after_s: float,
    measured: int | None = None,
) -> Figures:
    """Return what samples say; the last one has all records.

    What is committed lags behind what was paid for by a commit's worth of records. So the second half goes from
    one look that found a new commit to another, the last of all left out, where nothing lags any more: both its
    ends lag alike. Where there are too few commits for that it ends with the last, and begins before it.

    With ``measured`` it is the last so many records in place of half of them.
    """
    last = samples[-1]
    fresh = [now for before, now in pairwise(samples) if before.records < now.records < last.records]
    before = last.records / 2 if measured is None else last.records - measured
    late = [sample for sample in fresh if sample.records >= before]
    start, end = late[0] if late else [samples[0], *fresh][-1], late[-1] if len(late) > 1 else last
    first_s = next(sample.at_s for sample in samples if sample.records)
    whole = last.records, repeats, first_s, last.at_s, last.cpu_s, last.broker_cpu_s
    records, wall_s, cpu_s = end.records - start.records, end.at_s - start.at_s, end.cpu_s - start.cpu_s
    found = Figures(*whole, records, wall_s, cpu_s, peak_rss_bytes, noise_before_s, noise_after_s)
    return replace(found, half_broker_cpu_s=end.broker_cpu_s - start.broker_cpu_s)
