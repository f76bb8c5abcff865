"""Does the first phase of `seqmark backfill`: takes a history in, and stages what a worker remembers of it.

It is slow to import: what a command line lacks is said before.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.commands.console import bar, say
from processor.commands.spark.backfill_columns import AskedBackfill, require_alike
from processor.commands.spark.interrupts import ending_at_once
from processor.errors import ConfigError, Problem
from processor.judges.factory import mode_of
from processor.judges.ids import worker_clock_ms
from processor.kafka.client import open_client
from processor.ops import fault_points
from processor.reset.backfill.fold import WatermarkPreparation
from processor.reset.backfill.intake.cuts import cuts_after
from processor.reset.backfill.intake.folder import BackfillStep, HistoryCounts, Prepared
from processor.reset.backfill.intake.looks import AGAIN
from processor.reset.backfill.intake.topic import IdIntake, SequenceIntake, TopicHistory
from processor.reset.backfill.prepare import HistoryRows, Preparation
from processor.reset.backfill.staging import Staging
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeAlias

    from processor.reset.backfill.intake.folder import HistoryFolder
    from processor.reset.backfill.intake.looks import Goal
    from processor.reset.backfill.intake.topic import RecordIntake
    from schemas.config import InsertIdDedup, WatermarkDedup
    from spark_sink.backfill.job import HashedHistory
    from spark_sink.backfill.plan import HistoryColumns

    _Work: TypeAlias = Preparation | WatermarkPreparation

INTERRUPTED = "run the same backfill again: what is staged is not staged again, what is loaded not loaded again"


def prepare(asked: AskedBackfill, goal: Goal, folder: HistoryFolder) -> Prepared:
    """Do the first phase."""
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
    return Prepared(counts, staging, [], {})


def _id_preparation(
    asked: AskedBackfill,
    dedup: InsertIdDedup,
    goal: Goal,
    folder: Path,
    secret: bytes,
    cuts: dict[int, int],
    latest_ms: int,
) -> Preparation:

    fingerprints = dedup.fingerprint is not None
    staging = _staging(asked, goal, folder, secret, fingerprints=fingerprints)
    if goal.route is not None:
        # Ids are remembered where they are sent to, and the cuts are of the source.
        staging, cuts = replace(staging, cuts=cuts), dict.fromkeys(range(goal.route), 0)
    keep = dedup.on_collision not in {"quarantine", "drop"}
    return Preparation(staging, cuts, dedup.window, latest_ms, keep_collisions=keep, renewed=dedup.refresh)


def _sequence_preparation(
    asked: AskedBackfill, dedup: WatermarkDedup, goal: Goal, folder: Path, cuts: dict[int, int]
) -> WatermarkPreparation:

    # Nothing is hashed, so the key is nothing to anybody.
    staging = _staging(asked, goal, folder, bytes(16), fingerprints=False)
    return WatermarkPreparation(staging, cuts, dedup)


def _staging(asked: AskedBackfill, goal: Goal, folder: Path, secret: bytes, *, fingerprints: bool) -> Staging:

    return Staging(folder, asked.run, asked.pipeline.name, goal.definition, secret, fingerprints, {})


def _latest_ms(dedup: InsertIdDedup) -> int:
    return worker_clock_ms() + (0 if dedup.time == "arrival" else dedup.max_ahead)


def _take_files(asked: AskedBackfill, goal: Goal, folder: Path) -> tuple[HistoryCounts, Preparation]:
    from spark_sink.backfill.job import hashed_rows, read_clean_table  # noqa: PLC0415 - see above

    columns, dedup = asked.columns, asked.pipeline.id_dedup
    assert columns is not None and dedup is not None  # noqa: S101, PT018 - they are those of a history of files
    _require_placed(asked, goal, columns)
    secret = os.urandom(16)
    if asked.kind == "batch":
        table = read_clean_table(asked.history)
        require_alike(table, columns, dedup, asked.history)
        secret = table.key
    exclude = None if dedup.fingerprint is None else list(dedup.fingerprint.exclude)
    latest_ms = _latest_ms(dedup)
    found, parts = _read_files(asked, goal, folder, secret, exclude)
    cuts = cuts_after(goal.cuts, found.ends)
    work = _id_preparation(asked, dedup, goal, folder, secret, cuts, latest_ms)
    with bar("taking the ids in", found.rows) as advance:
        for rows in hashed_rows(parts):
            marks = rows["fingerprint"] if exclude is not None else rows["fingerprint"][:0]
            work.take(HistoryRows(rows["partition"], rows["hash"], rows["time"], marks))
            advance(rows.size)
    return HistoryCounts(found.files, found.rows, found.beyond, found.faults, found.first_fault, {}, {}), work


def _read_files(
    asked: AskedBackfill, goal: Goal, folder: Path, secret: bytes, exclude: list[str] | None
) -> tuple[HashedHistory, list[Path]]:
    """Have Spark put the rows aside."""
    from spark_sink.backfill.job import hash_history, history_session  # noqa: PLC0415 - slow to import
    from spark_sink.backfill.plan import HistoryPlan  # noqa: PLC0415 - see above
    from spark_sink.batch.rows.constants import as_texts  # noqa: PLC0415 - see above

    columns, files = asked.columns, asked.files
    assert columns is not None and files is not None  # noqa: S101, PT018 - they are those of a history of files
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
        exclude,
        before,
        asked.cut.time_ms if asked.cut.leave_out else None,
        goal.route,
        [as_texts(each.constants, columns.texts) for each in files.files],
    )
    session = history_session(asked.pipeline.name, asked.master, asked.memory, say)
    with session as spark, ending_at_once("backfill", INTERRUPTED):
        return hash_history(spark, plan, files.files, say)


def _require_placed(asked: AskedBackfill, goal: Goal, columns: HistoryColumns) -> None:
    """Refuse a history of which nobody can say in which partition its records stood.

    Raises:
        ConfigError: So it is.
    """
    if goal.partitions == 1 or columns.partition is not None or columns.key is not None:
        return
    if goal.route is not None:
        _require_offsets_placed(asked, goal, columns)
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


def _require_offsets_placed(asked: AskedBackfill, goal: Goal, columns: HistoryColumns) -> None:
    """Refuse offsets of which nobody can say of which partition they are; with ``route`` ids need no place."""
    if columns.offset is None:
        return
    raise ConfigError(
        [
            Problem(
                "--columns",
                f"{asked.pipeline.source} has {goal.partitions} partitions, and an offset says nothing without "
                "the partition: give partition=COL, or key=COL, or leave offset=COL out and give --cut",
            )
        ]
    )


async def _take_topic(asked: AskedBackfill, goal: Goal, folder: Path) -> tuple[HistoryCounts, _Work]:

    client_id = f"{asked.settings.worker.application_id}-backfill-history"
    async with open_client(asked.settings.kafka, client_id, [asked.history], f"; {AGAIN}") as client:
        # With a route the id says the partition, wherever its record stood.
        expected = goal.partitions if goal.route is None else None
        history = TopicHistory(client, Decoder(), asked.history, expected)
        limits = await history.limits()
        stops = {number: each.stable for number, each in limits.items()}
        cuts = {number: stops[number] if cut is None else cut for number, cut in goal.cuts.items()}
        if asked.history == asked.pipeline.source:
            # Behind the cut stand the records that the stream goes on with.
            stops = {number: min(stops[number], cuts[number]) for number in stops}
        spans = {number: (limits[number].start, stop) for number, stop in stops.items()}
        intake, work = _intake(asked, goal, folder, cuts)
        total = sum(max(0, stop - start) for start, stop in spans.values())
        with bar(f"reading {asked.history}", total) as advance:
            counts = await history.take(spans, intake, advance)
    return counts, work


def _intake(asked: AskedBackfill, goal: Goal, folder: Path, cuts: dict[int, int]) -> tuple[RecordIntake, _Work]:

    sequences, dedup = asked.pipeline.sequence_dedup, asked.pipeline.id_dedup
    if sequences is not None:
        folded = _sequence_preparation(asked, sequences, goal, folder, cuts)
        return SequenceIntake(mode_of(asked.pipeline).judge(), folded), folded
    assert dedup is not None  # noqa: S101 - there are two modes
    secret, latest_ms = os.urandom(16), _latest_ms(dedup)
    work = _id_preparation(asked, dedup, goal, folder, secret, cuts, latest_ms)
    return IdIntake(dedup, secret, goal.route, latest_ms, work), work
