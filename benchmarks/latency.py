"""How long does a record take from produce to visible in the clean topic, at a fixed rate?

Batches are made beforehand and leave every 10 ms, one a partition, stamped with the time at which they were
**due**: a sender that is held up makes records late, not absent (no coordinated omission). A reader with
read_committed notes when it has each; both clocks are this machine's. What a producer's own linger adds is not
in it, nor is a network.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.load import Load, as_columns, encoded
from benchmarks.measure import FailedError
from benchmarks.tree import running
from processor.kafka.client import Link, TopicPartition
from processor.kafka.fetch import Fetcher
from processor.kafka.transactions.producer import Producer
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    import subprocess

    from numpy.typing import NDArray

    from benchmarks.peers import Job, Peer
    from processor.wire.encode import EncodedBatch

TICK_S = 0.01
FIRST_S = 120.0
"""How long a system may take to start and let the first records through."""
TAIL_S = 30.0
"""How long it may take, once all is offered, to catch up."""


@dataclass(frozen=True, slots=True)
class Times:
    """For how long a load is offered.

    Attributes:
        warm_s: Not looked at: caches fill, JVMs compile. The broker's takes 0.2 to 0.3 of a core for some 15 s
            of such small requests, whatever it has done before; p99 is up to twice as long then.
        counted_s: Looked at.
    """

    warm_s: float
    counted_s: float


@dataclass(frozen=True, slots=True)
class Offer:
    """What is sent, made beforehand.

    Attributes:
        ticks: By tick a batch a partition, without its time.
        passing: Records that must become visible.
        warm_s: Of this time from the beginning records are not looked at.
    """

    ticks: list[list[EncodedBatch]]
    passing: int
    warm_s: float


def make_offer(load: Load, rate: int, warm_s: float) -> Offer:
    """Cut a load into ticks; its first tick only shows that the system is there."""
    each = max(1, round(rate * TICK_S / load.partitions))
    lanes: list[list[EncodedBatch]] = []
    for partition in range(load.partitions):
        numbers = load.numbers(partition)
        lane = []
        step = each * max(1, 50_000 // each)
        for at in range(0, numbers.size // each * each, step):
            chunk = numbers[at : at + step]
            columns = as_columns(load.bodies(partition, chunk), np.zeros(chunk.size, np.int64))
            lane += [
                encoded(columns, np.arange(first, first + each), load.codec)
                for first in range(0, chunk.size // each * each, each)
            ]
        lanes.append(lane)
    count = min(map(len, lanes))
    passing = sum(int(load.numbers(number)[: count * each].max()) + 1 for number in range(load.partitions))
    return Offer([list(tick) for tick in zip(*(lane[:count] for lane in lanes), strict=True)], passing, warm_s)


def measure_latency(peer: Peer, job: Job, rate: int, times: Times) -> tuple[int, NDArray[np.int64]]:
    """Offer a rate to a system for some time, with the standard case's records.

    Returns:
        How many records were looked at, and by milliseconds how many took so long, int64[longest + 1].

    Raises:
        FailedError: It ended, lost records, or did not catch up.
    """
    load = Load(records=int(rate * (times.warm_s + times.counted_s)), partitions=job.partitions)
    offer = make_offer(load, rate, times.warm_s)
    with running(peer.command(job), peer.environment(job), job.folder / "log") as process:
        found = asyncio.run(_follow(process, job, offer))
    return int(found.sum()), found


async def _follow(process: subprocess.Popen[bytes], job: Job, offer: Offer) -> NDArray[np.int64]:
    link = await Link.open({"bootstrap_servers": job.bootstrap_servers}, "bench-visible", [job.sink])
    failure: list[Exception] = []
    go = asyncio.Event()
    when: dict[str, float] = {}
    loop = asyncio.get_running_loop()

    async def send() -> None:
        source = await Link.open({"bootstrap_servers": job.bootstrap_servers}, "bench-offer", [job.source])
        producer = Producer(source, None)
        await producer.fence()
        await _send_tick(producer, job, offer.ticks[0], time.time())
        await producer.flush()
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(FIRST_S + 5)
        when["began"] = began = time.time()
        for number, tick in enumerate(offer.ticks[1:]):
            if "given up" in when:
                break
            due = began + number * TICK_S
            await asyncio.sleep(max(0.0, due - time.time()))
            await _send_tick(producer, job, tick, due)
        await producer.flush()
        when["ended"] = time.time()
        await producer.close()

    def sending() -> None:
        try:
            asyncio.run(send())
        except Exception as error:  # noqa: BLE001 - told to the reader, which raises it
            failure.append(error)

    thread = Thread(target=sending, name="offer")
    thread.start()
    try:
        return await _read(process, link, job, offer, go, when, failure)
    finally:
        when["given up"] = time.time()  # where all was read nothing is left to send
        go.set()
        await link.close()
        await asyncio.to_thread(thread.join)


async def _send_tick(producer: Producer, job: Job, tick: list[EncodedBatch], due_s: float) -> None:
    stamp = int(due_s * 1000)
    for partition, batch in enumerate(tick):
        timed = replace(batch, base_timestamp=stamp, max_timestamp=stamp)
        await producer.send(job.source, partition, [timed])


async def _read(
    process: subprocess.Popen[bytes],
    link: Link,
    job: Job,
    offer: Offer,
    go: asyncio.Event,
    when: dict[str, float],
    failure: list[Exception],
) -> NDArray[np.int64]:
    fetcher, decoder = Fetcher(link), Decoder()
    positions = dict.fromkeys((TopicPartition(job.sink, number) for number in range(job.partitions)), 0)
    found = np.zeros(1, np.int64)
    seen, deadline = 0, time.time() + FIRST_S
    while seen < offer.passing:
        if failure:
            raise FailedError(f"offering failed: {failure[0]!r}") from failure[0]
        if process.poll() is not None or time.time() > deadline:
            state = "ended by itself" if process.poll() is not None else "did not keep up"
            raise FailedError(f"it {state}: {seen:,} of {offer.passing:,} records became visible")
        for chunk in await fetcher.fetch(positions):
            now_ms = int(time.time() * 1000)
            tp = TopicPartition(chunk.topic, chunk.partition)
            for piece in decoder.pieces(chunk):
                positions[tp] = piece.next_offset
                stamps = piece.columns.timestamp
                seen += stamps.size
                if "began" in when:
                    took = now_ms - stamps[stamps >= (when["began"] + offer.warm_s) * 1000]
                    counted = np.bincount(np.maximum(took, 0), minlength=found.size)
                    counted[: found.size] += found
                    found = counted
            if not chunk.data:
                positions[tp] = max(positions[tp], chunk.last_stable_offset)
        if seen and not go.is_set():
            go.set()
            deadline = time.time() + len(offer.ticks) * TICK_S + FIRST_S
        if "ended" in when:
            deadline = min(deadline, when["ended"] + TAIL_S)
    return found


def percentile(found: NDArray[np.int64], share: float) -> float:
    """Return the milliseconds within which this share of the records was visible."""
    total = int(found.sum())
    if not total:
        raise ValueError("no record was looked at")
    return float(np.searchsorted(np.cumsum(found), share * total))
