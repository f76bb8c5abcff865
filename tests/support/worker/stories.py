"""Lets one worker run answer many questions: each test sends a few records to a partition of its own.

State is per source partition, so stories in different partitions do not touch each other; all of a module's are
judged by one worker, and each test looks at what became of its own records::

    STORIES = Stories({"header": Rules()})
    sent = STORIES.sent

    @sent("header", record(5), record(5))
    def test_an_equal_sequence_is_a_duplicate(story: Story) -> None:
        assert story.outcomes == ["pass", "duplicate"]
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.judges.rules import EPOCH_HEADER, Rules
from tests.support.kafka.topics import Header, New, Record, create_topic, int64, produce, read_topic, unique
from tests.support.kafka.versions import is_older
from tests.support.worker.process import PipelineConfig, WorkerConfig, run_drain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.judges.id_rules import IdRules

TIME_MS = 1_700_000_000_000
SINK_LIMIT_BYTES = 10_000
"""``max.message.bytes`` of every sink: a larger record cannot pass."""
OURS = ("seqmark.error", "seqmark.detail", "seqmark.source")
Test = TypeVar("Test", bound="Callable[..., None]")


def record(
    sequence: int | bytes | None = None,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    producer: bytes | None = None,
    epoch: int | None = None,
    headers: tuple[Header, ...] = (),
) -> New:
    """Return a record; what is None has no header. A sequence given as bytes is written as it is."""
    made: list[Header] = []
    if producer is not None:
        made.append(("producer", producer))
    if epoch is not None:
        size = int(EPOCH_HEADER["format"].removeprefix("int")) // 8
        made.append(("epoch", epoch.to_bytes(size, "big", signed=True)))
    if sequence is not None:
        made.append(("seq", sequence if isinstance(sequence, bytes) else int64(sequence)))
    return New(key, value, (*made, *headers), TIME_MS)


@dataclass(frozen=True)
class Story:
    """What became of one test's records.

    Attributes:
        rules: What the records were judged by.
        pipeline: Its config.
        partition: Of all its topics.
        source: What came, in order; each has a header ``n`` of its own in front.
        sink: What passed.
        receipts: Receipts, as records of the duplicates topic.
        quarantine: What could not be judged.
    """

    rules: Rules | IdRules
    pipeline: PipelineConfig
    partition: int
    source: list[Record]
    sink: list[Record]
    receipts: list[Record]
    quarantine: list[Record]

    @property
    def told(self) -> list[dict[str, Any]]:
        """The receipts' values."""
        return [json.loads(each.value or b"") for each in self.receipts]

    @property
    def notes(self) -> list[dict[str, Any]]:
        """The values of those that are of collisions."""
        return [each for each in self.told if each["verdict"] == "collision"]

    @property
    def codes(self) -> dict[int, str]:
        """The codes of what is in quarantine, by offset."""
        found = {}
        for each in self.quarantine:
            ours = dict(each.headers)
            offset = int((ours["seqmark.source"] or b"").rpartition(b":")[2])
            found[offset] = (ours["seqmark.error"] or b"").decode()
        assert len(found) == len(self.quarantine)
        return found

    @property
    def outcomes(self) -> list[str]:
        """What became of each record: ``pass``, ``duplicate``, ``late``, ``collision`` or a code; each has one.

        A collision has a note, and is in the sink, maybe changed, in quarantine or nowhere, as the note says.
        """
        found: dict[int, list[str]] = {each.offset: [] for each in self.source}
        by_content = {each.content: each.offset for each in self.source}
        by_number = {each.headers[0]: each.offset for each in self.source}
        actions = {note["offset"]: note["action"] for note in self.notes}
        assert len(actions) == len(self.notes)
        for each in self.sink:
            offset = by_number[each.headers[0]]
            found[offset if offset in actions else by_content[each.content]].append("pass")
        for receipt in self.told:
            if receipt["offset"] not in actions:
                found[receipt["offset"]].append(receipt["verdict"])
        for offset, code in self.codes.items():
            found[offset].append(code)
        for offset, action in actions.items():
            assert found[offset] == {"drop": [], "quarantine": ["id_collision"]}.get(action, ["pass"])
            found[offset] = ["collision"]
        assert all(len(each) == 1 for each in found.values()), found
        return [each[0] for each in found.values()]

    @property
    def expected(self) -> list[str]:
        """What the naive model says became of each record, those that are too large left to the test."""
        model = self.rules.model()
        return [
            "too_large" if len(each.value or b"") > SINK_LIMIT_BYTES else model.judge(each).verdict
            for each in self.source
        ]


class Told:
    """All stories of one run."""

    def __init__(
        self,
        config: WorkerConfig,
        places: Mapping[str, tuple[str, int]],
        definitions: Mapping[str, Rules] | Mapping[str, IdRules],
    ) -> None:
        self.config = config
        self._definitions = definitions
        self._places = places
        self._pipelines = {pipeline.name: pipeline for pipeline in config.pipelines}
        bootstrap = config.bootstrap_servers
        topics = [
            topic
            for pipeline in config.pipelines
            for topic in (pipeline.source, pipeline.sink, pipeline.duplicates, pipeline.quarantine)
            if topic is not None
        ]
        self._rows = {topic: read_topic(bootstrap, topic) for topic in topics}

    def of(self, test: str) -> Story:
        """Return a test's own story."""
        name, partition = self._places[test]
        pipeline = self._pipelines[name]

        def rows(topic: str | None) -> list[Record]:
            return [each for each in self._rows[topic or ""] if each.partition == partition]

        return Story(
            self._definitions[name],
            pipeline,
            partition,
            rows(pipeline.source),
            rows(pipeline.sink),
            rows(pipeline.duplicates),
            rows(pipeline.quarantine),
        )

    def all(self) -> list[Story]:
        """Return all stories."""
        return [self.of(test) for test in self._places]


class Stories:
    """Collects what a module's tests send.

    Args:
        definitions: What the records of each pipeline are judged by.
        apart_ms: How much later than it says a record's timestamp is, for each record before it.
    """

    def __init__(self, definitions: Mapping[str, Rules] | Mapping[str, IdRules], *, apart_ms: int = 1) -> None:
        self._definitions = definitions
        self._apart_ms = apart_ms
        self._sent: dict[str, list[tuple[str, tuple[New, ...]]]] = {name: [] for name in definitions}

    def sent(self, pipeline: str, *records: New) -> Callable[[Test], Test]:
        """Send ``records`` through a pipeline before the test that this decorates."""

        def note(test: Test) -> Test:
            self._sent[pipeline].append((test.__name__, records))
            return test

        return note

    def run(self, bootstrap: str, folder: Path, **other: Any) -> Told:
        """Produce everything, run one worker until it is drained, and read all topics.

        Args:
            bootstrap: Of the broker.
            folder: The worker's.
            other: What is different from the definitions, in all of them.
        """
        definitions: Any = {name: replace(rules, **other) for name, rules in self._definitions.items()}
        name = unique("stories")
        pipelines = []
        places = {}
        for pipeline, rules in definitions.items():
            stories = self._sent[pipeline]
            topic = f"{name}.{pipeline}"
            made = PipelineConfig(pipeline, f"{topic}.raw", f"{topic}.clean", f"{topic}.bad", f"{topic}.again")
            pipelines.append(rules.applied(made))
            limit = "difference" if is_older("3.6") else "after"
            limits = {f"message.timestamp.{limit}.max.ms": str(2**63 - 1)}
            create_topic(bootstrap, made.source, len(stories), limits)
            limits["max.message.bytes"] = str(SINK_LIMIT_BYTES)
            create_topic(bootstrap, made.sink, len(stories), limits)
            for partition, (test, records) in enumerate(stories):
                places[test] = (pipeline, partition)
                numbered = [
                    each._replace(
                        headers=(("n", b"%d" % n), *each.headers),
                        timestamp=each.timestamp + n * self._apart_ms,
                    )
                    for n, each in enumerate(records)
                ]
                produce(bootstrap, made.source, numbered, partition=partition, codec="lz4")
        config = WorkerConfig(folder, bootstrap, name, tuple(pipelines), {"slots": 1})
        ended = run_drain(config)
        assert ended.code == 0, ended.stderr
        return Told(config, places, definitions)
