"""The examples of insert ids do what they say, on streams that `seqmark generate` makes for them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import contents, read_topic, unique
from tests.support.worker import forks

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker
    from tests.support.kafka.topics import Record

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
RECORDS = 20_000
KEPT = "seqmark.original_id"


@pytest.mark.drawn("window")
@pytest.mark.parametrize("window", ["7d", "1h"])
@pytest.mark.parametrize(
    "example", ["insert-id.toml", "insert-id-bloom.toml", "content.toml", "fingerprint.toml"]
)
def test_the_example_keeps_what_the_truth_says(
    broker: Broker, tmp_path: Path, example: str, window: str
) -> None:
    name = unique("example")
    topics = {role: f"{name}.{role}" for role in ("source", "sink", "duplicates", "quarantine")}
    env = {
        "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "SEQMARK_WORKER__APPLICATION_ID": name,
        "SEQMARK_WORKER__STATE_DIR": str(tmp_path / "state"),
        "SEQMARK_WORKER__WEB_PORT": "0",
        "SEQMARK_PIPELINES__0__DEDUP__WINDOW": window,
        **{f"SEQMARK_PIPELINES__0__{role.upper()}": topic for role, topic in topics.items()},
    }
    if "bloom" in example and window == "1h":
        env["SEQMARK_PIPELINES__0__DEDUP__BLOOM__BUCKET"] = "10m"
    truth = tmp_path / "truth.jsonl"

    def seqmark(*words: str) -> None:
        config = str(ROOT / "examples" / example)
        done = forks.run(words[0], "-c", config, *words[1:], folder=tmp_path, env=env)
        assert done.returncode == 0, done.stderr

    options = ("--records", str(RECORDS), "--duplicates", "0.2", "--malformed", "0.01", "--partitions", "2")
    seqmark("generate", *options, "--truth", str(truth))
    seqmark("worker", "--drain")

    expected = {}
    for line in truth.read_text().splitlines():
        told = json.loads(line)
        expected[told["partition"], told["offset"]] = told
    source = read_topic(broker.bootstrap_servers, topics["source"])
    assert len(source) == len(expected) == RECORDS
    passing = [each for each in source if expected[each.partition, each.offset]["passes"]]
    sink = read_topic(broker.bootstrap_servers, topics["sink"])
    assert contents(map(as_it_came, sink)) == contents(passing)
    broken = [told for told in expected.values() if "quarantine" in told]
    assert len(read_topic(broker.bootstrap_servers, topics["quarantine"])) == len(broken) > RECORDS // 200
    receipts = [
        json.loads(each.value or b"") for each in read_topic(broker.bootstrap_servers, topics["duplicates"])
    ]
    notes = [told for told in receipts if told["verdict"] == "collision"]
    assert len(receipts) - len(notes) == RECORDS - len(passing) - len(broken) > RECORDS // 20
    # Each collision is in the sink under a new id, which its note names; nothing else is renamed.
    renamed = [
        (came.partition, came.offset, new_id(went))
        for came, went in zip(passing, sink, strict=True)
        if new_id(went)
    ]
    assert [(told["partition"], told["offset"], told["new_id"]) for told in notes] == renamed
    assert [place for place, told in expected.items() if told["kind"] == "collision"] == [
        (partition, offset) for partition, offset, _ in renamed
    ]
    assert (len(renamed) > RECORDS // 200) == (example == "fingerprint.toml")
    again = [
        told for told in expected.values() if told["passes"] and told["kind"] not in {"first", "collision"}
    ]
    # Late copies come more than an hour of the stream behind their originals, now and then.
    assert bool(again) == (window == "1h")


def new_id(record: Record) -> str:
    """Return the id under which a record of the sink passed; empty where it kept its own."""
    if not any(name == KEPT for name, _ in record.headers):
        return ""
    told: str = json.loads(record.value or b"")["insert_id"]
    assert uuid.UUID(told).version == 8
    return told


def as_it_came(record: Record) -> Record:
    """Return a record of the sink with its old id."""
    if not (new := new_id(record)):
        return record
    *headers, (name, old) = record.headers
    assert name == KEPT
    assert old is not None
    value = (record.value or b"").replace(b'"%b"' % new.encode(), b'"%b"' % old)
    return record._replace(value=value, headers=tuple(headers))
