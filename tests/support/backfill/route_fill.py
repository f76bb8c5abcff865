"""A pipeline with ``route`` that is to begin with a history, and what must stand in its topics afterwards.

Equal ids come in several partitions of the source, and what the history has of one may have come in another
than its copies do. Nothing decides how records of different source partitions fall in between each other, so no
copy is said to be the first: an id that the history has delivered does not pass, every other one passes once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import (
    PATIENCE_S,
    New,
    create_topic,
    dice,
    group_offsets,
    produce,
    read_topic,
)
from tests.support.worker import forks
from tests.support.worker.process import new_config, run_drain
from tests.support.worker.routed import RoutedRules, internal_topics, routed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

RUN = "archive-2024"
WHEN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SOURCES, SINKS, HISTORIES = 2, 3, 4
"""Partitions of the source, of the sink, and of a topic that is a history."""


@dataclass
class RouteFill:
    """One routed pipeline and its source.

    Args:
        broker: Where.
        folder: For all of it.
        rules: By which it judges; ids do not expire within a stream.
    """

    broker: Broker
    folder: Path
    rules: RoutedRules = RoutedRules()  # noqa: RUF009 - it is frozen
    records: dict[int, list[New]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        config = new_config(self.broker.bootstrap_servers, self.folder, SOURCES, slots=2)
        self.config = routed(config, self.rules, SINKS)

    def stream(self, seed: int, count: int) -> None:
        """Produce so many records per partition, each id in one now and in the other then."""
        chance = dice(seed)
        for number in range(SOURCES):
            self.records[number] = [self._record(b"%d" % chance.randrange(count), at) for at in range(count)]
            produce(self.config.bootstrap_servers, self.config.source, self.records[number], partition=number)

    @staticmethod
    def _record(name: bytes, at: int, when_ms: int = WHEN_MS + HOUR_MS) -> New:
        value = b'{"event_id": "%s", "amount": %d}' % (name, at)
        return New(b"k", value, (("id", name),), when_ms + at * 1000)

    def expired(self, count: int) -> list[New]:
        """Return records that are older than a window by the time that the stream begins."""
        return [self._record(b"old-%d" % at, 0, WHEN_MS - HOUR_MS) for at in range(count)]

    def history(self, until: Mapping[int, int]) -> list[New]:
        """Return the first records of each partition."""
        return [each for number, stop in until.items() for each in self.records[number][:stop]]

    def rows(self, until: Mapping[int, int]) -> list[dict[str, Any]]:
        """Return the same as rows of files."""
        return [
            {**json.loads(each.value or b""), "id": named(each).decode(), "at": each.timestamp}
            | {"partition": number, "offset": offset}
            for number, stop in until.items()
            for offset, each in enumerate(self.records[number][:stop])
        ]

    def as_topic(self, records: Sequence[New], seed: int = 0) -> str:
        """Return a topic with a history in any order, over partitions of its own."""
        topic, chance = f"{self.config.source}.before", dice(seed)
        create_topic(self.config.bootstrap_servers, topic, HISTORIES)
        parts: dict[int, list[New]] = {}
        for each in records:
            parts.setdefault(chance.randrange(HISTORIES), []).append(each)
        for number, some in parts.items():
            some.sort(key=lambda each: each.timestamp)
            produce(self.config.bootstrap_servers, topic, some, partition=number)
        return topic

    def arguments(self, history: str, cuts: Mapping[int, int], kind: str = "topic") -> list[str]:
        """Return the command line that loads a history."""
        where = [option for number, cut in cuts.items() for option in ("--cut", f"{number}:{cut}")]
        return ["--history", history, "--format", kind, "--run", RUN, *where]

    def run(self, *arguments: str) -> Result:
        """Run the command in this process."""
        typed = ["backfill", "-c", str(self.config.write()), "--pipeline", "p", *arguments]
        return CliRunner().invoke(main, typed)

    def loaded(self, *arguments: str) -> list[dict[str, Any]]:
        """Run it to its end; return its lines of JSON."""
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def killed(self, step: str, *arguments: str) -> int:
        """Run it in a process that ends by SIGKILL after a step; return the exit code."""
        typed = ["backfill", "-c", str(self.config.write()), "--pipeline", "p", *arguments]
        return forks.run(
            *typed, folder=self.folder, env={"SEQMARK_FAULT_STEP": step}, timeout_s=PATIENCE_S
        ).returncode

    def drain(self) -> None:
        """Let a worker take in all there is."""
        ended = run_drain(self.config)
        assert ended.code == 0, ended.stderr

    def places(self, topic: str) -> dict[bytes, int]:
        """Return the partition of each id in the sink, which stands there once."""
        records = read_topic(self.config.bootstrap_servers, topic)
        found = {named(each): each.partition for each in records}
        assert len(found) == len(records), "an id has passed twice"
        return found

    def receipts(self) -> list[dict[str, Any]]:
        """Return all."""
        topic = read_topic(self.config.bootstrap_servers, self.config.duplicates)
        return [json.loads(each.value or b"") | {"lies in": each.partition} for each in topic]

    def assert_goes_on(self, history: Sequence[New], cuts: Mapping[int, int]) -> int:
        """Check what became of the stream from the cuts on; return how many receipts name the backfill."""
        delivered = {named(each) for each in history} - {named(each) for each in self.expired(1000)}
        source = read_topic(self.config.bootstrap_servers, self.config.source)
        stream = {(each.partition, each.offset): named(each) for each in source}
        stream = {place: name for place, name in stream.items() if place[1] >= cuts[place[0]]}
        passed = self.places(self.config.sink)
        assert passed.keys() == set(stream.values()) - delivered
        named_backfill = 0
        told = self.receipts()
        assert len({(each["partition"], each["offset"]) for each in told}) == len(told)
        assert len(told) == len(stream) - len(passed)
        for each in told:
            name = stream[each["partition"], each["offset"]]
            assert each["id"] == [name.decode()] * len(self.rules.id)
            if name in delivered:
                assert each["owner"] == {"backfill": RUN}
                named_backfill += 1
                continue
            owner = each["owner"]
            assert (owner["topic"], stream[owner["partition"], owner["offset"]]) == (self.config.source, name)
            assert each["lies in"] == passed[name]
        self._assert_positions()
        return named_backfill

    def _assert_positions(self) -> None:
        """The group has taken both hops in."""
        group = group_offsets(self.config.bootstrap_servers, self.config.application_id)
        assert {topic for topic, _ in group} == {self.config.source, internal_topics(self.config)[0]}
        for number, some in self.records.items():
            assert group[self.config.source, number] >= len(some)


def named(record: Any) -> bytes:
    """Return the id of a record."""
    return dict(record.headers)["id"] or b""
