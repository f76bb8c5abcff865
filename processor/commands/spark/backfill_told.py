"""Tells what a backfill has found, and what is loaded of each partition."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from processor.commands.console import result, say, table_on_stdout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from processor.reset.backfill.hop_load import LoadStep
    from processor.reset.backfill.intake.folder import HistoryCounts, Prepared
    from processor.reset.backfill.load import LoadPlan
    from processor.reset.backfill.sample import CutSample
    from schemas.config import Pipeline

_LOUD = "bold yellow"
_TITLES = {
    "partition": "partition",
    "rows": "rows",
    "remembered": "",
    "expired": "expired",
    "cut": "cut",
    "clock": "clock",
    "gap": "gap",
    "before": "before the cut",
    "after": "from the cut on",
}
_NUMBERS = {"partition", "rows", "remembered", "expired", "cut", "gap"}
_REMEMBERED = {"rows", "remembered", "expired", "clock"}
"""What goes by the partition that ids are remembered in: with a route not that of the source."""


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
        steps: Of the partitions of the source.
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
        number = step.partition
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
    plan: LoadPlan,
    samples: Mapping[int, CutSample],
    *,
    loaded: bool,
    as_json: bool,
) -> None:
    """Give the result: a line per partition, and one of all; with a route the sink's, then the source's."""
    if not as_json:
        for titles, steps in _tables(pipeline, plan):
            _table(titles, [_row(counts, step, samples.get(step.partition)) for step in steps])
        return
    if plan.firsts:
        for step in plan.steps:
            result(pipeline=pipeline.name, sink_partition=step.partition, **_remembered(pipeline, counts, step))
    for step in plan.cuts:
        sample = samples.get(step.partition)
        result(
            pipeline=pipeline.name,
            partition=step.partition,
            cut=step.staged.cut,
            **({} if plan.firsts else _remembered(pipeline, counts, step)),
            gap=step.gap,
            sample=None if sample is None else sample._asdict() | {"gap": sample.gap},
        )
    _result(pipeline, run, counts, sum(step.staged.rows for step in plan.steps), loaded=loaded, before=False)


def _remembered(pipeline: Pipeline, counts: HistoryCounts, step: LoadStep) -> dict[str, Any]:
    """Return what is remembered of a history in a partition."""
    staged, number = step.staged, step.partition
    said: dict[str, Any] = {remembered(pipeline): staged.rows, "rows": counts.taken[number]}
    if pipeline.id_dedup is not None:
        said["expired"] = counts.expired[number]
        said["clock"] = _clock(staged.clock_ms)
    return said


def _clock(clock_ms: int) -> int | None:
    """Return what a clock shows, in milliseconds of the epoch; None where it was never set."""
    from processor.engine.ids.clock import NEVER  # noqa: PLC0415 - numba is slow to import

    return None if clock_ms == NEVER else clock_ms


def _tables(pipeline: Pipeline, plan: LoadPlan) -> Iterator[tuple[dict[str, str], list[LoadStep]]]:
    """Yield the tables: their columns, each with its title, and what they are of."""
    every = {
        name: title
        for name, title in _TITLES.items()
        if pipeline.id_dedup is not None or name not in {"expired", "clock"}
    }
    every["remembered"] = remembered(pipeline)
    if not plan.firsts:
        yield every, plan.steps
        return
    of_ids = {name: title for name, title in every.items() if name in _REMEMBERED}
    yield {"partition": "sink partition", **of_ids}, plan.steps
    of_cuts = {name: title for name, title in every.items() if name not in _REMEMBERED}
    yield of_cuts | {"partition": "source partition"}, plan.firsts


def _table(titles: dict[str, str], rows: list[dict[str, str]]) -> None:
    """Print one."""
    right = [at for at, name in enumerate(titles) if name in _NUMBERS]
    table_on_stdout(list(titles.values()), [[row[name] for name in titles] for row in rows], right=right)


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
        if prepared.cuts:
            click.echo(f"partition {each['partition']} of the sink {began}")
        else:
            click.echo(f"partition {each['partition']} {began} at offset {each['cut']}")
    for number, cut in prepared.cuts.items():
        click.echo(f"partition {number} of the source began at offset {cut}")


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


def _row(counts: HistoryCounts, step: LoadStep, sample: CutSample | None) -> dict[str, str]:
    """Return all that can be told of a partition; of one that a history has no place in nothing was taken."""
    staged, number = step.staged, step.partition
    before = after = "loaded before"
    if sample is not None:
        before = f"{sample.before_known:,} of {sample.before:,} known"
        after = f"{sample.after_known:,} of {sample.after:,} known"
    return {
        "partition": str(number),
        "rows": f"{counts.taken.get(number, 0):,}",
        "remembered": f"{staged.rows:,}",
        "expired": f"{counts.expired.get(number, 0):,}",
        "cut": f"{staged.cut:,}",
        "clock": _time(staged.clock_ms),
        "gap": f"{step.gap:,}",
        "before": before,
        "after": after,
    }


def _time(clock_ms: int) -> str:
    if _clock(clock_ms) is None:
        return "-"
    try:
        return (
            datetime.fromtimestamp(clock_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (OverflowError, ValueError):
        return str(clock_ms)
