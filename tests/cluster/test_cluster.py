"""The proxies that the cluster's tests stand on: a node can be out of the reach of some clients only."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from processor.broker.ports import HOST, serves

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.crash]


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
