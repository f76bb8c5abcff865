"""Takes a transactional id from its last owner, and brings the end of a transaction to every partition.

Two things are not as one expects of Kafka:

- A broker that does not verify partitions (before 3.6, or `transaction.partition.verification.enable=false`)
  takes a transaction's batch whether its coordinator has the transaction open or not. Who ends another's
  transaction and leaves it its epoch has it write the rest, and commit half.
- Kafka ends a transaction by a marker in each of its partitions, and leaves a partition out that has no leader
  at that moment (KAFKA-20734: the coordinator takes it for deleted; seen with a single broker that was being
  stopped). What was written there stays open: `read_committed` stops before it, and whatever ends the same
  producer's next transaction decides about it: shows what was aborted, or takes back what was committed.

Invariants, on brokers with and without verification:

1. The epoch is raised before anything else. `InitProducerId` does so in one step with the abort of what is
   open, and the markers of that abort carry the raised epoch: the owner can neither end it nor write on.
2. A marker is written only under an epoch that its writer holds, for a transaction of which the writer knows
   how it ended. So it cannot end a later one: that has a higher epoch, and its partition refuses the marker.
3. Every step can be cut off anywhere and done again, by anybody. How the last transaction ended, the
   coordinator says until the epoch is raised; where that is still needed, the raise itself keeps it
   (`TransactionOutcome`), it is brought, and a second raise forgets it.

What an old owner (epoch e, alive, unaware) can do after each request of a new one, and what comes of it::

    it stands at    request             what the old owner has done meanwhile, and then
    Ongoing         InitProducerId      nothing, or more of it: aborted under a raised epoch, asked again
                                        ended it: the id is taken; look, and what is open is "unknown"
    Prepare*        wait                it can do nothing
    Complete*       look                begun another: is seen by the question after the look
    or Empty
     nothing open   InitProducerId      begun another: aborted, asked again
                                        begun and ended another: look; what is open is "unknown"
     open, and it   ask again           begun another: it stands at Ongoing, or has another time of begin
     is told how    InitProducerId,     as where nothing is open
     it ended       keeps the outcome
                    WriteTxnMarkers     it can do nothing: its epoch is too low for the coordinator, and for
                                        the partition once that is marked
                    InitProducerId      the same
     open, and it   wait                brought the end of what it has committed: it knows, and does so under
     is "unknown"                       e, whoever holds the id now (`settle`). Else nothing is guessed

To be "unknown" it takes an owner that has lost its partitions and begins and ends a whole transaction in the
milliseconds between look and raise, a broker that leaves out a marker of just this one, and the end of that
owner before it has seen to it. Then the id is not taken, and the log says so.

Epochs that are used up (32,766) make a raise give a new producer id. Cut off just then, what is open under the
old one stays open. With transaction.version 2 the coordinator raises the epoch twice when it aborts; our own
`EndTxn` is of version 0 and leaves it as it is. Source: Kafka 3.9, TransactionCoordinator and
TransactionMetadata; run with 3.0.2, 3.5.2 and 4.3.0, with and without verification, in all three versions of
transactions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import RebuildError
from processor.kafka.client import KafkaCode, KafkaError, TopicPartition, error_name
from processor.kafka.offsets import bounds, last_stable
from processor.kafka.protocol.requests import DescribeProducersRequest, WriteTxnMarkersRequest
from processor.kafka.transactions.coordinator import TransactionOutcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from processor.kafka.client import Client
    from processor.kafka.transactions.coordinator import Coordinator, TransactionDescription

log = logging.getLogger(__name__)

ASK_AFTER_S = 0.05
"""Markers come within milliseconds; only then is the coordinator asked whether it has written them all."""
PAUSE_FIRST_S = 0.001
PAUSE_LAST_S = 0.05


class End(NamedTuple):
    """How a transaction has ended, and under which of its writer's epochs that is brought to a partition."""

    producer_id: int
    epoch: int
    outcome: TransactionOutcome


class _Open(NamedTuple):
    """A producer's open transaction, as a partition knows it."""

    first_offset: int
    producer_epoch: int
    coordinator_epoch: int


async def take(
    client: Client, coordinator: Coordinator, written: Collection[TopicPartition], deadline_s: float
) -> None:
    """Take the coordinator's id: ends its last owner's transaction in all partitions, and its right to write.

    ``written`` are all partitions that owners of the id write to.

    Raises:
        RebuildError: Not done within the deadline.
        StopError: The broker is too old, or the time-out is above the broker's.
    """
    deadline, pause = time.monotonic() + deadline_s, PAUSE_FIRST_S
    while True:
        last = await coordinator.describe()
        try:
            if await _take(client, coordinator, last, written, deadline_s):
                return
            problem = f"it is {last}; 'A transaction that hangs' in docs/operations.md, if that stays"
        except (KafkaError, _MarkerError) as error:
            problem = f"what its last owner left open is not told: {error}"
            await client.refresh()
        if time.monotonic() > deadline:
            raise RebuildError("init", f"{coordinator.name} could not be taken in {deadline_s} s: {problem}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, PAUSE_LAST_S)


async def _take(
    client: Client,
    coordinator: Coordinator,
    last: TransactionDescription | None,
    written: Collection[TopicPartition],
    deadline_s: float,
) -> bool:
    """Go once through the table above; whether the id is ours, and nothing of before is open."""
    if last is None:
        return await coordinator.init()
    if last.ending:
        return False
    found = {} if last.open else await _found_open(client, written, last.producer_id, deadline_s)
    if found and (last.outcome is None or await coordinator.describe() != last):
        return False
    if not await coordinator.init(last.outcome if found else None):
        return False
    if found and last.outcome is not None:
        same = coordinator.producer_id == last.producer_id
        end = End(last.producer_id, coordinator.epoch if same else last.epoch, last.outcome)
        await settle(client, coordinator, found, end, deadline_s)
        if not await coordinator.init():
            return False
    return not await _found_open(client, written, last.producer_id, deadline_s)


async def settle(
    client: Client, coordinator: Coordinator, first: Mapping[TopicPartition, int], end: End, deadline_s: float
) -> None:
    """See the end of a transaction in every partition, and bring it where it is missing.

    ``first`` has the offset of the first record that the transaction wrote, by partition.

    Raises:
        RebuildError: It could not be seen or brought.
    """
    open_ = dict(first)
    began, pause = time.monotonic(), PAUSE_FIRST_S
    while open_:
        stable = await last_stable(client, open_, deadline_s)
        open_ = {tp: offset for tp, offset in open_.items() if stable[tp] <= offset}
        if open_ and time.monotonic() > began + ASK_AFTER_S:
            last = await coordinator.describe()
            # Whoever has the id now, all markers of this transaction are written, or were left out.
            if last is None or not last.ending:
                open_ = await _mend(client, end, open_)
        if time.monotonic() > began + deadline_s:
            where = ", ".join(f"{tp.topic}:{tp.partition} from offset {offset}" for tp, offset in open_.items())
            raise RebuildError(
                "markers",
                f"{coordinator.name}: the end of its last transaction is not seen in {where} after "
                f"{deadline_s} s; 'A transaction that hangs' in docs/operations.md",
            )
        if open_:
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_LAST_S)


async def _found_open(
    client: Client, partitions: Collection[TopicPartition], producer_id: int, deadline_s: float
) -> dict[TopicPartition, int]:
    """Return the partitions in which the producer has a transaction open, with the offset where it begins."""
    limits = await bounds(client, partitions, deadline_s)
    found = {}
    for tp, limit in limits.items():
        if limit.stable < limit.end:  # somebody has
            node = client.leader(tp)
            if node is None:
                raise _MarkerError(f"{tp.topic}:{tp.partition} has no leader")
            known = await _open_in(client, node, tp, producer_id)
            if known is not None:
                found[tp] = known.first_offset
    return found


async def _mend(client: Client, end: End, open_: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Write the missing markers; returns what of ``open_`` is not known to be well."""
    left = {}
    for tp, offset in open_.items():
        node = client.leader(tp)
        try:
            known = None if node is None else await _open_in(client, node, tp, end.producer_id)
            # One that is open, but begins later, is another: ours has ended there.
            ours = known is not None and known.first_offset <= offset and known.producer_epoch <= end.epoch
            if node is not None and known is not None and ours:
                log.warning("%s:%s: its transaction is %s, writing it", *tp, end.outcome.name.lower())
                await _write_marker(client, node, tp, end, known)
            if node is None or ours:
                left[tp] = offset  # to be seen
        except (KafkaError, _MarkerError) as error:
            log.warning("the end of a transaction in %s:%s: %s", tp.topic, tp.partition, error)
            await client.refresh()
            left[tp] = offset
    return left


class _MarkerError(Exception):
    """The leader of a partition says no; asking again may help, or what an operator allows."""


async def _open_in(client: Client, node: int, tp: TopicPartition, producer_id: int) -> _Open | None:
    """Return how the partition knows the producer's open transaction; None where it has none."""
    answer = await client.request(node, DescribeProducersRequest({tp.topic: [tp.partition]}), coordination=True)
    for _, partitions, _ in answer.topics:
        for _, code, _, producers, _ in partitions:
            if code == KafkaCode.TOPIC_AUTHORIZATION_FAILED:
                raise _MarkerError(
                    f"cannot learn whose transaction is open: grant this principal READ on topic {tp.topic}"
                )
            if code != KafkaCode.NONE:
                raise _MarkerError(f"{tp.topic}:{tp.partition}: {error_name(code)}")
            for found, epoch, _, _, coordinator_epoch, start, _ in producers:
                if found == producer_id and start >= 0:
                    return _Open(start, epoch, max(coordinator_epoch, 0))
    return None


async def _write_marker(client: Client, node: int, tp: TopicPartition, end: End, known: _Open) -> None:
    committed = end.outcome is TransactionOutcome.COMMITTED
    request = WriteTxnMarkersRequest(end.producer_id, end.epoch, tp, known.coordinator_epoch, commit=committed)
    answer = await client.request(node, request, coordination=True)
    codes = [code for _, topics, _ in answer.markers for _, parts, _ in topics for _, code, _ in parts]
    for code in codes:
        if code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED:
            raise _MarkerError("cannot write it: grant this principal ALTER on the cluster")
        if code != KafkaCode.NONE:
            raise _MarkerError(error_name(code))
