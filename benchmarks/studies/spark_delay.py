"""Measures how long an event takes until an aggregate covers it; both ways run without end, at a modest rate.

Each event carries the time at which it was due to be sent. A partition has a campaign of its own, so that the
events of a campaign keep their order, and the count in the newest row of a campaign says which of them it
covers: the first so many. An event's delay ends when a reader of the output topic has such a row. Both ways
write rows in update mode to Kafka, one batch per second.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from benchmarks.cluster import create, remove
from benchmarks.measure.processes import running
from processor.kafka.client import Client
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import plain_batch

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

RATE = 2_000
"""Events per second: far below what either way can take on two cores."""
TICK_S = 0.1
PARTITIONS = 4
DUPLICATES = 0.05
SECONDS = 30.0
WARM_S = 20.0
"""Offered after the first row was seen, before delays count: Spark compiles its first batches."""
START_S = 180.0
TAIL_S = 60.0
POLL_MS = 500
PIPELINE = """\
[kafka]
bootstrap_servers = "{servers}"

[worker]
application_id = "{name}"
state_dir = "{folder}/{name}-state"
web_port = 0

[[pipelines]]
name = "clicks"
source = "{name}.raw"
sink = "{name}.clean"

[pipelines.dedup]
mode = "watermark"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""
SINK = """
[[sinks]]
name = "{sink}"
topic = "{name}.clean"
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1 hour"
watermark = "{watermark}"
group_by = ["campaign"]
aggregates = {{ events = "count", revenue = "sum:amount" }}
checkpoint = "{folder}/{sink}-checkpoint"
"""
OUTPUT = """\
output = {{ kind = "kafka", topic = "{name}.rows" }}
trigger = "1 second"
"""


class DelayError(Exception):
    """No delay could be measured."""


@dataclass(slots=True)
class Sent:
    """What has been offered.

    Attributes:
        due: By campaign, the time of each event that counts, in order.
        stop: Set when enough was offered.
        count_from: Events due before this are not looked at; None until it is known.
    """

    due: dict[str, list[float]] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    count_from: float | None = None


def measure_delay(way: str, servers: str, folder: Path) -> dict[str, Any]:
    """Run one way, ``seqmark`` or ``alone``, and return rate, events, p50_ms, p99_ms, most_ms.

    Raises:
        DelayError: A program ended, or rows do not come.
    """
    name, sink = f"bench-delay-{way}", f"delay-{way}"
    config = folder / f"{name}.toml"
    given = {"servers": servers, "name": name, "folder": folder, "sink": sink, "watermark": "10 minutes"}
    config.write_text((PIPELINE + SINK + OUTPUT).format(**given))
    asyncio.run(create(servers, f"{name}.raw", PARTITIONS))
    # As the sink would make it.
    asyncio.run(create(servers, f"{name}.rows", PARTITIONS, **{"cleanup.policy": "compact"}))
    python = [sys.executable, "-m"]
    calls = [[*python, "benchmarks.studies.spark_alone", str(config), sink, "0"]]
    if way == "seqmark":
        asyncio.run(create(servers, f"{name}.clean", PARTITIONS))
        calls = [[*python, "processor", command, "-c", str(config)] for command in ("worker", "sink")]
    logs = [folder / f"{name}-{number}.log" for number in range(len(calls))]
    try:
        with ExitStack() as stack:
            programs = [
                stack.enter_context(running(call, {}, log)) for call, log in zip(calls, logs, strict=True)
            ]
            delays = asyncio.run(_follow(programs, servers, name))
    except DelayError as error:
        told = "\n".join(log.read_text(errors="replace")[-1500:] for log in logs)
        raise DelayError(f"{way}: {error}\n{told}") from error
    finally:
        asyncio.run(remove(servers, name))
    p50, p99, most = (float(delay) for delay in np.percentile(delays, (50, 99, 100)) * 1000)
    return {"rate": RATE, "events": len(delays), "p50_ms": p50, "p99_ms": p99, "most_ms": most}


async def _follow(programs: list[subprocess.Popen[bytes]], servers: str, name: str) -> list[float]:
    sent = Sent()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(f"{name}.rows", number) for number in range(PARTITIONS)])
    sending = asyncio.create_task(_offer(servers, f"{name}.raw", sent))
    try:
        return await _read(consumer, sent, programs, sending)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await consumer.stop()


async def _offer(servers: str, topic: str, sent: Sent) -> None:
    """Send events, a tick at a time, until told to stop."""
    producer = Producer(await Client.open({"bootstrap_servers": servers}, "bench-offer", [topic]), None)
    await producer.fence()
    rng = random.Random(7)  # noqa: S311 - a repeatable load, not a secret
    made: dict[int, list[Any]] = {number: [] for number in range(PARTITIONS)}
    began, tick = time.time(), 0
    try:
        while not sent.stop.is_set():
            due = began + tick * TICK_S
            tick += 1
            await asyncio.sleep(max(0.0, due - time.time()))
            for number, known in made.items():
                items, times = [], sent.due.setdefault(f"c{number}", [])
                for _ in range(round(RATE * TICK_S / PARTITIONS)):
                    if known and rng.random() < DUPLICATES:
                        items.append(rng.choice(known[-50:]))
                        continue
                    known.append(_event(number, len(times), due))
                    times.append(due)
                    items.append(known[-1])
                await producer.send(topic, number, [plain_batch(items, 3)])
        await producer.flush()
    finally:
        await producer.close()


def _event(partition: int, sequence: int, due: float) -> tuple[bytes, bytes, int, list[tuple[str, bytes]]]:
    fields = {
        "event_id": f"{partition}-{sequence}",
        "occurred_at": datetime.fromtimestamp(due, UTC).isoformat(timespec="milliseconds"),
        "campaign": f"c{partition}",
        "user_id": f"u-{sequence % 9_973:06d}",
        "page": f"/p/{sequence % 503}",
        "amount": f"{sequence % 90}.{sequence % 100:02d}",
    }
    value = json.dumps(fields, separators=(",", ":")).encode()
    return fields["user_id"].encode(), value, int(due * 1000), [("seq", sequence.to_bytes(8, "big"))]


async def _read(
    consumer: AIOKafkaConsumer, sent: Sent, programs: list[subprocess.Popen[bytes]], sending: asyncio.Task[None]
) -> list[float]:
    counts: dict[str, dict[str, int]] = {}
    covered: dict[str, int] = {}
    delays: list[float] = []
    deadline = time.time() + START_S
    while not (sent.stop.is_set() and covered == {name: len(due) for name, due in sent.due.items()}):
        if sending.done() and not sent.stop.is_set():
            raise DelayError(f"offering ended: {sending.exception()!r}")
        if any(process.poll() is not None for process in programs):
            raise DelayError("a program ended by itself")
        if time.time() > deadline:
            raise DelayError(f"after the time that there is, rows cover {covered} events")
        if sent.count_from is not None and time.time() > sent.count_from + SECONDS and not sent.stop.is_set():
            sent.stop.set()
            deadline = time.time() + TAIL_S
        polled = await consumer.getmany(timeout_ms=POLL_MS)
        now = time.time()
        for record in (record for records in polled.values() for record in records):
            row = json.loads(record.value or b"{}")
            counts.setdefault(row["campaign"], {})[row["window_start"]] = row["events"]
        delays += _newly_covered(counts, covered, sent, now)
        if covered and sent.count_from is None:
            sent.count_from = time.time() + WARM_S
            deadline = sent.count_from + SECONDS + TAIL_S
    return delays


def _newly_covered(
    counts: dict[str, dict[str, int]], covered: dict[str, int], sent: Sent, now: float
) -> list[float]:
    """Return the delays of events that rows cover since the last call, and note them in ``covered``."""
    delays: list[float] = []
    for name, windows in counts.items():
        total, before, due = sum(windows.values()), covered.get(name, 0), sent.due[name]
        if total > len(due):
            raise DelayError(f"campaign {name}: {total:,} events are counted, {len(due):,} were sent")
        if sent.count_from is not None:
            delays += [now - each for each in due[before:total] if each >= sent.count_from]
        covered[name] = total
    return delays
