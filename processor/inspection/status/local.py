"""Asks what only this machine knows: state folders, and the metrics of a worker that runs here.

A worker is asked only where the group has a member on this machine. What answers at its port may be another
program, or another application's worker: it is believed if it has partitions of these pipelines.
"""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from processor.state.home import sizes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from processor.kafka.group.description import GroupDescription
    from schemas.config import Settings

ANSWER_S = 2.0
MOST_BYTES = 8 * 1024 * 1024
RECORDS, ASSIGNED = "seqmark_records_total", "seqmark_assigned_partitions"


class WorkerReading(NamedTuple):
    """What a worker on this machine has counted since it started."""

    address: str
    records: Mapping[str, int]
    """By hop."""


def local_bytes(settings: Settings, hop: str) -> list[int]:
    """Return the bytes of a hop's state in each worker's folder on this machine that has some."""
    try:
        found = sizes(settings.worker.state_dir, settings.worker.application_id, [hop])
    except OSError:  # a worker deletes files meanwhile, or others may not look
        return []
    return [size for size in found if size]


async def worker_reading(
    settings: Settings, group: GroupDescription | None, hops: Collection[str]
) -> WorkerReading | None:
    """Ask a worker of the group on this machine for what it has counted of ``hops``; None: none answers."""
    worker = settings.worker
    if not worker.web_port or group is None or not any(is_local(each.host) for each in group.members):
        return None
    host = "127.0.0.1" if worker.web_host in {"0.0.0.0", "::", ""} else worker.web_host  # noqa: S104 - no bind
    address = f"{f'[{host}]' if ':' in host else host}:{worker.web_port}"
    return reading(await asyncio.to_thread(_page, f"http://{address}/metrics"), address, hops)


def reading(text: str, address: str, hops: Collection[str]) -> WorkerReading | None:
    """Read a page of metrics; None where it is not of a worker that has partitions of ``hops``."""
    records: dict[str, int] = {}
    owns = False
    with suppress(ValueError):  # no page of metrics
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                hop = sample.labels.get("pipeline", "")
                if hop not in hops:
                    continue
                if sample.name == RECORDS:
                    records[hop] = records.get(hop, 0) + int(sample.value)
                owns |= sample.name == ASSIGNED and sample.value > 0
    return WorkerReading(address, records) if owns else None


def is_local(host: str) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _page(url: str) -> str:
    try:
        # The address is that of the config; a proxy of the environment has no part in it.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=ANSWER_S) as answer:
            return str(answer.read(MOST_BYTES).decode(errors="replace"))
    except (OSError, ValueError):
        return ""
