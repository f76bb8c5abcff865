"""A cluster of three brokers, each of which can be killed, stopped, paused, or cut off from the workers.

Each node is broker and controller in a process of its own. Everything has three replicas, of which two have to
take a record before it is acknowledged: one node may be missing at any time. Topics are created when they are
asked for, as Kafka's own default is.

    workers and other Seqmark processes  ->  cluster.bootstrap_servers  ->  a proxy each  ->  node
    feeds, readers and the nodes         ->  cluster.direct             ->                    node
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from processor.broker.embedded import EmbeddedBroker, new_cluster_id
from processor.broker.ports import HOST, Ports
from tests.support.kafka.halted import halted
from tests.support.kafka.proxy import Proxy
from tests.support.kafka.topics import CALL_S, admin, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka.admin import ClusterMetadata

NODES = (1, 2, 3)
HEAP_MB = 320
SHORT_CALL_S = 5.0
"""For an answer that may be asked of a node that hangs; then another one is asked."""
WAIT_S = 120.0
"""For a cluster to come to rest, on a machine whose cores are taken."""
_SETTINGS = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
    # Three brokers on the cores of one.
    "num.network.threads": "1",
    "num.io.threads": "3",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}


class Cluster:
    """Three nodes; a context manager that starts and stops them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        ports = {node: Ports(0) for node in NODES}
        proxied = {node: Ports(0) for node in NODES}
        for claim in proxied.values():
            self._stack.callback(claim.release)
        self.proxies = {node: self._stack.enter_context(Proxy(proxied[node].broker)) for node in NODES}
        """In front of the nodes, by number."""
        voters = ",".join(f"{node}@{HOST}:{ports[node].controller}" for node in NODES)
        cluster_id = new_cluster_id()
        self.nodes = {
            node: EmbeddedBroker(
                ports=ports[node],
                cluster_id=cluster_id,
                heap_mb=HEAP_MB,
                overrides={
                    **_SETTINGS,
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://{HOST}:{ports[node].broker},"
                    f"CONTROLLER://{HOST}:{ports[node].controller},PROXIED://{HOST}:{proxied[node].broker}",
                    "advertised.listeners": f"PLAINTEXT://{HOST}:{ports[node].broker},"
                    f"PROXIED://{HOST}:{self.proxies[node].port}",
                },
            )
            for node in NODES
        }
        """The brokers, by number."""

    def __enter__(self) -> Self:
        try:
            self.restore()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor(len(NODES)) as pool:
            # Without order: a majority of controllers must live for a clean stop.
            list(pool.map(EmbeddedBroker.kill, self.nodes.values()))
        for node in self.nodes.values():
            node.stop()
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        """Through the proxies."""
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies.values())

    @property
    def direct(self) -> str:
        """Past the proxies."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def restore(self) -> None:
        """Start what does not run, heal all that is cut off, and wait until every replica is in sync."""
        for proxy in self.proxies.values():
            proxy.heal()
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(EmbeddedBroker.start, self.nodes.values()))
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """Wait until every partition has all of its replicas in sync, as every node says.

        A node that was halted knows for a while what was true before.
        """

        def settled(node: int) -> bool:
            found = self._told(node)
            parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
            return len(found.brokers) == len(NODES) and all(
                len(part.isrs) == len(part.replicas) for part in parts
            )

        until(lambda: all(map(settled, NODES)), "all replicas are in sync", WAIT_S)

    def wait_leads_nothing(self, node: int) -> None:
        """Wait until others lead in the place of a node, which may hang."""
        others = ",".join(other.bootstrap_servers for number, other in self.nodes.items() if number != node)

        def moved() -> bool:
            try:
                topics = admin(others).list_topics(timeout=SHORT_CALL_S).topics.values()
            except KafkaException:  # the one that hangs was asked
                return False
            return all(part.leader not in {node, -1} for each in topics for part in each.partitions.values())

        until(moved, f"others lead in place of broker {node}", WAIT_S)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the node that coordinates the transactions of an id; there has been one."""
        return self._coordinator("__transaction_state", transactional_id)

    def group_coordinator(self, group_id: str) -> int:
        """Return the node that coordinates a consumer group; there has been one."""
        return self._coordinator("__consumer_offsets", group_id)

    def _coordinator(self, topic: str, key: str) -> int:
        leaders = self.leaders(topic)
        value = 0
        for char in key:  # Java's hash of a text, a whole number of 32 bits; Kafka takes it without its sign
            value = (31 * value + ord(char)) & 0xFFFFFFFF
        return leaders[min(value, 2**32 - value) % len(leaders)]

    def pause(self, node: int) -> None:
        """Stop a node's clock: it is cut off from everybody, and the others lead in its place before long.

        It answers nothing any more when this returns.
        """
        os.kill(self.nodes[node].pid, signal.SIGSTOP)
        until(lambda: halted(self.nodes[node].pid), f"all threads of broker {node} are halted")

    def resume(self, node: int) -> None:
        """Let it go on after `pause`."""
        os.kill(self.nodes[node].pid, signal.SIGCONT)

    def create_topic(self, topic: str, leaders: Sequence[int], replicas: int = len(NODES)) -> None:
        """Create a topic whose partitions are led by these nodes, in order, and have so many replicas.

        All nodes serve, and know it in the end: a client may ask any of them.
        """
        client = admin(self.direct)
        settings = {"retention.ms": "-1", "min.insync.replicas": str(min(replicas, 2))}
        where = [[leader, *(node for node in NODES if node != leader)][:replicas] for leader in leaders]
        new = NewTopic(topic, len(leaders), replica_assignment=where, config=settings)
        client.create_topics([new])[topic].result(CALL_S)

        def known() -> bool:
            return all(_leaders(self._told(node), topic) == list(leaders) for node in NODES)

        until(known, f"leaders of {topic}")

    def leaders(self, topic: str) -> list[int]:
        """Return who leads a topic's partitions, in order; -1: nobody. Empty while it is not known."""
        return _leaders(admin(self.direct).list_topics(timeout=CALL_S), topic)

    def _told(self, node: int) -> ClusterMetadata:
        """Return what a node says of the cluster: a new client knows nobody else whom it could ask."""
        return admin(self.nodes[node].bootstrap_servers).list_topics(timeout=CALL_S)


def _leaders(found: ClusterMetadata, topic: str) -> list[int]:
    parts = found.topics[topic].partitions if topic in found.topics else {}
    return [part.leader for _, part in sorted(parts.items())]


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    """Give the cluster of the whole run, as the last test has left it."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """Give a cluster whose nodes all serve."""
    running_cluster.restore()
    return running_cluster
