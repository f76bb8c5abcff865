"""Measures how long a record takes from produce to visible in the clean topic, at a fixed rate.

Batches are made beforehand and leave every 10 ms, one a partition, stamped with the time at which they were
**due**: a sender that is held up makes records late, not absent (no coordinated omission). A reader with
read_committed notes when it has each; both clocks are this machine's. What a producer's own linger adds is not
in it, nor is a network.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.load import RECORD_OVERHEAD_BYTES, Load
from benchmarks.measure.cost import program
from benchmarks.peers import FailedError
from processor.kafka.client import Client, TopicPartition
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


class Times(NamedTuple):
    """Seconds for which a load is offered; what comes in the first, ``warm_s``, is not looked at.

    Caches fill, JVMs compile: the broker's takes 0.2 to 0.3 of a core for some 15 s of such small requests,
    whatever it has done before; p99 is up to twice as long then.
    """

    warm_s: float
    counted_s: float


class Offer(NamedTuple):
    """What is sent, made beforehand: by tick a batch per partition; and how many records must come."""

    ticks: list[list[EncodedBatch]]
    passing: int
    warm_s: float


def make_offer(load: Load, rate: int, warm_s: float) -> Offer:
    """Cut a load into ticks; its first tick only shows that the system is there."""
    each = max(1, round(rate * TICK_S / load.partitions))
    # Batches of so many records, which all have the batch's time.
    even = replace(load, step_ms=0, batch_bytes=each * (load.form.width + RECORD_OVERHEAD_BYTES))
    numbers = range(load.partitions)
    lanes = [[batch for batch in even.batches(number) if batch.count == each] for number in numbers]
    count = min(map(len, lanes))
    passing = sum(int(load.numbers(number)[: count * each].max()) + 1 for number in numbers)
    return Offer([list(tick) for tick in zip(*(lane[:count] for lane in lanes), strict=True)], passing, warm_s)


def measure_latency(peer: Peer, job: Job, rate: int, times: Times) -> tuple[int, NDArray[np.int64]]:
    """Offer a rate to a system for some time, with the standard case's records.

    Returns:
        How many records were looked at; and by milliseconds how many took so long, int64[longest + 1].

    Raises:
        FailedError: It ended, lost records, or did not catch up.
    """
    load = Load(records=int(rate * (times.warm_s + times.counted_s)), partitions=job.partitions)
    offer = make_offer(load, rate, times.warm_s)
    with program(peer, job) as process:
        found = asyncio.run(_follow(process, job, offer))
    return int(found.sum()), found


class _Sending:
    """Sends an offer from a thread and a loop of its own, so that the reader does not hold it up."""

    def __init__(self, job: Job, offer: Offer) -> None:
        self._job, self._offer = job, offer
        self.go, self._given_up = Event(), False
        self.began = self.ended = 0.0
        self.failure: Exception | None = None
        self._thread = Thread(target=self._run, name="offer")
        self._thread.start()

    def end(self) -> None:
        """Send nothing more, and wait."""
        self._given_up = True
        self.go.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except Exception as error:  # noqa: BLE001 - told to the reader, which raises it
            self.failure = error

    async def _send(self) -> None:
        source = await Client.open(
            {"bootstrap_servers": self._job.bootstrap_servers}, "bench-offer", [self._job.source]
        )
        producer = Producer(source, None)
        await producer.fence()
        await self._tick(producer, self._offer.ticks[0], time.time())
        await producer.flush()
        await asyncio.to_thread(self.go.wait, FIRST_S + 5)
        self.began = time.time()
        for number, tick in enumerate(self._offer.ticks[1:]):
            if self._given_up:
                break
            due = self.began + number * TICK_S
            await asyncio.sleep(max(0.0, due - time.time()))
            await self._tick(producer, tick, due)
        await producer.flush()
        self.ended = time.time()
        await producer.close()

    async def _tick(self, producer: Producer, tick: list[EncodedBatch], due_s: float) -> None:
        stamp = int(due_s * 1000)
        for partition, batch in enumerate(tick):
            timed = replace(batch, base_timestamp=stamp, max_timestamp=stamp)
            await producer.send(self._job.source, partition, [timed])


async def _follow(process: subprocess.Popen[bytes], job: Job, offer: Offer) -> NDArray[np.int64]:
    client = await Client.open({"bootstrap_servers": job.bootstrap_servers}, "bench-visible", [job.sink])
    sending = _Sending(job, offer)
    try:
        return await _read(process, client, job, offer, sending)
    finally:
        await client.close()
        await asyncio.to_thread(sending.end)


async def _read(
    process: subprocess.Popen[bytes], client: Client, job: Job, offer: Offer, sending: _Sending
) -> NDArray[np.int64]:
    fetcher, decoder = Fetcher(client), Decoder()
    positions = dict.fromkeys((TopicPartition(job.sink, number) for number in range(job.partitions)), 0)
    found = np.zeros(1, np.int64)
    seen, deadline = 0, time.time() + FIRST_S
    while seen < offer.passing:
        if sending.failure:
            raise FailedError(f"offering failed: {sending.failure!r}") from sending.failure
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
                if sending.began:
                    took = now_ms - stamps[stamps >= (sending.began + offer.warm_s) * 1000]
                    counted = np.bincount(np.maximum(took, 0), minlength=found.size)
                    counted[: found.size] += found
                    found = counted
            if not chunk.data:
                positions[tp] = max(positions[tp], chunk.last_stable_offset)
        if seen and not sending.go.is_set():
            sending.go.set()
            deadline = time.time() + len(offer.ticks) * TICK_S + FIRST_S
        if sending.ended:
            deadline = min(deadline, sending.ended + TAIL_S)
    return found


def percentile(found: NDArray[np.int64], share: float) -> float:
    """Return the milliseconds within which this share of the records was visible."""
    total = int(found.sum())
    if not total:
        raise ValueError("no record was looked at")
    return float(np.searchsorted(np.cumsum(found), share * total))
