"""``seqmark status`` shows what the pipelines are doing, with or without a worker."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import click

from processor.commands.chosen import chosen_pipelines
from processor.commands.console import config_option, json_option, note_exit_code, people, result
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, EXIT_FAILED, StopError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from processor.inspection.status.ask import StatusInspector
    from processor.inspection.status.facts import ApplicationProgress

WATCH_S = 2.0


@click.command()
@config_option
@click.option("--pipeline", metavar="N", help="Name of the pipeline; not given: all of them.")
@click.option(
    "--watch",
    is_flag=False,
    flag_value=WATCH_S,
    type=click.FloatRange(min=0.2, max=3600),
    metavar="[SECONDS]",
    help="Look again every so many seconds (2, if none are given) until Ctrl-C.",
)
@json_option
@click.pass_context
def status(
    ctx: click.Context, config: Path, *, pipeline: str | None, watch: float | None, as_json: bool
) -> None:
    """Show workers, lag, positions, state, open transactions and quarantine codes.

    Asks the brokers, and disturbs no worker: it joins no group and commits nothing. Works without a running
    worker too. Exit code 1: no broker answers; then what is known without one is shown.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipelines(settings, pipeline)
    # What goes wrong on the way is in the answer, as what is not known.
    logging.getLogger("processor").addHandler(logging.NullHandler())
    # The client of the broker is slow to import: a config that is wrong is said at once.
    from processor.inspection.status.ask import StatusInspector  # noqa: PLC0415 - see above

    inspector = StatusInspector(settings, chosen)
    if watch is None:
        found = asyncio.run(inspector.look())
        note_exit_code(EXIT_FAILED if found.unreachable else EXIT_DONE)
        (_for_programs if as_json else _for_people)(found)
        if found.unreachable:
            raise StopError(found.unreachable)
        return
    try:
        _watch(inspector, watch, as_json=as_json)
    except KeyboardInterrupt:
        ctx.exit(EXIT_DONE)


def _watch(inspector: StatusInspector, every_s: float, *, as_json: bool) -> None:
    """Look again and again, until interrupted; draws over the last look on a terminal."""
    console = people(stderr=False)
    if as_json or not console.is_terminal:
        asyncio.run(_again(inspector, every_s, _for_programs if as_json else _for_people))
        return
    from rich.live import Live  # noqa: PLC0415 - slow to import, and seen by people only

    from processor.inspection.status.show import drawn  # noqa: PLC0415 - as above

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        asyncio.run(_again(inspector, every_s, lambda found: live.update(drawn(found), refresh=True)))


async def _again(
    inspector: StatusInspector, every_s: float, shown: Callable[[ApplicationProgress], None]
) -> None:
    task = asyncio.current_task()
    while True:
        shown(await inspector.look())
        # An interrupt may come while a client closes, and be taken for the end of what that waited for.
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        await asyncio.sleep(every_s)


def _for_people(found: ApplicationProgress) -> None:
    from processor.inspection.status.show import drawn  # noqa: PLC0415 - as above

    people(stderr=False).print(drawn(found), soft_wrap=False)


def _for_programs(found: ApplicationProgress) -> None:
    from processor.inspection.status.show import application_fields, pipeline_fields  # noqa: PLC0415 - as above

    result(**application_fields(found))
    for pipeline in found.pipelines:
        result(**pipeline_fields(pipeline, found))
