"""Does the demo pass on a broker that is kept, twice, and fail where the worker's output is wrong?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner

from processor.cli import main
from processor.kafka.consume import read_partition

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from processor.kafka.consume import Seen

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Broker(Protocol):
    """What the fixture of the same name gives."""

    @property
    def bootstrap_servers(self) -> str: ...


def demo(broker: Broker, folder: Path) -> Result:
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--directory", str(folder))
    return CliRunner().invoke(main, ["demo", "--records", "20000", "--json", *where])


def test_everything_agrees_and_again_on_the_same_broker(broker: Broker, tmp_path: Path) -> None:
    for _ in range(2):
        ended = demo(broker, tmp_path)
        assert ended.exit_code == 0, ended.stderr
        told = json.loads(ended.stdout)
        assert told["ok"]
        assert told["counts"]["in"] == {"found": 20_000, "truth": 20_000}
        assert told["counts"]["quarantined"]["found"] >= 1
        assert sum(hour["spark"] for hour in told["hours"].values()) == (told["counts"]["passed"]["found"])
        assert len(told["hours"]) == 6
        assert told["certificate"] is True
        assert "certificate: ok, 20,000 records of 4 partitions" in ended.stderr
        assert (tmp_path / "clicks.svg").read_text().startswith("<?xml")
        assert "everything agrees with the truth" in ended.stderr


def test_one_record_lost_is_exit_1_and_named(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lossy(options: Any, topic: str, partition: int) -> list[Seen]:
        records = await read_partition(options, topic, partition)
        return records[:100] + records[101:] if topic.endswith(".clean") else records

    monkeypatch.setattr("processor.demo.run.read_partition", lossy)
    ended = demo(broker, tmp_path)
    assert ended.exit_code == 1
    told = json.loads(ended.stdout)
    assert not told["ok"]
    assert len(told["differences"]) == 4
    assert all("(first) is lost" in difference for difference in told["differences"])
