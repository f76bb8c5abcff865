"""Drives several pipelines of one application and compares them: feeds, ends of topics, and the truth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.judges.rules import Model, Rules
from tests.support.kafka.topics import Record, bounds, create_topic, group_offsets, read_topic, unique, until
from tests.support.worker.feed import Feed
from tests.support.worker.process import PipelineConfig, WorkerConfig, run_drain

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PARTITIONS = 2
SCOPES = 50
"""In each partition of a pipeline that has scopes."""
RECORDS_PER_S = 500
"""A pipeline: several are fed at once, and everything is judged again by the slow model."""
WAIT_S = 120.0
DROPPED = {"duplicate", "late"}
Row = tuple[Any, ...]


class Outcome(NamedTuple):
    """What the topics of one pipeline hold, or should: rows by topic."""

    sink: list[Row]
    receipts: list[Row]
    quarantine: list[Row]


class Mixed:
    """Pipelines with topics of their own and a feed each; workers take some of them.

    Args:
        bootstrap: Of the broker.
        folder: For configs, logs and state.
        rules: By pipeline.
        dice: Decides what is sent.
    """

    def __init__(self, bootstrap: str, folder: Path, rules: Mapping[str, Rules], dice: random.Random) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._rules = rules
        self._application = unique("mixed")
        self._pipelines: dict[str, PipelineConfig] = {}
        self.feeds: dict[str, Feed] = {}
        for name, each in rules.items():
            topic = f"{self._application}.{name}"
            self._pipelines[name] = PipelineConfig(
                name,
                f"{topic}.raw",
                f"{topic}.clean",
                f"{topic}.quarantine",
                f"{topic}.duplicates",
                each.sequence,
                each.dedup,
            )
            create_topic(bootstrap, f"{topic}.raw", PARTITIONS)
            scopes = 1 if each.scope == "partition" else SCOPES
            self.feeds[name] = Feed(
                bootstrap, f"{topic}.raw", PARTITIONS, dice, each, scopes, rate=RECORDS_PER_S
            )

    def config(self, *names: str) -> WorkerConfig:
        """Return a config with these pipelines, in this order."""
        pipelines = tuple(self._pipelines[name] for name in names)
        return WorkerConfig(self._folder, self._bootstrap, self._application, pipelines, {"slots": PARTITIONS})

    def send(self, count: int, *names: str) -> None:
        """Send at least ``count`` records into each source."""
        for name in names:
            self.feeds[name].send(count)

    def drain(self, *names: str, guarantee: str = "exactly_once") -> None:
        """Run a worker with these pipelines until it is drained."""
        ended = run_drain(self.config(*names).but(guarantee=guarantee))
        assert ended.code == 0, ended.stderr

    def _topics(self, name: str) -> tuple[str, ...]:
        pipeline = self._pipelines[name]
        changelog = f"{self._application}-{name}-changelog"
        return pipeline.sink, pipeline.quarantine or "", pipeline.duplicates or "", changelog

    def ends(self, *names: str) -> dict[tuple[str, int], tuple[int, ...]]:
        """Return where everything ends that is written for these pipelines, and the group's offsets."""
        group = group_offsets(self._bootstrap, self._application)
        found = {}
        for name in names:
            source = self._pipelines[name].source
            for number in range(PARTITIONS):
                ends = [bounds(self._bootstrap, topic, number)[1] for topic in self._topics(name)]
                found[name, number] = (*ends, group.get((source, number), -1))
        return found

    def wait_caught_up(self, *names: str) -> None:
        """Wait until workers have committed up to the end of these sources."""

        def caught_up() -> bool:
            group = group_offsets(self._bootstrap, self._application)
            return all(
                group.get((self._pipelines[name].source, number))
                == bounds(self._bootstrap, self._pipelines[name].source, number)[1]
                for name in names
                for number in range(PARTITIONS)
            )

        until(caught_up, f"{names} are caught up", WAIT_S)

    def wait_progress(self, *names: str) -> None:
        """Wait until every partition of these pipelines has committed something more."""

        def offsets() -> list[int]:
            group = group_offsets(self._bootstrap, self._application)
            sources = [self._pipelines[name].source for name in names]
            return [group.get((source, number), 0) for source in sources for number in range(PARTITIONS)]

        before = offsets()
        until(
            lambda: all(now > then for now, then in zip(offsets(), before, strict=True)),
            f"all partitions of {names} go on",
            WAIT_S,
        )

    # ------------------------------------------------------------------ what the topics hold

    def assert_right(self, *names: str) -> None:
        """Each record is once in one topic, as the naive model says, in order, receipts by what they tell."""
        for name in names:
            truth = self._truth(name)
            assert truth.sink, f"{name}: nothing passed: this has shown nothing"
            assert truth.receipts, f"{name}: nothing was dropped"
            assert truth.quarantine, f"{name}: nothing was quarantined"
            assert self._found(name) == truth, name

    def assert_nothing_lost(self, *names: str) -> None:
        """The first occurrences in each topic are those that the naive model says, in order."""
        for name in names:
            truth, found = self._truth(name), self._found(name)
            assert [_firsts(rows) for rows in found] == [_firsts(rows) for rows in truth], name

    def _truth(self, name: str) -> Outcome:
        source = self._pipelines[name].source
        models = [Model(self._rules[name]) for _ in range(PARTITIONS)]
        outcome = Outcome([], [], [])
        for record in read_topic(self._bootstrap, source):
            said = models[record.partition].judge(record)
            if said.verdict == "pass":
                outcome.sink.append(record.content)
            elif said.verdict in DROPPED:
                epoch = () if said.epoch is None else (said.epoch,)
                row = record.offset, record.key, said.verdict, said.sequence, said.watermark
                outcome.receipts.append((record.partition, *row, *epoch))
            else:
                where = f"{source}:{record.partition}:{record.offset}".encode()
                outcome.quarantine.append((*record.content, said.verdict.encode(), where))
        return outcome

    def _found(self, name: str) -> Outcome:
        sink, quarantine, duplicates, _ = self._topics(name)
        return Outcome(
            [record.content for record in read_topic(self._bootstrap, sink)],
            [_told(record) for record in read_topic(self._bootstrap, duplicates)],
            [_kept(record) for record in read_topic(self._bootstrap, quarantine)],
        )


def _told(receipt: Record) -> Row:
    told = json.loads(receipt.value or b"")
    assert told["partition"] == receipt.partition
    epoch = (told["epoch"],) if "epoch" in told else ()
    row = told["offset"], receipt.key, told["verdict"], told["sequence"], told["watermark"]
    return (receipt.partition, *row, *epoch)


def _kept(record: Record) -> Row:
    (_, error), _, (_, source) = record.headers[-3:]
    return (*record._replace(headers=record.headers[:-3]).content, error, source)


def _firsts(rows: Iterable[Row]) -> list[Row]:
    return list(dict.fromkeys(rows))
