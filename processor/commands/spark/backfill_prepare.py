"""Does the first phase of `seqmark backfill`: takes a history in, and stages what a worker remembers of it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from processor.commands.console import bar, say
from processor.commands.spark.backfill_columns import require_alike
from processor.commands.spark.interrupts import ending_at_once
from processor.errors import ConfigError, Problem
from processor.ops import fault_points

if TYPE_CHECKING:
    from pathlib import Path

    from processor.reset.backfill.intake.cuts import CutChoice
    from processor.reset.backfill.intake.folder import HistoryCounts, HistoryFolder, Prepared
    from processor.reset.backfill.intake.looks import Goal
    from processor.reset.backfill.prepare import Preparation
    from schemas.config import InsertIdDedup, Pipeline, Settings
    from spark_sink.backfill.job import HistoryFiles
    from spark_sink.backfill.plan import HistoryColumns

INTERRUPTED = "run the same backfill again: what is staged is not staged again, what is loaded not loaded again"


class AskedBackfill(NamedTuple):
    """The command line, checked.

    Attributes:
        settings: The whole config.
        pipeline: One of it.
        dedup: What it judges by.
        history: Path or topic.
        kind: Its format.
        columns: What its columns mean; None: it is a topic.
        files: Its files; None: it is a topic.
        run: Name of the backfill.
        cut: What is said of the cut.
        staging: Folder for what is staged; None: that of the config.
        master: Where Spark runs.
        memory: Its heap.
    """

    settings: Settings
    pipeline: Pipeline
    dedup: InsertIdDedup
    history: str
    kind: str
    columns: HistoryColumns | None
    files: HistoryFiles | None
    run: str
    cut: CutChoice
    staging: Path | None
    master: str
    memory: str


def prepare(asked: AskedBackfill, goal: Goal, folder: HistoryFolder) -> Prepared:
    """Do the first phase."""
    from processor.reset.backfill.intake.folder import BackfillStep, Prepared  # noqa: PLC0415 - see above

    folder.begin()
    with folder.writing():
        if asked.kind == "topic":
            counts, work = asyncio.run(_take_topic(asked, goal, folder.path))
        else:
            counts, work = _take_files(asked, goal, folder.path)
        fault_points.reached(BackfillStep.HASHED)
        say(f"folding {counts.rows:,} rows to what a worker remembers of them")
        staging = work.stage()
    counts = counts._replace(taken=work.taken, expired=work.expired)
    folder.note(counts, staging)
    fault_points.reached(BackfillStep.STAGED)
    return Prepared(counts, staging, [])


def _preparation(
    asked: AskedBackfill, goal: Goal, folder: Path, secret: bytes, cuts: dict[int, int], latest_ms: int
) -> Preparation:
    from processor.reset.backfill.prepare import Preparation  # noqa: PLC0415 - slow to import
    from processor.reset.backfill.staging import Staging  # noqa: PLC0415 - slow to import

    dedup, name = asked.dedup, asked.pipeline.name
    fingerprints = dedup.fingerprint is not None
    staging = Staging(folder, asked.run, name, goal.definition, secret, fingerprints, {})
    keep = dedup.on_collision not in {"quarantine", "drop"}
    return Preparation(staging, cuts, dedup.window, latest_ms, keep_collisions=keep, renewed=dedup.refresh)


def _latest_ms(dedup: InsertIdDedup) -> int:
    from processor.judges.ids import worker_clock_ms  # noqa: PLC0415 - slow to import

    return worker_clock_ms() + (0 if dedup.time == "arrival" else dedup.max_ahead)


def _take_files(asked: AskedBackfill, goal: Goal, folder: Path) -> tuple[HistoryCounts, Preparation]:
    from processor.reset.backfill.intake.cuts import cuts_after  # noqa: PLC0415 - slow to import
    from processor.reset.backfill.intake.folder import HistoryCounts  # noqa: PLC0415 - see above
    from processor.reset.backfill.prepare import HistoryRows  # noqa: PLC0415 - see above
    from spark_sink.backfill.job import (  # noqa: PLC0415 - see above
        hash_history,
        hashed_rows,
        history_session,
        read_clean_table,
    )
    from spark_sink.backfill.plan import HistoryPlan  # noqa: PLC0415 - see above

    columns, files, dedup = asked.columns, asked.files, asked.dedup
    assert columns is not None and files is not None  # noqa: S101, PT018 - they are those of a history of files
    _require_placed(asked, goal, columns)
    secret = os.urandom(16)
    if asked.kind == "batch":
        table = read_clean_table(asked.history)
        require_alike(table, columns, dedup, asked.history)
        secret = table.key
    before = None
    if asked.cut.leave_out and columns.offset is not None:
        # Where the offsets themselves say the cut, nothing is behind it.
        before = [2**63 - 1 if cut is None else cut for cut in goal.cuts.values()]
    plan = HistoryPlan(
        asked.kind,
        str(folder),
        [str(each.path) for each in files.files],
        columns,
        goal.partitions,
        secret,
        None if dedup.fingerprint is None else list(dedup.fingerprint.exclude),
        before,
        asked.cut.time_ms if asked.cut.leave_out else None,
    )
    latest_ms = _latest_ms(dedup)
    session = history_session(asked.pipeline.name, asked.master, asked.memory, say)
    with session as spark, ending_at_once("backfill", INTERRUPTED):
        found, parts = hash_history(spark, plan, files.files, say)
    work = _preparation(asked, goal, folder, secret, cuts_after(goal.cuts, found.ends), latest_ms)
    prints = plan.exclude is not None
    with bar("taking the ids in", found.rows) as advance:
        for rows in hashed_rows(parts):
            marks = rows["fingerprint"] if prints else rows["fingerprint"][:0]
            work.take(HistoryRows(rows["partition"], rows["hash"], rows["time"], marks))
            advance(rows.size)
    return HistoryCounts(found.files, found.rows, found.beyond, found.faults, found.first_fault, {}, {}), work


def _require_placed(asked: AskedBackfill, goal: Goal, columns: HistoryColumns) -> None:
    """Refuse a history of which nobody can say in which partition its records stood.

    Raises:
        ConfigError: So it is.
    """
    if goal.partitions == 1 or columns.partition is not None or columns.key is not None:
        return
    raise ConfigError(
        [
            Problem(
                "--columns",
                f"{asked.pipeline.source} has {goal.partitions} partitions, and ids are remembered by "
                "partition: give the column that says in which one each record stood, partition=COL, or the "
                "records' key, key=COL, where producers chose partitions by Kafka's default (murmur2)",
            )
        ]
    )


async def _take_topic(asked: AskedBackfill, goal: Goal, folder: Path) -> tuple[HistoryCounts, Preparation]:
    from processor.judges.ids import make_id_extractor  # noqa: PLC0415 - slow to import
    from processor.kafka.client import open_client  # noqa: PLC0415 - see above
    from processor.reset.backfill.intake.looks import AGAIN  # noqa: PLC0415 - see above
    from processor.reset.backfill.intake.topic import TopicHistory  # noqa: PLC0415 - see above
    from processor.wire.decode import Decoder  # noqa: PLC0415 - see above

    secret, latest_ms = os.urandom(16), _latest_ms(asked.dedup)
    client_id = f"{asked.settings.worker.application_id}-backfill-history"
    async with open_client(asked.settings.kafka, client_id, [asked.history], f"; {AGAIN}") as client:
        history = TopicHistory(client, Decoder(), asked.history, goal.partitions)
        limits = await history.limits()
        stops = {number: each.stable for number, each in limits.items()}
        cuts = {number: stops[number] if cut is None else cut for number, cut in goal.cuts.items()}
        if asked.history == asked.pipeline.source:
            # Behind the cut stand the records that the stream goes on with.
            stops = {number: min(stops[number], cuts[number]) for number in stops}
        spans = {number: (limits[number].start, stop) for number, stop in stops.items()}
        work = _preparation(asked, goal, folder, secret, cuts, latest_ms)
        total = sum(max(0, stop - start) for start, stop in spans.values())
        with bar(f"reading {asked.history}", total) as advance:
            counts = await history.take(spans, make_id_extractor(asked.dedup, secret), latest_ms, work, advance)
    return counts, work
