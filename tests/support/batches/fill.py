"""A pipeline that is to begin with a history, the history's files, and what a worker over all of it would do.

Ids have two parts, a member of the value and a header: ``{"event_id": "e1"}`` with the header ``device``.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from aiokafka.partitioner import murmur2
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import New, Record, read_topic
from tests.support.worker.process import new_config, produce, run_drain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import WorkerConfig

RUN = "archive-2024"
WHEN_MS = 1_700_000_000_000
RULES = IdRules(
    id=({"from": "value", "pointer": "/event_id"}, {"from": "header", "name": "device"}), window="1h"
)


@dataclass
class FillScene:
    """One pipeline and its source.

    Args:
        broker: Where.
        folder: For all of it.
        partitions: Of the source.
        rules: By which it judges.
    """

    broker: Broker
    folder: Path
    partitions: int = 2
    rules: IdRules = RULES
    records: dict[int, list[New]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = new_config(self.broker.bootstrap_servers, self.folder, self.partitions, slots=2)
        config = config.with_duplicates()
        (pipeline,) = config.pipelines
        self.config: WorkerConfig = replace(config, pipelines=(self.rules.applied(pipeline),))

    def stream(self, seed: int, count: int, *, numbers: bool = True, late: bool = False) -> None:
        """Produce records of two hours, of which many come again, some when their hour is over.

        Keys are such as Kafka's own producers send to the partition.

        Args:
            seed: Another one gives others.
            count: Of each partition.
            numbers: Whether some ids are numbers.
            late: Whether some times lie a quarter of an hour behind.
        """
        for number in range(self.partitions):
            chance = random.Random(f"{seed} {number}")
            keys = (key for at in itertools.count() if self._partition(key := b"k%d" % at) == number)
            self.records[number] = [
                self._record(chance, at, count, next(keys), numbers=numbers) for at in range(count)
            ]
            if late:
                self.records[number] = [
                    each._replace(timestamp=each.timestamp - chance.choice((0, 0, 900_000)))
                    for each in self.records[number]
                ]
            self.produce(self.config.source, number, self.records[number])

    def produce(self, topic: str, number: int, records: Sequence[New]) -> None:
        """Produce into a partition."""
        produce(self.config.bootstrap_servers, topic, records, partition=number)

    def _partition(self, key: bytes) -> int:
        return int((murmur2(key) & 0x7FFFFFFF) % self.partitions)

    def _record(self, chance: random.Random, at: int, count: int, key: bytes, *, numbers: bool) -> New:
        forms = ('"e%d"', '"\\u00e9%d"', *(["%d"] if numbers else []))
        event = chance.choice(forms) % (chance.randrange(max(1, at // 2), at + 2) // 6)
        value = f'{{"amount": {chance.randrange(3)}, "event_id": {event}}}'
        time_ms = WHEN_MS + at * 7_200_000 // count
        return New(key, value.encode(), (("device", b"d%d" % chance.randrange(2)),), time_ms)

    def history(self, until: Mapping[int, int]) -> list[dict[str, Any]]:
        """Return the first records of each partition as rows."""
        return [
            {
                "event_id": str(json.loads(each.value or b"")["event_id"]),
                "number": isinstance(json.loads(each.value or b"")["event_id"], int),
                "amount": json.loads(each.value or b"")["amount"],
                "device": (each.headers[0][1] or b"").decode(),
                "key": (each.key or b"").decode(),
                "at": datetime.fromtimestamp(each.timestamp / 1000, UTC),
                "partition": number,
                "offset": offset,
            }
            for number, stop in until.items()
            for offset, each in enumerate(self.records[number][:stop])
        ]

    def write(self, kind: str, rows: list[dict[str, Any]], files: int = 2) -> str:
        """Write a history in a shuffled order; return its folder."""
        chance, folder = random.Random(len(rows)), self.folder / f"history-{kind}"
        folder.mkdir(exist_ok=True)
        mixed = chance.sample(rows, len(rows))
        for number in range(files):
            some = mixed[number::files]
            if kind == "json":
                text = "".join(_line(row, chance) + "\n" for row in some)
                (folder / f"{number}.jsonl").write_text(text)
            else:
                pq.write_table(_table(some), folder / f"{number}.parquet", row_group_size=17)
        return str(folder)

    def run(self, *arguments: str) -> Result:
        """Run the command in this process, where the tests' Spark is."""
        config = str(self.config.write())
        return CliRunner().invoke(main, ["backfill", "-c", config, "--pipeline", "p", *arguments])

    def loaded(self, *arguments: str) -> list[dict[str, Any]]:
        """Run it to its end; return its lines of JSON."""
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def drain(self) -> None:
        """Let a worker take in all there is."""
        ended = run_drain(self.config)
        assert ended.code == 0, ended.stderr

    def read(self, topic: str, partition: int) -> list[Record]:
        """Return the records of a partition."""
        return [
            each for each in read_topic(self.config.bootstrap_servers, topic) if each.partition == partition
        ]

    def assert_goes_on(self, until: Mapping[int, int], cuts: Mapping[int, int]) -> None:
        """Check that a worker did what one over the history and the stream from the cuts on does.

        Args:
            until: By partition, how many of its records the history has.
            cuts: Where the stream goes on.
        """
        self.assert_knows({number: self.records[number][:stop] for number, stop in until.items()}, cuts)

    def assert_knows(self, history: Mapping[int, Sequence[New]], cuts: Mapping[int, int]) -> None:
        """Check as `assert_goes_on`, of any history by partition."""
        found = 0
        for number in range(self.partitions):
            model = self.rules.model()
            for at, each in enumerate(history[number]):
                # Before all offsets there are: these stand in no source.
                offset = at - len(history[number])
                model.judge(Record(0, offset, each.key, each.value, each.headers, each.timestamp, True))
            source = [each for each in self.read(self.config.source, number) if each.offset >= cuts[number]]
            said = model.judge_all(source)
            passed = [
                each.content[1:] for each, what in zip(source, said, strict=True) if what.verdict != "duplicate"
            ]
            assert [each.content[1:] for each in self.read(self.config.sink, number)] == passed
            receipts = {
                each["offset"]: each
                for each in (json.loads(one.value or b"") for one in self.read(self.config.duplicates, number))
                if each["verdict"] == "duplicate"
            }
            dropped = {
                each.offset: what
                for each, what in zip(source, said, strict=True)
                if what.verdict == "duplicate"
            }
            assert receipts.keys() == dropped.keys()
            for offset, what in dropped.items():
                owner = {"topic": self.config.source, "partition": number, "offset": what.owner}
                assert receipts[offset]["owner"] == ({"backfill": RUN} if what.owner < 0 else owner)
                assert receipts[offset]["expires_at"] == what.expires_ms
                found += what.owner < 0
        assert found, "receipts name the backfill"


def _line(row: dict[str, Any], chance: random.Random) -> str:
    """Return a row as it may be written: members in any order, escapes or none, times of several forms."""
    event = int(row["event_id"]) if row["number"] else row["event_id"]
    time_ms = int(row["at"].timestamp() * 1000)
    at = chance.choice((time_ms, row["at"].isoformat(), row["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")))
    members = [("event_id", event), ("device", row["device"]), ("at", at), ("partition", row["partition"])]
    members += [("offset", row["offset"]), ("key", row["key"]), ("amount", row["amount"])]
    chance.shuffle(members)
    text = json.dumps(dict(members), ensure_ascii=chance.random() < 0.5)
    return text.replace('"d', '"\\u0064', 1) if chance.random() < 0.2 else text


def _table(rows: list[dict[str, Any]]) -> Any:
    columns = {
        "event_id": pa.array([each["event_id"] for each in rows], pa.string()),
        "device": pa.array([each["device"].encode() for each in rows], pa.binary()),
        "amount": pa.array([each["amount"] for each in rows], pa.int16()),
        "key": pa.array([each["key"] for each in rows], pa.string()),
        "at": pa.array([each["at"] for each in rows], pa.timestamp("ms", "UTC")),
        "partition": pa.array([each["partition"] for each in rows], pa.int32()),
        "offset": pa.array([each["offset"] for each in rows], pa.int64()),
    }
    return pa.table(columns)
