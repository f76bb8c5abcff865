"""The cluster that tests stand on: any one node may be missing, or out of the reach of some clients only."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from processor.kafka.ports import HOST
from processor.kafka.probe import serves
from tests.support.cluster import NODES
from tests.support.topics import new, produce, read_topic, sequences, unique, until

if TYPE_CHECKING:
    from tests.support.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.crash]


def test_records_are_taken_and_kept_whichever_node_is_missing(cluster: Cluster) -> None:
    topic = unique("kept")
    cluster.create_topic(topic, NODES)

    cluster.nodes[2].kill()
    until(lambda: cluster.leaders(topic)[1] in {1, 3}, "another leads in its place")
    produce(cluster.direct, topic, [new(1)], partition=1)
    cluster.restore()
    cluster.nodes[cluster.leaders(topic)[1]].kill()
    until(lambda: -1 not in cluster.leaders(topic), "every partition has a leader")
    produce(cluster.direct, topic, [new(2)], partition=1)

    assert sequences(read_topic(cluster.direct, topic), 1) == [1, 2]


def test_a_proxy_holds_what_is_sent_and_hands_it_on_when_it_heals(cluster: Cluster) -> None:
    proxy = cluster.proxies[1]
    with socket.create_connection((HOST, proxy.port)) as connection:
        assert serves(HOST, proxy.port)
        proxy.swallow()
        assert not serves(HOST, proxy.port, 0.2)
        assert all(serves(HOST, cluster.proxies[node].port) for node in (2, 3))
        # ApiVersions, version 0: header and nothing else.
        connection.sendall(b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + b"\x00\x00\x00\x07" + b"\xff\xff")
        proxy.heal()
        assert connection.recv(8)[4:] == b"\x00\x00\x00\x07"
        proxy.cut()
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):  # what was on its way, then the end
                pass
