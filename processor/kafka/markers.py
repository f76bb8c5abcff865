"""Has the end of a transaction reached every partition that it wrote to?

Kafka ends a transaction by a marker in each of its partitions. A broker of 4.3.0 leaves a partition out that
has no leader at that moment (KAFKA-20734: the coordinator takes it for deleted; seen here with a single broker
that was being stopped), and says that all is done. What was written there then stays open: `read_committed`
stops before it, and whatever ends the same producer's next transaction decides about it. A commit shows output
that was aborted, an abort takes back output that was committed.

So nothing is written before the end of the transaction before is seen in all its partitions; and where the
coordinator has ended it, but the partition still has it open, the marker is written there as the coordinator
should have done. How it ended is known as long as the coordinator says so: until the id is taken anew. A new
owner therefore looks and mends before it takes it.

Invariant: every step can be cut off anywhere and done again, by anybody: none changes what the coordinator
says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import RebuildError
from processor.kafka.kip664 import DescribeProducersRequest, WriteTxnMarkersRequest
from processor.kafka.offsets import bounds, last_stable
from processor.kafka.seam import IncompatibleBrokerVersion, Kafka, KafkaError, TopicPartition, error_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from processor.kafka.coordinator import Coordinator, Described
    from processor.kafka.seam import Link

log = logging.getLogger(__name__)

ASK_AFTER_S = 0.05
"""Markers come within milliseconds; only then is the coordinator asked whether it has written them all."""
PAUSE_FIRST_S = 0.001
PAUSE_LAST_S = 0.05


class _Open(NamedTuple):
    """A producer's open transaction, as a partition knows it."""

    producer_epoch: int
    coordinator_epoch: int


async def take(
    link: Link, coordinator: Coordinator, written: Collection[TopicPartition], deadline_s: float
) -> None:
    """Take the coordinator's id: ends its last owner's transaction in all partitions, and its right to write.

    Args:
        link: Connections.
        coordinator: Of the id.
        written: Partitions that owners of the id write to, all of them.
        deadline_s: For all of it.

    Raises:
        RebuildError: Not done within the deadline.
        TransactionTimeoutError: The time-out is above the broker's.
    """
    deadline, pause = time.monotonic() + deadline_s, PAUSE_FIRST_S
    while True:
        last = await coordinator.describe()
        if last is not None and last.open:
            # As its owner could; who was first, it or we, is then seen. Taking the id would abort too, and what
            # the coordinator says would tell an abort and a commit apart no more.
            await coordinator.abort_as(last)
        elif last is None or not last.ending:
            if last is not None and last.ended:
                await settle(link, coordinator, await _found_open(link, written, deadline_s), deadline_s)
            if await coordinator.init():
                return
        if time.monotonic() > deadline:
            raise RebuildError("init", f"{coordinator.name} could not be taken in {deadline_s} s; it is {last}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, PAUSE_LAST_S)


async def settle(
    link: Link, coordinator: Coordinator, first: Mapping[TopicPartition, int], deadline_s: float
) -> None:
    """See the end of the id's last transaction in every partition, and bring it where it is missing.

    Args:
        link: Connections.
        coordinator: Of the id; nothing has been begun since.
        first: Offset of the first record that the transaction wrote, or that is open, by partition.
        deadline_s: For all of it.

    Raises:
        RebuildError: It could not be seen or brought.
    """
    open_ = dict(first)
    began, pause = time.monotonic(), PAUSE_FIRST_S
    while open_:
        stable = await last_stable(link, open_, deadline_s)
        open_ = {tp: offset for tp, offset in open_.items() if stable[tp] <= offset}
        if open_ and time.monotonic() > began + ASK_AFTER_S:
            last = await coordinator.describe()
            if last is None or not (last.ended or last.ending):
                return  # the broker is too old to have this fault, or somebody else goes on
            if last.ended:
                open_ = await _mend(link, last, open_)
        if time.monotonic() > began + deadline_s:
            raise RebuildError(
                "markers",
                f"{coordinator.name}: the end of its last transaction is not seen in "
                f"{_listed(open_)} after {deadline_s} s; 'A transaction that hangs' in docs/operations.md",
            )
        if open_:
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_LAST_S)


async def _found_open(
    link: Link, partitions: Collection[TopicPartition], deadline_s: float
) -> dict[TopicPartition, int]:
    """Return the partitions in which a transaction is open, anybody's, with the offset where it begins."""
    limits = await bounds(link, partitions, deadline_s)
    return {tp: limit.stable for tp, limit in limits.items() if limit.stable < limit.end}


async def _mend(link: Link, last: Described, open_: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Write the missing markers; returns the partitions of ``open_`` of which it is not known that all is well.

    The marker carries the epochs that the partition knows, so it ends this transaction and no later one.
    """
    left = {}
    for tp, offset in open_.items():
        node = link.leader(tp)
        try:
            known = None if node is None else await _open_in(link, node, tp, last.producer_id)
            if node is not None and known is not None:
                what = "commit" if last.committed else "abort"
                log.warning("%s:%s lacks the %s of a transaction, writing it", *tp, what)
                await _write_marker(link, node, tp, last, known)
        except IncompatibleBrokerVersion:
            return {}
        except (KafkaError, _RefusedError) as error:
            log.warning("the end of a transaction in %s:%s: %s", tp.topic, tp.partition, error)
            await link.refresh()
            known = None
            left[tp] = offset
        if node is None or known is not None:
            left[tp] = offset  # to be seen
    return left


class _RefusedError(Exception):
    """The leader of a partition says no; asking again may help, or what an operator allows."""


async def _open_in(link: Link, node: int, tp: TopicPartition, producer_id: int) -> _Open | None:
    """Return how the partition knows the producer's open transaction; None where it has none."""
    answer = await link.request(node, DescribeProducersRequest({tp.topic: [tp.partition]}), coordination=True)
    for _, partitions, _ in answer.topics:
        for _, code, _, producers, _ in partitions:
            if code == Kafka.TOPIC_AUTHORIZATION_FAILED:
                raise _RefusedError(f"whose is open is not told: allow READ on topic {tp.topic}")
            if code != Kafka.NONE:
                raise _RefusedError(error_name(code))
            for found, epoch, _, _, coordinator_epoch, start, _ in producers:
                if found == producer_id and start >= 0:
                    return _Open(epoch, max(coordinator_epoch, 0))
    return None


async def _write_marker(link: Link, node: int, tp: TopicPartition, last: Described, known: _Open) -> None:
    request = WriteTxnMarkersRequest(
        last.producer_id, known.producer_epoch, last.committed, tp.topic, tp.partition, known.coordinator_epoch
    )
    answer = await link.request(node, request, coordination=True)
    codes = [code for _, topics, _ in answer.markers for _, parts, _ in topics for _, code, _ in parts]
    for code in codes:
        if code == Kafka.CLUSTER_AUTHORIZATION_FAILED:
            raise _RefusedError("it may not be written: allow ALTER on the cluster")
        if code != Kafka.NONE:
            raise _RefusedError(error_name(code))


def _listed(partitions: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{tp.topic}:{tp.partition} from offset {offset}" for tp, offset in partitions.items())
