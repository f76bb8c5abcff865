"""Tries a transaction on an id of the doctor's own, aborts it, and reads the broker's clock off its end.

The id is ``<application_id>-doctor``: no worker's is touched. It has one partition of a changelog and no
record. It is aborted: the broker writes an abort marker there, a control record that every reader skips, with
the time of its own clock. A doctor that is stopped in between leaves one that the broker aborts by itself.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import TYPE_CHECKING

from processor.errors import RebuildError, SeqmarkError
from processor.kafka.client import KafkaError, TopicPartition
from processor.kafka.offsets import READ_UNCOMMITTED, bounds
from processor.kafka.protocol.internals import FetchRequest
from processor.kafka.transactions.coordinator import Coordinator
from processor.ops.status_text import duration

if TYPE_CHECKING:
    from processor.inspection.findings import Findings
    from processor.kafka.client import Client
    from schemas.config import Settings

PART = "transactions"
TIMEOUT_MS = 10_000
DEADLINE_S = 8.0
ASK_S = 5.0
PAUSE_S = 0.05
MOST_APART_S = 5.0
"""Clocks of machines with NTP are apart by milliseconds. `max_ahead` is 5 min, retention goes by hours."""
_HEADER = struct.Struct(">qiibIhiqq")
"""Of a record batch: base offset, length, leader epoch, magic, CRC, attributes, last delta, base and highest
timestamp (https://kafka.apache.org/documentation/#recordbatch)."""
_CONTROL = 0x20
_RIGHTS = "grant this principal WRITE and DESCRIBE on transactional ids with the prefix worker.application_id"


def doctors_id(settings: Settings) -> str:
    """Return the transactional id that is the doctor's own."""
    return f"{settings.worker.application_id}-doctor"


async def try_transaction(
    client: Client, settings: Settings, changelog: TopicPartition | None, trials: Findings
) -> None:
    """Note whether transactions work, and how far the clocks are apart; ``changelog`` is a partition of one."""
    name = doctors_id(settings)
    coordinator = Coordinator(client, name, TIMEOUT_MS, DEADLINE_S)
    tried = f"InitProducerId of {name}"
    try:
        await coordinator.describe()
        await _taken(coordinator)
    except SeqmarkError as error:
        trials.problem(PART, tried, str(error), _advice(error))
        _not_ended(trials, f"{tried} failed")
        return
    trials.ok(PART, tried, "no worker's id is touched")
    if changelog is None:
        _not_ended(trials, "there is no changelog yet")
        return
    tried = f"an aborted transaction on {changelog.topic}:{changelog.partition}"
    try:
        before = (await bounds(client, [changelog], ASK_S))[changelog].end
        await coordinator.add_partitions([changelog])
        began_s = time.time()
        await coordinator.end(commit=False)
        marker_s = await _marker_s(client, changelog, before)
    except (SeqmarkError, KafkaError, TimeoutError) as error:
        trials.problem(PART, tried, str(error), _advice(error))
        _clock_not_tried(trials, f"{tried} failed")
        return
    trials.ok(PART, tried, "it leaves no record, only an abort marker")
    _clock(trials, marker_s, began_s, time.time())


async def _taken(coordinator: Coordinator) -> None:
    """Take the id; what another doctor has left open is aborted first.

    Raises:
        RebuildError: Not within the deadline.
    """
    deadline = time.monotonic() + DEADLINE_S
    while not await coordinator.init():
        if time.monotonic() > deadline:
            raise RebuildError("init", f"{coordinator.name} could not be taken in {DEADLINE_S:.0f} s")
        await asyncio.sleep(PAUSE_S)


def not_tried(settings: Settings, trials: Findings, why: str) -> None:
    """Note that nothing of it could be tried."""
    trials.not_tried(PART, f"InitProducerId of {doctors_id(settings)}", why)
    _not_ended(trials, why)


def _not_ended(trials: Findings, why: str) -> None:
    trials.not_tried(PART, "an aborted transaction on a changelog", why)
    _clock_not_tried(trials, why)


def _clock_not_tried(trials: Findings, why: str) -> None:
    trials.not_tried(PART, "clock difference to the broker", why)


def _clock(trials: Findings, marker_s: float | None, began_s: float, ended_s: float) -> None:
    tried = "clock difference to the broker"
    if marker_s is None:
        _clock_not_tried(trials, "the abort marker was not seen")
        return
    # It was written between the two; what lies inside is no difference.
    apart_s = max(began_s - marker_s, marker_s - ended_s, 0.0)
    which = "ahead" if marker_s > ended_s else "behind"
    if apart_s > MOST_APART_S:
        trials.warning(
            PART,
            tried,
            f"the broker's clock is {duration(apart_s)} {which} of this machine's",
            "have both set by NTP: how far records may be ahead (max_ahead) goes by the worker's clock",
        )
    else:
        trials.ok(PART, tried, f"less than {max(1, round(apart_s))} s" if apart_s else "none to be seen")


async def _marker_s(client: Client, tp: TopicPartition, before: int) -> float | None:
    """Return the time of the first abort marker at or behind an offset, by the leader's clock; None: not seen.

    It may take a moment until the leader has written it.
    """
    deadline = time.monotonic() + ASK_S
    at = before
    while time.monotonic() < deadline:
        node = client.leader(tp)
        if node is None:
            return None
        request = FetchRequest(500, 1, 1 << 20, READ_UNCOMMITTED, [(tp.topic, [(tp.partition, at, 1 << 20)])])
        answer = await client.request(node, request, coordination=True, timeout_s=ASK_S)
        for _, rows in answer.topics:
            for row in rows:
                found, at = marker_ms(row[-1] or b"", at)
                if found is not None:
                    return found / 1000
    return None


def marker_ms(data: bytes, at: int) -> tuple[int | None, int]:
    """Return the timestamp (ms) of the first control batch in fetched bytes, and the offset to go on at."""
    start = 0
    while start + _HEADER.size <= len(data):
        base, length, _, _, _, attributes, last_delta, _, highest_ms = _HEADER.unpack_from(data, start)
        if base >= at and attributes & _CONTROL:
            return highest_ms, base + last_delta + 1
        at = max(at, base + last_delta + 1)
        start += 12 + length
    return None, at


def _advice(error: Exception) -> str:
    text = str(error)
    if "AUTHORIZATION" in text:
        return _RIGHTS
    if isinstance(error, RebuildError) and "CoordinatorNotAvailable" in text:
        return (
            "brokers cannot make __transaction_state: set transaction.state.log.replication.factor to at most "
            "their number"
        )
    return "see the brokers' logs"
