"""Makes three days of files clean, kills a run on its way, makes a date again, and goes on with a worker.

1. Monday. 2. Tuesday, whose run is killed half way. 3. It is started again. 4. Wednesday, with wrong prices.
5. Wednesday's file comes once more, and its date is made again. 6. The pipeline begins with the table, so that
Thursday's copies of rows of the files are duplicates for it. After each step all that counts is compared.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from processor.demo.archive import DAYS, Archive
from processor.demo.script import KILLED, DemoScript, has, quoted
from processor.demo.truth import DemoResult
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.kafka.plain.producer import open_source, send
from spark_sink.batch.reader import committed_files, committed_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.demo.archive import Row
    from processor.demo.script import DemoFolder

BACKFILL = "archive"
"""Its name, in receipts."""
KILLED_AT = "written"
"""Step 7 of nine: all its files are there, and no commit names one."""

_CONFIG = """\
# Written by `seqmark demo --mode batch`; the other commands take it, too, while the demo's broker is there.
[kafka]
bootstrap_servers = {servers}

[worker]
application_id = {name}
state_dir = {state}

[[batches]]                              # the files that there are
name = "clicks"
input = {{ format = "json", path = {raw_files} }}
output = {{ format = "parquet", path = {clean_table} }}
duplicates = {receipts}
quarantine = {bad_rows}
id = ["event_id"]
event_time = "occurred_at"
window = "30d"                           # how far back earlier runs count
fingerprint = {{ exclude = ["sent_at"] }}  # the same id and content: a resend, whenever it was sent
on_collision = "rename"                  # the same id, other content: another click, kept under a new id

[[pipelines]]                            # what comes from now on
name = "clicks"
source = {raw}
sink = {clean}
duplicates = {duplicates}
quarantine = {quarantine}

[pipelines.dedup]                        # as above, so that both know an id by the same hash
mode = "insert-id"
id = [{{ from = "value", pointer = "/event_id" }}]
window = "30d"
fingerprint = {{ exclude = ["/sent_at"] }}
on_collision = "rename"
rename = {{ to = "/event_id", keep = "header" }}
"""


class BatchDemo:
    """One run.

    Args:
        folder: For all its files.
        servers: Of the broker, for the last step.
        say: Told of each step.
    """

    def __init__(self, folder: DemoFolder, servers: str, say: Callable[[str], None]) -> None:
        topics = {kind: f"{folder.name}.{kind}" for kind in ("raw", "clean", "duplicates", "quarantine")}
        folders = {
            kind: folder / kind for kind in ("state", "raw_files", "clean_table", "receipts", "bad_rows")
        }
        text = _CONFIG.format(**quoted(servers=servers, name=folder.name, **topics, **folders))
        self._script = DemoScript(folder.path / "batch.toml", text, servers, say)
        self._folder, self._say = folder, say
        self._runs: dict[str, Any] = {}
        self.result = DemoResult()

    def run(self, records: int, seed: int) -> DemoResult:
        """Do all steps, over about so many rows of files.

        Raises:
            StopError: A command failed that should not have.
        """
        began, say = time.monotonic(), self._say
        archive = Archive(records, seed)
        say(f"1. the files of Monday, {DAYS[0]}")
        self._commit(archive, 0, "monday")
        say(f"2. the files of Tuesday, {DAYS[1]}; the run is killed (SIGKILL) when its files are written")
        self._kill(archive)
        say("3. once more")
        self._commit(archive, 1, "tuesday")
        say(f"4. the files of Wednesday, {DAYS[2]}")
        self._commit(archive, 2, "wednesday")
        say(f"5. Wednesday's prices were wrong; its file comes once more, and {DAYS[2]} is made again")
        archive.corrected = True
        archive.write(2, self._folder / "raw_files")
        self._batch("wednesday-corrected", "--from", DAYS[2])
        self._compare(archive, 3, "wednesday was made again", "")
        say("6. from Thursday on clicks come by Kafka, and the pipeline begins with what the table knows")
        self._go_on(archive.days[-1])
        if has("report", "7. left out: the report", say):
            say("7. the report")
            page = self._folder.path / "batch.html"
            told = self._script.objects("report", "--output", page, ends=(EXIT_DONE, EXIT_FAILED))
            self.result.differ("the report: ", told[-1]["problems"])
            self.result.shown.append(f"the report, for a browser: {page}")
            self.result.fields["report"] = str(page)
        seconds = round(time.monotonic() - began, 3)
        self.result.fields |= {"runs": self._runs, "config": str(self._script.config), "seconds": seconds}
        return self.result

    def _batch(self, run: str, *arguments: object) -> None:
        (told,) = self._script.objects("batch", *arguments, "--run", run)
        self._runs[run] = told

    def _commit(self, archive: Archive, day: int, run: str) -> None:
        self._batch(run, "--input", archive.write(day, self._folder / "raw_files"))
        self._compare(archive, day + 1, run)

    def _kill(self, archive: Archive) -> None:
        """Let Tuesday's run be killed: nothing of it counts."""
        file = archive.write(1, self._folder / "raw_files")
        fault = {"SEQMARK_FAULT_STEP": KILLED_AT}
        self._script.run("batch", "--input", file, "--run", "tuesday", ends=(KILLED,), env=fault)
        named = set(committed_files(str(self._folder / "clean_table")))
        there = {str(each) for each in (self._folder / "clean_table").rglob("*.parquet")}
        self._say(f"   it has left {len(there - named):,} files of rows that do not count")
        self.result.fields["killed"] = {"signal": -KILLED, "files_left": len(there - named)}
        self.result.differ("the killed run ", [] if there - named else ["had written nothing yet"])
        self._compare(archive, 1, "the killed run")

    def _compare(self, archive: Archive, days: int, when: str, label: str | None = None) -> None:
        """Compare all that counts with the truth, row by row."""
        tables = [committed_rows(str(self._folder / each), names) for each, names in Archive.COLUMNS.items()]
        agrees = archive.compare(self.result, f"after {when}: ", days, tables, label)
        self._say(f"   table, receipts and quarantine {'agree' if agrees else 'do NOT agree'} with the truth")

    def _go_on(self, rows: list[Row]) -> None:
        """Let a worker judge the clicks of a day, whose pipeline begins with the clean table."""
        script, (pipeline,) = self._script, self._script.settings.pipelines
        kafka = script.settings.kafka
        # Their timestamps are months old: no retention may take them meanwhile.
        asyncio.run(open_source(kafka, pipeline.source, 1, {"retention.ms": "-1"}))
        history = ("--format", "batch", "--history", self._folder / "clean_table")
        script.run("backfill", "--pipeline", pipeline.name, *history, "--cut", "0:0", "--run", BACKFILL)
        asyncio.run(send(kafka, pipeline.source, [_Partition(rows)]))
        script.drain()
        truth = [each.line(offset) for offset, each in enumerate(rows)]
        topics = script.read_topics(0, pipeline.clean_topic)
        self.result.compare_partition(f"{pipeline.source}:0", truth, topics, "topic, ")


class _Partition:
    """Rows as the records of a partition."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def records(self, start: int, stop: int) -> list[Any]:
        """Return some, as a producer takes them."""
        return [(None, each.value(corrected=True), (), each.sent_ms) for each in self._rows[start:stop]]
