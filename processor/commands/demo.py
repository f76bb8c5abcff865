"""What does ``seqmark demo`` do? It shows all of Seqmark on one stream whose duplicates are known.

It exits 0 only if everything that came out, Spark's counts included, agrees with the truth.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from processor.commands.console import people, result, say
from processor.commands.options import json_option
from processor.commands.progress import bar
from processor.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from processor.demo.plan import Plan
    from processor.demo.run import Run
    from processor.demo.summary import Line, Summary

_NAMES = {
    "dropped: resend": "dropped: immediate resend",
    "dropped: tail": "dropped: resent tail after a crash",
    "dropped: late": "dropped: connector's late restart",
    "dropped: first": "dropped although sent only once",
}


class _Terminal:
    """The demo's audience: people at stderr."""

    def say(self, text: str) -> None:
        say(text)

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        return bar(what, total)


@click.command()
@click.option(
    "--mode",
    type=click.Choice(["watermark"]),
    default="watermark",
    show_default=True,
    help="How duplicates are told.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1_000),
    default=500_000,
    show_default=True,
    help="How many clicks, duplicates included.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("var/demo"),
    show_default=True,
    help="Where config, truth, log and picture go.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=7, show_default=True, help="Same seed, same clicks."
)
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
    mode: str,
    records: int,
    directory: Path,
    seed: int,
    bootstrap_servers: str | None,
    as_json: bool,
) -> None:
    """Show the whole way of a stream: raw topic, worker, clean topic, Spark, certificate, against the truth."""
    del mode  # there is one so far
    signal.signal(signal.SIGTERM, _stop)
    # What libraries log on their way to an error is in the error; py4j logs every Ctrl-C with its stack.
    logging.getLogger().addHandler(logging.NullHandler())
    from processor.demo.plan import make_plan  # noqa: PLC0415 - slow to import, `-h` is not
    from processor.demo.run import run  # noqa: PLC0415 - likewise
    from processor.kafka.embedded import find_broker  # noqa: PLC0415 - likewise

    wanted = bootstrap_servers or os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")
    say(f"using the broker at {wanted}" if wanted else "starting a broker")
    with find_broker(wanted, say=say) as servers:
        plan = make_plan(directory, servers)
        say(f"the config: {plan.config}")
        try:
            done = asyncio.run(run(plan, records, seed, _Terminal()))
        finally:
            # A copy of what is in the changelog.
            shutil.rmtree(plan.state_dir, ignore_errors=True)
        summary = _summarise(plan, done, records)
    _draw(plan, done, summary)
    if as_json:
        result(
            **summary.fields(),
            config=str(plan.config),
            truth_file=str(plan.truth),
            picture=str(plan.picture),
        )
    _tell(plan, summary)
    ctx.exit(EXIT_DONE if summary.ok else EXIT_FAILED)


def _stop(*_: object) -> NoReturn:
    """End as Ctrl-C does, worker and broker in order; SIGINT itself may be ignored in the background."""
    raise KeyboardInterrupt


def _summarise(plan: Plan, done: Run, records: int) -> Summary:
    from processor.demo.certify import certify  # noqa: PLC0415 - as above
    from processor.demo.summary import Summary, count_lines, hour_lines  # noqa: PLC0415 - as above
    from spark_sink.counts import count_hourly  # noqa: PLC0415 - as above

    say("4. Spark counts the clean topic's events by hour (read_committed)")
    hours = count_hourly(plan.settings.kafka, plan.pipeline.sink, say=say)
    say("5. the certificate (seqmark verify)")
    certificate = certify(plan)
    return Summary(
        lines=count_lines(done.checked, done.truths),
        hours=hour_lines(hours, done.stream),
        differences=[text for part in done.checked for text in part.outcome.differences],
        certificate=certificate,
        drained=done.drained,
        records=records,
    )


def _draw(plan: Plan, done: Run, summary: Summary) -> None:
    from processor.demo.picture import draw  # noqa: PLC0415 - as above
    from processor.demo.summary import times  # noqa: PLC0415 - as above

    title = f"{summary.records:,} clicks with duplicates, before and after Seqmark"
    draw(times(done.checked), plan.picture, title)


def _tell(plan: Plan, summary: Summary) -> None:
    console = people()
    console.print()
    console.print(_table("records", "found", summary.lines))
    console.print(_table("events an hour (UTC)", "Spark", summary.hours))
    rate = f"{summary.rate:,.0f} records/s, the worker's start included"
    if summary.working_rate:
        rate += f"; about {summary.working_rate:,.0f} from its first commit on"
    say(f"throughput: {rate}")
    say(f"raw against clean over event time: {plan.picture}")
    # As it was printed: its table would be broken by another width.
    console.print(summary.certificate.text, highlight=False, markup=False, soft_wrap=True)
    for difference in summary.differences:
        say(f"WRONG: {difference}", "bold red")
    if summary.ok:
        say("everything agrees with the truth", "bold green")
    else:
        say("not everything agrees with the truth", "bold red")


def _table(what: str, found: str, lines: list[Line]) -> object:
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table(what, found, "truth", "")
    for column in table.columns[1:3]:
        column.justify = "right"
    for line in lines:
        mark = "[green]ok[/green]" if line.ok else "[bold red]WRONG[/bold red]"
        table.add_row(_NAMES.get(line.what, line.what), f"{line.found:,}", f"{line.truth:,}", mark)
    return table
