"""``seqmark demo --mode batch`` shows files, and a topic behind them, whose copies are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.commands.console import people, result, say
from processor.commands.files import writing
from processor.commands.look.report import write_report
from processor.commands.run.demo_signals import DemoSignals
from processor.commands.run.demo_verdict import tell_verdict
from processor.demo.batch.plan import plan_archive
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.ops.extras import install, missing

if TYPE_CHECKING:
    from pathlib import Path

    from processor.demo.batch.plan import ArchivePlan
    from processor.demo.batch.runs import ArchiveRuns
    from processor.demo.batch.summary import ArchiveSummary


def demo_batch(directory: Path, servers: str, records: int, seed: int, *, as_json: bool) -> int:
    """Run the demo at rest over about so many rows, tell of it, and return the exit code.

    Args:
        directory: For all its files.
        servers: Of the broker, for the last step.
        records: Of the files.
        seed: Of the rows.
        as_json: Whether a program reads the result.

    Raises:
        StopError: A run failed that should not have.
    """
    # Spark and Arrow are slow to import.
    from processor.demo.batch.runs import ArchiveWalkthrough  # noqa: PLC0415 - see above
    from processor.demo.batch.stream import go_on  # noqa: PLC0415 - see above
    from processor.demo.batch.summary import summarise_archive  # noqa: PLC0415 - see above

    with writing(directory):
        plan = plan_archive(directory, servers)
    say(f"the config: {plan.config}")
    with DemoSignals() as signals:
        runs = ArchiveWalkthrough(plan, records, seed, say, signals.check).run(signals.listen)
        stream = go_on(plan, runs.days, seed, say, signals.check)
        drawn = not missing("report")
        wrong = _report(plan, runs) if drawn else []
        if not drawn:
            say(f"7. left out: picture and report, which {install(['report'])}", "yellow")
        signals.check()
    summary = summarise_archive(runs, stream, wrong)
    if as_json:
        result(
            mode="batch",
            **summary.fields(),
            config=str(plan.config),
            picture=str(plan.picture) if drawn else None,
            report=str(plan.report) if drawn else None,
        )
    _tell(plan, summary, as_json=as_json, drawn=drawn)
    return EXIT_DONE if summary.ok else EXIT_FAILED


def _report(plan: ArchivePlan, runs: ArchiveRuns) -> list[str]:
    """Draw the picture and write the page; return what is wrong with the page."""
    from processor.demo.batch.picture import draw_archive  # noqa: PLC0415 - as above

    say("7. the report (seqmark report)")
    made = write_report(plan.settings, plan.config.name, plan.report)
    read = sum(each.counts["read"] for each in runs.outcomes[:-1])
    draw_archive(runs, plan.picture, f"{read:,} clicks in files with duplicates, before and after Seqmark")
    wrong = list(made.problems)
    (part,) = made.batches
    if part.totals["kept"] != runs.checked.kept.total():
        wrong.append(f"it counts {part.totals['kept']:,} kept rows of {runs.checked.kept.total():,}")
    return [f"the report: {each}" for each in wrong]


def _tell(plan: ArchivePlan, summary: ArchiveSummary, *, as_json: bool, drawn: bool) -> None:
    """Show what came of it; the verdict is said, and where programs read the result all of it is."""
    from processor.demo.batch.summary import dates_table  # noqa: PLC0415 - as above
    from processor.demo.tables import counts_table  # noqa: PLC0415 - as above

    out, runs = people(stderr=as_json), summary.runs
    out.print()
    out.print(counts_table(summary.lines))
    out.print(dates_table(summary.dates))
    out.print(
        f"revenue of {summary.dates[-1].date} before it was made again: {runs.wrong / 100:,.2f}", soft_wrap=True
    )
    out.print(
        f"had collisions been dropped as duplicates, {runs.checked.notes:,} of {runs.checked.kept.total():,} "
        "clicks would have been lost",
        style="bold",
        soft_wrap=True,
    )
    out.print(f"all of it took {runs.seconds + summary.stream.seconds:.1f} s", soft_wrap=True)
    out.print()
    tell_verdict(summary.differences, plan.picture, plan.report, ok=summary.ok, drawn=drawn)
