"""Answers what became of records: opened once, asked as often as one likes.

Nothing is joined, committed or written. Records are fetched read_committed, a few at a time; a running worker
does not notice. What was read is kept, so that the next answer is cheaper than the first.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem, RebuildError, StopError
from processor.inspection.explain.ask import question_of
from processor.inspection.explain.covered import LastCertificate
from processor.inspection.explain.lookup.facts import FRESH_S, FactFinder
from processor.inspection.explain.lookup.log import LogReader
from processor.inspection.explain.records import RecordFinder
from processor.inspection.explain.sentence import sentence
from processor.inspection.explain.story import Story
from processor.inspection.explain.trace import Tracer
from processor.inspection.explain.verdict import VerdictFinder
from processor.kafka.client import open_client
from processor.kafka.topics.plan import Purpose, marked, names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from processor.kafka.client import Client
    from processor.wire.receipt_values import RecordRef
    from schemas.config import Settings


class Explainer:
    """Answers questions over one client; one at a time, others wait.

    Args:
        settings: The config.
        client: Connections to the brokers, with the config's topics known; waiting fetches may block them.
    """

    def __init__(self, settings: Settings, client: Client) -> None:
        self._settings = settings
        self._client = client
        self._log = LogReader(client)
        facts = FactFinder(client, self._log, settings)
        self._records = RecordFinder(client, self._log, facts, settings)
        self._verdicts = VerdictFinder(self._records)
        self._tracer = Tracer(self._verdicts)
        self._turn = asyncio.Lock()
        self._certificates: dict[str, tuple[LastCertificate, float]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[Explainer]:
        """Connect, and disconnect at the end.

        Raises:
            StopError: No broker answers.
            ConfigError: Files of certificates or keys are wrong.
        """
        topics = [*names(settings), *marked(settings)]
        async with open_client(settings.kafka, "seqmark-explain", topics) as client:
            explainer = cls(settings, client)
            try:
                yield explainer
            finally:
                explainer.close()

    def close(self) -> None:
        """Leave what is on its way; the client stays open."""
        self._log.close()

    def forget(self) -> None:
        """Forget what was read: after a topic was made anew, or a pipeline was reset."""
        self._records.forget()

    async def explain(self, ref: RecordRef, pipeline: str | None = None) -> Story:
        """Return what became of the record at a position of a source, sink, duplicates or quarantine topic.

        Args:
            ref: The position.
            pipeline: Whose topic it is, where that is not clear.

        Raises:
            ConfigError: It is no topic, or no partition, of this config.
            StopError: Something cannot be read.
        """
        question = question_of(self._settings, ref, pipeline)
        async with self._turn:
            try:
                self._require(ref)
                if question.role is Purpose.SOURCE:
                    story = Story(ref, question.role.value, question.pipeline.name)
                    story = await self._verdicts.tell(story, question.pipeline, ref)
                else:
                    story = await self._tracer.tell(question)
                if story.source is not None:
                    story.certificate = await self._covered(story.pipeline, story.source)
            except RebuildError as error:
                raise StopError(f"{ref} cannot be explained: {error}. Is the cluster well?") from error
            story.sentence, story.bare_sentence = sentence(story), sentence(story, contents=False)
            return story

    async def explain_many(self, refs: Iterable[RecordRef], pipeline: str | None = None) -> list[Story]:
        """Return the answers to many questions, in their order; neighbours are answered one after the other.

        Raises as `explain`.
        """
        asked = list(refs)
        told: dict[RecordRef, Story] = {}
        for ref in sorted(set(asked)):
            told[ref] = await self.explain(ref, pipeline)
        return [told[ref] for ref in asked]

    async def _covered(self, name: str, source: RecordRef) -> str:
        """Return whether the last certificate covers a record; what is noted of it is read once a second."""
        (pipeline,) = (each for each in self._settings.pipelines if each.name == name)
        known, now_s = self._certificates.get(name), time.monotonic()
        if known is None or now_s - known[1] > FRESH_S:
            known = LastCertificate(self._settings, pipeline, self._client.ids), now_s
            self._certificates[name] = known
        facts = await self._records.facts.of(pipeline, source.partition)
        return known[0].of(source, None if facts.other_source else facts.last)

    def _require(self, ref: RecordRef) -> None:
        there = self._client.partitions(ref.topic)
        if not there:
            raise StopError(
                f"the topic {ref.topic} does not exist: `seqmark topics` creates what a pipeline writes, and "
                "so does a worker when it starts"
            )
        if ref.partition not in there:
            right = f"{ref.topic} has partitions 0 to {len(there) - 1}, and no {ref.partition}"
            raise ConfigError([Problem("TOPIC:PARTITION:OFFSET", right)])


async def explain_position(settings: Settings, ref: RecordRef, pipeline: str | None = None) -> Story:
    """Return what became of one record, over connections of its own; see `Explainer.explain`."""
    async with Explainer.open(settings) as explainer:
        return await explainer.explain(ref, pipeline)
