"""Does an example of insert ids do what it says, on a stream that `seqmark generate` makes for it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import contents, read_topic, unique
from tests.support.worker import forks

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
RECORDS = 20_000


@pytest.mark.parametrize("window", ["7d", "1h"])
@pytest.mark.parametrize("example", ["insert-id.toml", "insert-id-bloom.toml", "content.toml"])
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
    assert contents(read_topic(broker.bootstrap_servers, topics["sink"])) == contents(passing)
    broken = [told for told in expected.values() if "quarantine" in told]
    assert len(read_topic(broker.bootstrap_servers, topics["quarantine"])) == len(broken) > RECORDS // 200
    dropped = len(read_topic(broker.bootstrap_servers, topics["duplicates"]))
    assert dropped == RECORDS - len(passing) - len(broken) > RECORDS // 20
    again = [told for told in expected.values() if told["passes"] and told["kind"] != "first"]
    # Late copies come more than an hour of the stream behind their originals, now and then.
    assert bool(again) == (window == "1h")
