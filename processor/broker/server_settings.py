"""Writes the settings of the embedded broker.

For one machine: ready in seconds on two cores, and nothing that changes what a client sees of its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.broker.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from processor.broker.ports import Ports

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "logs",  # relative to the data folder, for a path could hold a comma
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # 50 partitions each by default, every one with its files: a second at first use.
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Looked for every 10 s by default; tests wait for an expired transaction's abort.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After kill -9 the controller takes the old incarnation for alive this long (default 9 s). Lower still,
    # a machine that is busy elsewhere would fence its only broker.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),  # 128 MiB of heap by default
}


def write_settings(file: Path, ports: Ports, overrides: Mapping[str, str]) -> None:
    """Write ``server.properties``; `overrides` win."""
    settings = {
        **_SETTINGS,
        "listeners": f"PLAINTEXT://{HOST}:{ports.broker},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports.broker}",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        **overrides,
    }
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())
    file.write_text(text, encoding="ascii")


def _escaped(value: str) -> str:
    """Write a value as Java reads a .properties file: ASCII, with escapes."""
    return "".join(char if " " <= char <= "~" and char != "\\" else f"\\u{ord(char):04x}" for char in value)
