"""Does `examples/insert-id-routed.toml` do what it says, on records that are sent again to any partition?"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import New, create_topic, produce, read_topic, unique
from tests.support.worker import forks

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "insert-id-routed.toml"
IDS = 3_000
PARTITIONS = 4


def test_the_example_passes_each_id_once_wherever_it_was_sent(broker: Broker, tmp_path: Path) -> None:
    name = unique("example")
    topics = {role: f"{name}.{role}" for role in ("source", "sink", "duplicates", "quarantine")}
    create_topic(broker.bootstrap_servers, topics["source"], PARTITIONS)
    dice = random.Random(3)
    now_ms = int(time.time() * 1000)
    some = [New(None, b'{"insert_id": "%d"}' % number, (), now_ms) for number in range(IDS)]
    for partition in range(PARTITIONS):
        # Each partition has a third of all ids, twice.
        chosen = dice.sample(some, IDS // 3)
        produce(broker.bootstrap_servers, topics["source"], chosen, chosen, partition=partition, codec="lz4")
    env = {
        "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "SEQMARK_WORKER__APPLICATION_ID": name,
        "SEQMARK_WORKER__STATE_DIR": str(tmp_path / "state"),
        "SEQMARK_WORKER__WEB_PORT": "0",
        **{f"SEQMARK_PIPELINES__0__{role.upper()}": topic for role, topic in topics.items()},
    }

    done = forks.run("worker", "-c", str(EXAMPLE), "--drain", folder=tmp_path, env=env)

    assert done.returncode == 0, done.stderr
    source = read_topic(broker.bootstrap_servers, topics["source"])
    sink = read_topic(broker.bootstrap_servers, topics["sink"])
    assert sorted(each.value or b"" for each in sink) == sorted({each.value or b"" for each in source})
    receipts = read_topic(broker.bootstrap_servers, topics["duplicates"])
    assert len(receipts) == len(source) - len(sink)
    at = {(each.partition, each.offset): each for each in source}
    for said in (json.loads(each.value or b"") for each in receipts):
        owner = said["owner"]
        dropped = at[said["partition"], said["offset"]]
        assert dropped.value == at[owner["partition"], owner["offset"]].value
