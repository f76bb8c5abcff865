"""Tells what a backfill has found, and what is loaded of each partition."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from processor.commands.console import result, say, table_on_stdout
from processor.engine.ids.clock import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.reset.backfill.intake.folder import HistoryCounts, Prepared
    from processor.reset.backfill.load import LoadStep
    from processor.reset.backfill.sample import CutSample
    from schemas.config import Pipeline

_LOUD = "bold yellow"
_TITLES = ["partition", "rows", "ids", "expired", "cut", "clock", "gap", "before the cut", "from the cut on"]
_OF_IDS = (3, 5)
"""Columns that sequences have not, which do not expire and go by no clock."""


def remembered(pipeline: Pipeline) -> str:
    """Return what is remembered, in the plural."""
    return "scopes" if pipeline.id_dedup is None else "ids"


def warn(
    pipeline: Pipeline,
    counts: HistoryCounts,
    steps: Sequence[LoadStep],
    samples: Mapping[int, CutSample],
    *,
    advise: bool,
) -> None:
    """Say what an operator has to look at before the workers start.

    Args:
        pipeline: Whose state it will be.
        counts: Of the history.
        steps: What is to be loaded.
        samples: What was found at the cuts.
        advise: Whether what the history has from the cut on could be left out.
    """
    if counts.faults:
        say(
            f"{counts.faults:,} of {counts.rows:,} rows cannot be judged and are left out, as the stream "
            f"leaves them out; the first is {counts.first_fault}",
            _LOUD,
        )
    if counts.beyond:
        say(f"{counts.beyond:,} rows are from the cut on, and are left out")
    what, dropped = ("records", "them") if pipeline.id_dedup is None else ("ids", "their records")
    for step in steps:
        number = step.staged.partition
        name, sample = f"{pipeline.source}:{number}", samples.get(number)
        if step.gap:
            say(
                f"{name}: a gap: {step.gap:,} offsets from the cut on are no longer retained, and the "
                "history need not have them. What was delivered of them passes again when it comes again",
                _LOUD,
            )
        if sample is not None and sample.gap:
            say(
                f"{name}: a gap: of {sample.before:,} {what} right before the cut the history has only "
                f"{sample.before_known:,}. It seems to end earlier: what was delivered in between passes "
                "again when it comes again. Choose an earlier cut, or a history that comes up to it",
                _LOUD,
            )
        if sample is not None and sample.after_known:
            advice = (
                "If it has not delivered them, being an archive of the source: --up-to-cut" if advise else ""
            )
            say(
                f"{name}: of {sample.after:,} {what} from the cut on the history has {sample.after_known:,}: "
                f"the stream drops {dropped}, which are copies or were delivered by the history. {advice}",
                _LOUD if 2 * sample.after_known > sample.after else "",
            )


def tell(
    pipeline: Pipeline,
    run: str,
    counts: HistoryCounts,
    steps: Sequence[LoadStep],
    samples: Mapping[int, CutSample],
    *,
    loaded: bool,
    as_json: bool,
) -> None:
    """Give the result: a line per partition, and one of all."""
    if not as_json:
        rows = [_row(counts, step, samples.get(step.staged.partition)) for step in steps]
        _table(pipeline, rows)
        return
    for step in steps:
        staged, sample = step.staged, samples.get(step.staged.partition)
        of_ids: dict[str, Any] = {}
        if pipeline.id_dedup is not None:
            of_ids["expired"] = counts.expired[staged.partition]
            of_ids["clock"] = None if staged.clock_ms == NEVER else staged.clock_ms
        result(
            pipeline=pipeline.name,
            partition=staged.partition,
            cut=staged.cut,
            **{remembered(pipeline): staged.rows},
            rows=counts.taken[staged.partition],
            **of_ids,
            gap=step.gap,
            sample=None if sample is None else sample._asdict() | {"gap": sample.gap},
        )
    _result(pipeline, run, counts, sum(step.staged.rows for step in steps), loaded=loaded, before=False)


def _table(pipeline: Pipeline, rows: list[list[str]]) -> None:
    """Print it, without what there is of ids only."""
    right = [0, 1, 2, 3, 4, 6]
    shown = [at for at in range(len(_TITLES)) if pipeline.id_dedup is not None or at not in _OF_IDS]
    titles = [remembered(pipeline) if _TITLES[at] == "ids" else _TITLES[at] for at in shown]
    cells = [[row[at] for at in shown] for row in rows]
    table_on_stdout(titles, cells, right=[where for where, at in enumerate(shown) if at in right])


def tell_loaded(pipeline: Pipeline, run: str, prepared: Prepared | None, *, as_json: bool) -> None:
    """Say that a backfill has been loaded before, and what it was."""
    say(f"backfill {run} was loaded before: nothing was done")
    if prepared is None:
        if as_json:
            result(pipeline=pipeline.name, run=run, loaded=True, loaded_before=True)
        return
    counts = prepared.counts
    if as_json:
        _result(pipeline, run, counts, sum(each["rows"] for each in prepared.parts), loaded=True, before=True)
        return
    for each in prepared.parts:
        began = f"began with {each['rows']} {remembered(pipeline)}"
        click.echo(f"partition {each['partition']} {began} at offset {each['cut']}")


def _result(
    pipeline: Pipeline, run: str, counts: HistoryCounts, rows: int, *, loaded: bool, before: bool
) -> None:
    result(
        pipeline=pipeline.name,
        run=run,
        files=counts.files,
        rows=counts.rows,
        **{remembered(pipeline): rows},
        **({} if pipeline.id_dedup is None else {"expired": sum(counts.expired.values())}),
        left_out={"unjudged": counts.faults, "from_the_cut_on": counts.beyond},
        loaded=loaded,
        loaded_before=before,
    )


def _row(counts: HistoryCounts, step: LoadStep, sample: CutSample | None) -> list[str]:
    staged, number = step.staged, step.staged.partition
    cells: list[Any] = [number, counts.taken[number], staged.rows, counts.expired[number], staged.cut]
    before = after = "loaded before"
    if sample is not None:
        before = f"{sample.before_known:,} of {sample.before:,} known"
        after = f"{sample.after_known:,} of {sample.after:,} known"
    told = [f"{each:,}" if at else str(each) for at, each in enumerate(cells)]
    return [*told, _time(staged.clock_ms), f"{step.gap:,}", before, after]


def _time(clock_ms: int) -> str:
    if clock_ms == NEVER:
        return "-"
    try:
        return (
            datetime.fromtimestamp(clock_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (OverflowError, ValueError):
        return str(clock_ms)
