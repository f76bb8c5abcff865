"""``seqmark demo`` shows all of Seqmark on one stream whose duplicates are known.

It exits 0 only if everything that came out, Spark's aggregate included, agrees with the truth.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from processor.broker.embedded import find_broker
from processor.commands.console import bar, json_option, people, result, say
from processor.commands.files import writing
from processor.commands.look.explain import tell_story
from processor.commands.look.report import write_report
from processor.commands.run.demo_signals import DemoSignals
from processor.commands.run.demo_verdict import tell_verdict
from processor.demo.plan import make_plan
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.ops.extras import install, missing, require
from schemas.config.values import duration_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from processor.demo.aggregate import Aggregated
    from processor.demo.census import Census
    from processor.demo.plan import DemoPlan
    from processor.demo.run import DemoRun
    from processor.demo.summary import DemoSummary
    from processor.demo.verdicts import TopicBytes
    from processor.inspection.explain.story import Story


@click.command()
@click.option(
    "--mode",
    type=click.Choice(["watermark", "insert-id", "fingerprint", "verdicts", "batch"]),
    default="watermark",
    help="How duplicates are identified: by a sequence in a header, by the clicks' own id within an hour, or "
    "by that id and their content, where other content under one id is another click; verdicts: by a sequence, "
    "without a clean topic; batch: by id and content, of files at rest and of the topic behind them.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1_000),
    help="How many clicks, duplicates included; not set: 500,000, of mode batch 150,000.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("var/demo"),
    help="Folder for config, truth, log, aggregate, picture and report.",
)
@click.option("--seed", type=click.IntRange(min=0), default=7, help="Same seed, same clicks.")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT",
    help="A broker to use; not set: an embedded one, for as long as the demo runs.",
)
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    *,
    mode: Literal["watermark", "insert-id", "fingerprint", "verdicts", "batch"],
    records: int | None,
    directory: Path,
    seed: int,
    bootstrap_servers: str | None,
    as_json: bool,
) -> None:
    """Show the whole way: raw topic, worker, clean topic, aggregate, certificate, report, against the truth.

    In mode insert-id some of the receipts are shown too, in mode fingerprint also what Spark would have missed
    had collisions been dropped as duplicates. What needs an extra that is not installed, Spark's aggregate or
    picture and report, is left out, which is said.

    In mode verdicts the worker writes no clean topic but what of the source to skip; Spark reads the source by
    that, and the bytes that were saved are shown.

    In mode batch three days of files are made clean by Spark; one run is killed and started again, one date is
    made again from corrected files; then a worker goes on from there on a topic.
    """
    # What libraries log on their way to an error is in the error; py4j logs every Ctrl-C with its stack.
    logging.getLogger().addHandler(logging.NullHandler())
    if mode == "batch":
        from processor.commands.run.demo_batch import demo_batch  # noqa: PLC0415 - as below

        require("seqmark demo --mode batch", "spark")
        with _broker(bootstrap_servers) as servers:
            code = demo_batch(directory, servers, records or 150_000, seed, as_json=as_json)
        ctx.exit(code)
    from processor.demo.run import run  # noqa: PLC0415 - slow to import, `-h` is not

    records = records or 500_000
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with DemoSignals() as signals, _broker(bootstrap_servers) as servers:
        plan = make_plan(directory, servers, mode)
        say(f"the config: {plan.config}")
        try:
            done = asyncio.run(run(plan, records, seed, say, bar))
        finally:
            shutil.rmtree(plan.state_dir, ignore_errors=True)  # a copy of what is in the changelog
        summary, stories = _go_on(plan, done, records, signals)
    drawn = not missing("report")
    if drawn:
        _draw(plan, done, summary)
    if as_json:
        result(
            mode=plan.mode,
            **summary.fields(),
            config=str(plan.config),
            truth_file=str(plan.truth),
            files=str(plan.files) if summary.aggregated else None,
            picture=str(plan.picture) if drawn else None,
            report=str(plan.report) if drawn else None,
            explained=[story.as_json() for story in stories],
        )
    _tell(plan, summary, stories, people(stderr=as_json), drawn=drawn)
    ctx.exit(EXIT_DONE if summary.ok else EXIT_FAILED)


@contextmanager
def _broker(wanted: str | None) -> Iterator[str]:
    """Have a broker while the block runs, the one that is asked for or one of its own; yields its address."""
    wanted = wanted or os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")
    say(f"using the broker at {wanted}" if wanted else "starting a broker")
    with find_broker(wanted, say=say) as servers:
        yield servers


def _go_on(
    plan: DemoPlan, done: DemoRun, records: int, signals: DemoSignals
) -> tuple[DemoSummary, list[Story]]:
    """Let Spark aggregate the clean topic, ask for certificate, report and two records.

    What is not installed is left out.
    """
    from processor.demo.processes import certify  # noqa: PLC0415 - as above
    from processor.demo.summary import (  # noqa: PLC0415 - as above
        DemoSummary,
        SummaryLine,
        census_lines,
        count_lines,
        examples,
    )

    differences = [text for part in done.checked for text in part.outcome.differences]
    by_verdicts = plan.mode == "verdicts"
    clean = "in the source without what verdicts skip" if by_verdicts else "in the clean topic"
    lines = count_lines(done.checked, done.truths, clean)
    aggregated = census = None
    with ExitStack() as held:  # one Spark for its own step and for the report
        if _has("spark", "4. left out: Spark's aggregate by hour and campaign"):
            aggregated, census = _with_spark(plan, done, signals, held)
            if census is not None:
                lines += census_lines(*census)
        say("5. the certificate (seqmark verify)")
        certificate = certify(plan)
        if _has("report", "6. left out: picture and report"):
            say("6. the report (seqmark report)")
            differences += _report(plan, aggregates=aggregated is not None)
        signals.check()
    stories: list[Story] = []
    taken = None
    if by_verdicts:
        taken = _copy_afterwards(plan)
        passed = next(line.truth for line in lines if line.what == "passed")
        lines.append(SummaryLine("in a clean topic written afterwards", taken.copied, passed))
    else:
        say("7. what became of a record that was dropped, and of one that passed (seqmark explain)")
        stories, wrong = _explain(plan, done)
        differences += wrong
    signals.check()
    summary = DemoSummary(
        lines=lines,
        aggregated=aggregated,
        differences=differences,
        certificate=certificate,
        drained=done.drained,
        records=records,
        receipts=examples(done.checked) if plan.pipeline.id_dedup else (),
        census=None if census is None else census[0],
        taken=taken,
    )
    return summary, stories


def _copy_afterwards(plan: DemoPlan) -> TopicBytes:
    """Measure what the clean topic would have taken."""
    from processor.demo.verdicts import copy_afterwards  # noqa: PLC0415 - as above

    say("7. what a clean topic would have taken (seqmark materialize)")
    try:
        return copy_afterwards(plan)
    finally:
        shutil.rmtree(plan.state_dir, ignore_errors=True)  # what is noted of the certificate


def _explain(plan: DemoPlan, done: DemoRun) -> tuple[list[Story], list[str]]:
    """Ask what became of two records; return the answers, and what the truth contradicts of them."""
    from processor.demo.asked import asked  # noqa: PLC0415 - as above
    from processor.inspection.explain.explainer import Explainer  # noqa: PLC0415 - as above
    from processor.inspection.explain.story import RecordRef  # noqa: PLC0415 - as above

    wanted = asked(done.stream, done.truths, done.checked)
    refs = [RecordRef(plan.pipeline.source, each.partition, each.offset) for each in wanted]

    async def ask() -> list[Story]:
        async with Explainer.open(plan.settings) as explainer:
            return [await explainer.explain(ref) for ref in refs]

    try:
        stories = asyncio.run(ask())
    finally:
        shutil.rmtree(plan.state_dir, ignore_errors=True)  # what is noted of the certificate
    told = zip(wanted, stories, strict=True)
    return stories, [wrong for each, story in told for wrong in each.differences(story.as_json())]


def _has(extra: str, otherwise: str) -> bool:
    """Say whether an extra is installed; where it is not tell people what is left out, and how to get it."""
    if lacking := missing(extra):
        say(f"{otherwise}, which {install(lacking)}", "yellow")
    return not lacking


def _with_spark(
    plan: DemoPlan, done: DemoRun, signals: DemoSignals, held: ExitStack
) -> tuple[Aggregated, tuple[Census, Census] | None]:
    """Return the aggregate, and in mode fingerprint what Spark has counted beside what is there."""
    from processor.demo.census import true_census  # noqa: PLC0415 - as above
    from processor.demo.sinks import aggregate, spark, take_census  # noqa: PLC0415 - as above

    what = "the source by its verdicts" if plan.mode == "verdicts" else "the clean topic"
    say(f"4. Spark aggregates {what} by hour and campaign (seqmark aggregate --available-now)")
    held.enter_context(spark(say))
    signals.listen()
    signals.check()
    aggregated = aggregate(plan, done.stream, say, signals.told)
    signals.check()
    say(f"   done in {aggregated.seconds:.1f} s; the files: {plan.files}")
    if plan.mode != "fingerprint":
        return aggregated, None
    census = take_census(plan)
    signals.check()
    say(f"   and has counted {census.users:,} users of {census.events:,} events")
    return aggregated, (census, true_census(done.stream))


def _report(plan: DemoPlan, *, aggregates: bool) -> list[str]:
    """Write the page, where nothing aggregates without that; return what is wrong with it."""
    settings = plan.settings if aggregates else plan.settings.model_copy(update={"aggregates": []})
    made = write_report(settings, plan.config.name, plan.report)
    wrong = list(made.problems)
    if unexplained := sum(abs(flow.unexplained) for flow in made.flows):
        wrong.append(f"{unexplained:,} records of the source are in no other topic, or too many there")
    return [f"the report: {problem}" for problem in wrong]


def _draw(plan: DemoPlan, done: DemoRun, summary: DemoSummary) -> None:
    from processor.demo.picture import draw  # noqa: PLC0415 - as above

    title = f"{summary.records:,} clicks with duplicates, before and after Seqmark"
    draw(done.checked, plan.picture, title, summary.census)


def _tell(plan: DemoPlan, summary: DemoSummary, stories: Sequence[Story], out: Console, *, drawn: bool) -> None:
    """Show what came of it; the verdict is said, and where programs read the result all of it is."""
    from processor.demo import tables  # noqa: PLC0415 - as above

    out.print()
    out.print(tables.counts_table(summary.lines))
    if summary.receipts:
        out.print(f"some of the receipts in {plan.pipeline.duplicates}:", markup=False, soft_wrap=True)
        out.print(tables.receipts_table(summary.receipts))
    if summary.census:
        out.print("and of the notes of collisions:")
        out.print(tables.notes_table(summary.receipts))
        out.print(str(summary.census), style="bold", markup=False, soft_wrap=True)
    if summary.taken is not None:
        out.print(tables.bytes_table(summary.taken))
    rate = f"{summary.rate:,.0f} records/s, the worker's start included"
    if summary.working_rate:
        rate += f"; about {summary.working_rate:,.0f} from its first commit on"
    out.print(f"throughput: {rate}", soft_wrap=True)
    out.print()
    if summary.aggregated is not None:
        out.print(tables.hours_table(summary.aggregated))
        for line in tables.aggregate_told(
            summary.aggregated, duration_words(plan.settings.aggregates[0].watermark)
        ):
            out.print(line, markup=False, soft_wrap=True)
        out.print()
    # As it was printed: its table would be broken by another width.
    out.print(summary.certificate.text, highlight=False, markup=False, soft_wrap=True)
    out.print()
    for story in stories:
        line = f"$ seqmark explain -c {plan.config} {story.asked}"
        out.print(line, style="bold", highlight=False, markup=False, soft_wrap=True)
        tell_story(story, out)
        out.print()
    tell_verdict(summary.wrong, plan.picture, plan.report, ok=summary.ok, drawn=drawn)
