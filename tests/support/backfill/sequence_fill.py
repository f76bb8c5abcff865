"""Pipelines of mode watermark that are to begin with a topic, and what a worker over all of it would do.

A record of several producers: ``{"seq": 7, "epoch": "-1"}``; headers have both and the producer, too.
"""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

from aiokafka.partitioner import murmur2
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.judges.rules import EPOCH_HEADER, Model, Rules
from tests.support.kafka.topics import New, Record, create_topic, int64, read_topic, unique
from tests.support.worker.process import PipelineConfig, WorkerConfig, produce, run_drain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

WHEN_MS = 1_700_000_000_000
VALUE = {"from": "value", "pointer": "/seq"}
TEXT_EPOCH = {"from": "value", "pointer": "/epoch", "format": "text"}
TEXT_HEADER = {"from": "header", "name": "digits", "format": "text"}


HISTORIES = {
    "plain": Rules(),
    "window": Rules(sequence=VALUE, reorder_window=9),
    "keys": Rules("key", epoch=EPOCH_HEADER, reorder_window=70),
    "producers": Rules("header:producer", TEXT_HEADER, TEXT_EPOCH),
}
"""Pipelines, by which each judges."""


class SequenceScene:
    """Pipelines with two partitions each.

    Args:
        broker: Where.
        folder: For all of it.
        count: Records of each partition.
        names: Of `HISTORIES`.
    """

    def __init__(self, broker: Broker, folder: Path, count: int, *names: str) -> None:
        self.folder, self.servers, application = folder, broker.bootstrap_servers, unique("t")
        pipelines = []
        self.records: dict[str, list[list[New]]] = {}
        for name in names or HISTORIES:
            topic = f"{application}.{name}"
            create_topic(self.servers, f"{topic}.raw", 2)
            made = PipelineConfig(name, f"{topic}.raw", f"{topic}.clean", None, f"{topic}.dropped")
            pipelines.append(HISTORIES[name].applied(made))
            self.records[name] = [stream(f"{name} {number}", number, count) for number in range(2)]
            for number, some in enumerate(self.records[name]):
                produce(self.servers, f"{topic}.raw", some, partition=number)
        self.config = WorkerConfig(folder, self.servers, application, tuple(pipelines), {"slots": 2})

    def pipeline(self, name: str) -> PipelineConfig:
        """Return a pipeline."""
        return next(each for each in self.config.pipelines if each.name == name)

    def history(self, name: str, until: Sequence[int]) -> str:
        """Write what a pipeline has delivered of each partition to a topic; return its name."""
        topic = f"{self.pipeline(name).source}.before"
        create_topic(self.servers, topic, 2)
        for number, stop in enumerate(until):
            produce(self.servers, topic, self.records[name][number][:stop], partition=number)
        return topic

    def run(self, name: str, *arguments: str, kind: str = "topic") -> Result:
        """Run the command for a pipeline in this process."""
        options = ["-c", str(self.config.write()), "--pipeline", name, "--format", kind]
        return CliRunner().invoke(main, ["backfill", *options, *arguments])

    def loaded(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        """Run it to its end; return its lines of JSON."""
        done = self.run(name, *arguments, "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def drain(self) -> None:
        """Let a worker take in all there is."""
        ended = run_drain(self.config)
        assert ended.code == 0, ended.stderr

    def assert_goes_on(self, name: str, until: Sequence[int], cuts: Sequence[int]) -> list[int]:
        """Check that a worker did what one over the history and the stream from the cuts on does.

        Returns:
            By partition, how many scopes the history has.
        """
        pipeline, rules, known = self.pipeline(name), HISTORIES[name], []
        topics = pipeline.source, pipeline.sink, pipeline.duplicates
        source, sink, receipts = (read_topic(self.servers, topic or "") for topic in topics)
        for number in range(2):
            model = Model(rules)
            model.judge_all(
                [Record(number, 0, *each, True) for each in self.records[name][number][: until[number]]]
            )
            known.append(len(model.scopes))
            rest = [each for each in _of(source, number) if each.offset >= cuts[number]]
            said = list(zip(rest, model.judge_all(rest), strict=True))
            passed = [each.content[1:] for each, what in said if what.verdict == "pass"]
            assert [each.content[1:] for each in _of(sink, number)] == passed
            told = [json.loads(each.value or b"") for each in _of(receipts, number)]
            names = "offset", "verdict", "sequence", "watermark"
            assert [tuple(each[name] for name in names) for each in told] == [
                (each.offset, what.verdict, what.sequence, what.watermark)
                for each, what in said
                if what.verdict != "pass"
            ]
        return known


def stream(seed: str, number: int, count: int) -> list[New]:
    """Return records of five producers, of which some come again, some late, some with a higher epoch."""
    chance, made = random.Random(seed), []
    fitting = (key for at in itertools.count() if (murmur2(key := b"k%d" % at) & 1) == number)
    keys = list(itertools.islice(fitting, 5))
    for at in range(count):
        key = chance.choice(keys)
        sequence = at - chance.choice((0, 0, 0, 1, 4, 30))
        epoch = at // 40 - (chance.random() < 0.1)
        headers = (
            ("producer", b"p" + key),
            ("epoch", epoch.to_bytes(4, "big", signed=True)),
            ("seq", int64(sequence)),
            ("digits", b"%d" % sequence),
        )
        value = b'{"seq": %d, "epoch": "%d"}' % (sequence, epoch)
        made.append(New(key, value, headers, WHEN_MS + at * 1000))
    return made


def _of(records: Sequence[Record], number: int) -> list[Record]:
    return [each for each in records if each.partition == number]
