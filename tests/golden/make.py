"""Makes ``commit_5fc7e47.tar.xz``: a broker's data folder and a worker's state folder, by an old commit.

It knows the old commit by its command line only, so nothing that is renamed here concerns it::

    git worktree add --detach OLD 5fc7e47
    PYTHONPATH=OLD python tests/golden/make.py

One stream goes into the source of each pipeline, in thirds. The old worker drains the first two, each in a run
of its own. It never sees the last third, which resends records of all three.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ARCHIVE = Path(__file__).with_name("commit_5fc7e47.tar.xz")
APPLICATION = "golden"
PARTITIONS, SINKS = 2, 3
THIRD = 1000
STEP_MS = 1000
KEPT, JUDGED = ("raw", "quarantine"), ("clean", "duplicates")
START_MS = 1_735_689_600_000
"""2025-01-01: in the past wherever the fixture is used."""
SMALL = {"SEQMARK_TEST_RUN_IDS": "64", "SEQMARK_TEST_SNAPSHOT_IDS": "64"}
"""So few ids make a run of ids and a snapshot of the Bloom filters."""
_IDS = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "10m"}
_BLOOM = {"bucket": "2m", "expected_per_bucket": 100}
DEDUP: dict[str, dict[str, Any]] = {
    "plain": {"mode": "watermark", "sequence": {"from": "header", "name": "n", "format": "int64"}},
    "keyed": {
        "mode": "watermark",
        "scope": "key",
        "sequence": {"from": "header", "name": "seq", "format": "int64"},
        "epoch": {"from": "header", "name": "epoch", "format": "int32"},
        "reorder_window": 8,
    },
    "exact": _IDS,
    "refreshed": {**_IDS, "refresh": True},
    "confirmed": {**_IDS, "backend": "bloom", "bloom": {**_BLOOM, "false_positive_rate": 0.01}},
    "unconfirmed": {
        **_IDS,
        "backend": "bloom",
        "bloom": {**_BLOOM, "false_positive_rate": 1e-12, "confirm": False},
    },
    "routed": {**_IDS, "window": "7d", "route": "by-id"},
}
"""``[pipelines.dedup]`` by pipeline; their topics are the name with ``.raw``, ``.clean`` and so on."""


class _Sent(NamedTuple):
    partition: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def _stream() -> list[_Sent]:
    """Make new records, resends within and beyond the window, late numbers, and records without headers."""
    dice = random.Random(5)
    sent: list[_Sent] = []
    counts: dict[tuple[int, bytes], tuple[int, int, list[int]]] = {}
    for number in range(3 * THIRD):
        kind = dice.random()
        record = dice.choice(sent[-900:]) if sent else _Sent(0, b"", b"", ())
        if kind < 0.02:
            record = record._replace(headers=())
        elif kind < 0.05:
            record = record._replace(partition=dice.randrange(PARTITIONS))
        elif kind > 0.2:
            name = partition, key = dice.randrange(PARTITIONS), b"key-%d" % dice.randrange(20)
            epoch, last, left = counts.get(name, (0, 0, []))
            if dice.random() < 0.01:
                epoch, last, left = epoch + 1, 0, []
            step = dice.choice((1,) * 20 + (2, 5, 30))
            left = [*left, *range(last + 1, last + step)][-40:]
            last += step
            counts[name] = epoch, last, left
            seq = left.pop(dice.randrange(len(left))) if left and dice.random() < 0.2 else last
            headers = {"n": number, "seq": seq}
            whole = tuple((each, value.to_bytes(8, "big")) for each, value in headers.items())
            ids = (("epoch", epoch.to_bytes(4, "big")), ("id", b"id-%d" % number))
            record = _Sent(partition, key, b'{"n": %d}' % number, (*whole, *ids))
        sent.append(record)
    return sent


def _send(bootstrap: str, records: list[_Sent], first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 50})
    for name in DEDUP:
        for number, each in enumerate(records, first):
            time_ms = START_MS + number * STEP_MS
            producer.produce(
                f"{name}.raw",
                each.value,
                each.key,
                each.partition,
                timestamp=time_ms,
                headers=list(each.headers),
            )
            producer.poll(0)
        assert not producer.flush(60)


def _create_topics(bootstrap: str) -> None:
    """Create all that a config names: with retention, the broker would delete records of 2025."""
    forever = {"retention.ms": "-1"}
    topics = [NewTopic(f"{name}.{kind}", PARTITIONS, 1, config=forever) for name in DEDUP for kind in KEPT]
    topics += [
        NewTopic(f"{name}.{kind}", SINKS if name == "routed" else PARTITIONS, 1, config=forever)
        for name in DEDUP
        for kind in JUDGED
    ]
    client = AdminClient({"bootstrap.servers": bootstrap})  # held: its futures die with it
    for made in client.create_topics(topics).values():
        made.result(60)


def _config(bootstrap: str) -> str:
    lines = ["[kafka]", f'bootstrap_servers = "{bootstrap}"', "[worker]", f'application_id = "{APPLICATION}"']
    lines += ['state_dir = "state"', "web_port = 0", "slots = 1"]
    for name, dedup in DEDUP.items():
        topics = {"source": "raw", "sink": "clean", "duplicates": "duplicates", "quarantine": "quarantine"}
        lines += ["[[pipelines]]", f'name = "{name}"']
        lines += [f'{key} = "{name}.{suffix}"' for key, suffix in topics.items()]
        lines += ["[pipelines.dedup]", *(f"{key} = {_toml(value)}" for key, value in dedup.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _run(folder: Path) -> None:
    """Fill ``folder / "broker"`` and ``folder / "state"``."""
    command = [sys.executable, "-m", "processor"]
    broker_command = [*command, "broker", "--data-dir", "broker"]
    with subprocess.Popen(broker_command, cwd=folder, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            bootstrap = broker.stdout.readline().removeprefix("ready ").strip()
            (folder / "config.toml").write_text(_config(bootstrap))
            _create_topics(bootstrap)
            stream = _stream()
            for third in range(3):
                _send(bootstrap, stream[third * THIRD : (third + 1) * THIRD], third * THIRD)
                if third < 2:
                    worker_command = [*command, "worker", "-c", "config.toml", "--drain"]
                    subprocess.run(worker_command, cwd=folder, env={**os.environ, **SMALL}, check=True)
        finally:
            broker.terminate()


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is made again at each start, and who and when it was."""
    name = Path(entry.name).name
    if name in {"server.properties", "broker.log", "in-use", "LOG", "LOCK", ".lock"} or "LOG.old" in name:
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        _run(Path(made))
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for part in ("broker", "state"):
                archive.add(Path(made, part), part, filter=_kept)
