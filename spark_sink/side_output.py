"""Writes aside, once each, events that came too late and records that are no events.

Spark drops late rows and only counts them. But which records a batch had, and by which watermark its rows
were late, stands in the checkpoint (`spark_sink.query.checkpoint`), and with the report comes what parts of
its records hold (`spark_sink.source.spans`). So of a batch that did not count something the stretches that may
have it are read from Kafka once more, and it is written, by the same rules, and by the same reader:

    ASIDE/late/batch=N/*.json      events, with the windows that were closed
    ASIDE/bad/batch=N/*.json       records, with the reason
    ASIDE/_seqmark/state.json      {"query": UUID, "seen": N, "max_ahead_ms": M, "model": {...},
                                    "earlier_models": [{...}]}
    ASIDE/_seqmark/todo/N.json     a batch that is to be read again, and the models that may have judged it

1. Spark reports that batch N is done. 2. Where something is to be written, `todo/N` is. 3. `seen` becomes N.
4. The batch is read again and its files are written, over those of an earlier attempt. 5. `todo/N` goes.

A crash before 3: at the next start batch N is done in the checkpoint but not seen, and is taken to 2 without
knowing whether there is something. A crash before 5: 4 is done again, with the same outcome. Steps 1 to 3 are
small and done at once, so that the batch's plan is copied before Spark forgets it (after 100 batches). Step 4
has a thread of its own.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as sql

from processor.errors import StopError
from schemas.event.written import read_model, written_model
from spark_sink.failures import explain, patiently
from spark_sink.files import Files
from spark_sink.outputs.output import StoppedError, Stopping
from spark_sink.query.checkpoint import Checkpoint, PlannedBatch
from spark_sink.query.definition import read_definition
from spark_sink.query.events import bad_records, by_any, judged, late_events, uncounted
from spark_sink.query.partial_rows import read_uncounted
from spark_sink.query.records import batch_records
from spark_sink.query.uncounted import HardlyCounted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Kafka, Sink
    from schemas.event import EventModel
    from spark_sink.source.spans import SpanPart

_STATE = "_seqmark/state.json"
_TODO = "_seqmark/todo"


class Why(NamedTuple):
    """What is known of a batch that is to be read again."""

    late: bool | None
    """Whether Spark has dropped rows; None: not known."""
    bad: bool | None
    """Whether it had records that are no events; None: not known."""
    first: int | None = None
    """How many records the run has read up to its end, where it has some of the first; None: it has none."""


class Written(NamedTuple):
    """What a batch has left aside."""

    late: int
    bad: int


class SideOutputAudience(NamedTuple):
    """Hears what was written aside."""

    say: Callable[[str], None]
    """What a person should know."""
    warn: Callable[[str], None]
    """What a person has to know: that hardly anything is counted."""
    wrote: Callable[[Written], None]
    """What was written; called from the thread that wrote it."""
    failed: Callable[[StopError], None]
    """What has ended that thread."""


class SideOutput:
    """Writes aside what one query did not count.

    Args:
        spark: The session.
        kafka: How the cluster is reached.
        sink: The query's aggregate.
        model: The events' model.
        accept_loss: Whether the query goes on where retention has removed records.
        audience: Hears what was written aside.
        stopping: Ends a wait for Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        sink: Sink,
        model: EventModel,
        *,
        accept_loss: bool,
        audience: SideOutputAudience,
        stopping: Stopping | None = None,
    ) -> None:
        self._spark = spark
        self._kafka = kafka
        self._sink = sink
        self._model = model
        self._accept_loss = accept_loss
        self._audience = audience
        self._stopping = stopping or Stopping()
        self._files = Files(spark, sink.aside_path)
        self._checkpoint = Checkpoint(spark, sink.checkpoint)
        self._query: str | None = None
        self._by_kernels: bool | None = None
        self._seen = -1
        self._repeated = -1
        # The last batch that was judged by a model that processes before had.
        self._judged = -1
        self._inherited_models = [model]
        self._max_ahead_ms = sink.max_ahead
        self._inherited_ms = self._max_ahead_ms
        self._first = HardlyCounted(sink, audience.warn)
        # Between Spark's reports and the start of the query: both write the state.
        self._noting = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        # At a start the topic was looked at just before.
        self._require_topic: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------ before the query runs

    def open(self, *, forget: bool = False) -> None:
        """Compare with the checkpoint, and write what an earlier run has left to do.

        Args:
            forget: Write nothing of it, for the records are gone with their topic.

        Raises:
            StopError: The checkpoint is gone or another one, or a batch cannot be read again.
        """
        text = self._files.read(_STATE)
        if text is None:
            self._seen = self._forgotten()
        else:
            state = json.loads(text)
            self._query, self._seen = state["query"], state["seen"]
            self._inherited_ms = state["max_ahead_ms"]
            self._inherited_models = self._models_of(state)
            self._judged = self._checkpoint.committed()
        known = self._checkpoint.query()
        if self._query is not None and known != self._query:
            found = f"is now that of query {known}" if known else "is gone"
            raise StopError(
                f"aggregate {self._sink.name}: its checkpoint {self._sink.checkpoint} {found}, but query "
                f"{self._query} has written its output up to batch {self._seen}. Starting anew would count "
                f"again what is there. Put the checkpoint back; or, to begin anew from the topic's first "
                f"record, remove the output, {self._sink.checkpoint} and {self._sink.aside_path}"
            )
        # The batch that an earlier process was in comes again. What it reports then does not tell what was not
        # counted by that process, whose rows the output may have.
        self._repeated = max(self._checkpoint.planned(), default=-1)
        if forget:
            self._forget()
        else:
            self._catch_up()
        # Whether that batch was judged by the old `max_ahead` and model or will be by the new ones, nobody can
        # tell. What is too far ahead, or no event, by either is written aside: rather there and in the
        # aggregate than in neither.
        self._inherited_ms = min(self._inherited_ms, self._max_ahead_ms)
        if self._query is not None:
            # Before a batch is judged by the new one: a crash may leave that batch done and not seen.
            self._save()

    def _forget(self) -> None:
        left = self._files.names(_TODO)
        if left or self._seen < self._repeated:
            self._audience.say(
                f"{self._sink.name}: what batches up to {self._repeated} did not count and was not written to "
                f"{self._sink.aside_path} yet is lost with the old topic"
            )
        for name in left:
            self._files.remove(f"{_TODO}/{name}")
        self._seen = self._repeated
        self._save()

    def _forgotten(self) -> int:
        """Return the last batch that cannot be read again, where this folder is new and the query is not."""
        first = min(self._checkpoint.planned(), default=0)
        # A batch begins where the one before it ended.
        last = first or -1
        if last >= 0:
            self._audience.say(
                f"{self._sink.name}: {self._sink.aside_path} is new; what batches 0 to {last} did not count "
                f"is not written there, because Spark has forgotten which records they had"
            )
        return last

    def _catch_up(self) -> None:
        self.done(self._checkpoint.committed(), Why(None, None))
        self._work()

    def began(self, query: str, require_topic: Callable[[], None]) -> None:
        """Remember whose output this is, once the query has an id, and begin to work; again: do nothing.

        Args:
            query: The id.
            require_topic: Refuses a topic that is not the one that the query reads: what stands at a batch's
                offsets there is nothing of it.
        """
        self._require_topic = require_topic
        if self._thread is not None:
            return
        with self._noting:
            if self._query is None:
                self._query = query
                self._save()
        self._thread = threading.Thread(target=self._run, name=f"aside-{self._sink.name}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ while it runs

    def done(self, number: int, why: Why, parts: Sequence[SpanPart] = ()) -> None:
        """Take down that a batch is done (steps 2 and 3), and what its parts hold; in the order of batches."""
        with self._noting:
            if number > self._seen:
                known = number > self._repeated
                self._note(number, why if known else Why(None, None), parts if known else ())
                self._wake.set()

    def _note(self, last: int, why: Why, parts: Sequence[SpanPart]) -> None:
        for number in range(self._seen + 1, last + 1):
            # Of those before it no report came: they were done when this or an earlier process ended.
            mine = why if number == last else Why(None, None)
            if mine.late is False and mine.bad is False:
                continue
            batch = self._checkpoint.batch(number)
            if number == last:
                batch = batch.narrowed(parts, self._sink.verdicts, late=mine.late is not False)
            if not batch.empty:
                todo = {**batch.as_json(), **mine._asdict(), **self._judge_of(number)}
                self._files.write(f"{_TODO}/{number}.json", json.dumps(todo))
        self._seen = last
        self._save()

    def _save(self) -> None:
        state = {"query": self._query, "seen": self._seen, **self._judge_of(self._seen + 1)}
        self._files.write(_STATE, json.dumps(state))

    def _judge_of(self, number: int) -> dict[str, Any]:
        """Return the ``max_ahead`` and the models that batch ``number`` was, or may be, judged by."""
        max_ahead_ms = self._inherited_ms if number <= self._repeated else self._max_ahead_ms
        models = [self._model]
        if number <= self._judged:
            models = self._inherited_models
        elif number <= self._repeated:
            models += [each for each in self._inherited_models if each != self._model]
        model, *earlier = map(written_model, models)
        return {"max_ahead_ms": max_ahead_ms, "model": model, "earlier_models": earlier}

    def _models_of(self, told: dict[str, Any]) -> list[EventModel]:
        """Return the models that were written down."""
        try:
            return [read_model(each) for each in (told["model"], *told["earlier_models"])]
        except (KeyError, ValueError) as error:
            lacks = f"a state without {error}" if isinstance(error, KeyError) else error
            raise StopError(
                f"aggregate {self._sink.name}: {self._sink.aside_path}/_seqmark has {lacks}: start once with "
                "the build that has written it"
            ) from error

    def _run(self) -> None:
        try:
            while not self._ending:
                self._wake.wait()
                self._wake.clear()
                self._work()
        except StoppedError:
            return
        except StopError as error:
            self._audience.failed(error)
        except Exception as error:  # noqa: BLE001 - the query must not go on without this thread
            self._audience.failed(explain(self._sink.name, self._sink.topic, error))

    # ------------------------------------------------------------------ after it has ended

    def close(self, *, finish: bool) -> int:
        """End the thread; with ``finish`` write all that is left to do before.

        Returns:
            How many batches are left to be written.

        Raises:
            StopError: What is left cannot be written; the next start tries again.
        """
        self._ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if finish:
            try:
                self._catch_up()
            except StoppedError as stopped:
                self._audience.say(str(stopped))
        return len(self._files.names(_TODO))

    # ------------------------------------------------------------------ steps 4 and 5

    def _work(self) -> None:
        names = [name.removesuffix(".json") for name in self._files.names(_TODO)]
        for number in sorted(map(int, names)):
            if self._ending and threading.current_thread() is self._thread:
                return
            self._write(number)

    def _write(self, number: int) -> None:
        name = f"{_TODO}/{number}.json"
        todo = json.loads(self._files.read(name) or "")
        batch, why = PlannedBatch.from_json(todo), Why(todo["late"], todo["bad"], todo.get("first"))
        self._require_topic()
        try:
            written = patiently(
                lambda: self._read_again(batch, why, self._models_of(todo), todo["max_ahead_ms"]),
                f"{self._sink.name}: what batch {number} did not count",
                self._audience.say,
                self._stopping,
            )
        except (PySparkException, Py4JError) as error:
            told = explain(self._sink.name, self._sink.topic, error)
            raise StopError(
                f"{told} (when what batch {number} did not count was to be written to {self._sink.aside_path}; "
                f"the next start tries again)"
            ) from error
        if why.late and not written.late and not self._accept_loss:
            # Never seen; it would mean that Spark's rule is not the one that is applied here.
            raise StopError(
                f"aggregate {self._sink.name}: Spark dropped late rows in batch {number} that cannot be found "
                f"again"
            )
        self._files.remove(name)
        self._audience.wrote(written)

    def _read_again(
        self, batch: PlannedBatch, why: Why, models: list[EventModel], max_ahead_ms: int
    ) -> Written:
        # Late and bad are written one after the other: what may be either is kept, so that the batch is read
        # once for both. That is little of it; what memory has no room for is kept on disk.
        kept = by_any([self._uncounted_of(batch, each, max_ahead_ms) for each in models])
        kept = kept.persist(StorageLevel.MEMORY_AND_DISK)
        late = bad = 0
        try:
            if why.late is not False:
                rows = late_events(kept, self._sink, batch.late_watermark_ms)
                late = self._store(rows, f"late/batch={batch.number}")
            if why.bad is not False:
                bad = self._store(bad_records(kept), f"bad/batch={batch.number}")
            if why.first is not None:
                self._first.look_at(kept, late, bad, why.first)
        finally:
            kept.unpersist()
        return Written(late, bad)

    def _uncounted_of(self, batch: PlannedBatch, model: EventModel, max_ahead_ms: int) -> DataFrame:
        """Return what a batch did not count, judged by whoever has counted the others: each is in one place."""
        spark, kafka, sink = self._spark, self._kafka, self._sink
        if self._by_kernels is None:
            written = read_definition(Files(spark, sink.checkpoint))
            self._by_kernels = written is not None and written.by_kernels
        loss = self._accept_loss
        if self._by_kernels:
            return read_uncounted(spark, kafka, sink, model, batch, max_ahead_ms=max_ahead_ms, accept_loss=loss)
        records = batch_records(spark, kafka, sink, batch, accept_loss=loss)
        return uncounted(judged(records, sink, model, max_ahead_ms=max_ahead_ms), batch.late_watermark_ms)

    def _store(self, rows: DataFrame, name: str) -> int:
        """Write rows as JSON lines, over what an earlier attempt has left; return how many."""
        seen = Observation()
        rows = rows.observe(seen, sql.count(sql.lit(1)).alias("rows"))
        rows.write.mode("overwrite").option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX").json(
            f"{self._files.folder}/{name}"
        )
        number = int(seen.get["rows"])
        if not number:
            self._files.remove(name)
        return number
