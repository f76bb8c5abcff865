"""``seqmark doctor`` tries what brokers and machine allow, and tables what is missing."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from processor.commands.console import config_option, json_option, note_exit_code, people, result, shown
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.ops.status_text import count

if TYPE_CHECKING:
    from pathlib import Path

    from processor.inspection.findings import Findings

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "not tried": "dim"}


@click.command()
@config_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, config: Path, *, as_json: bool) -> None:
    """Try what the brokers allow, and say what is missing and what to do.

    Goes the way to each broker step by step, asks for each right, and tries a transaction on an id of its own,
    APPLICATION_ID-doctor, which it aborts: no record stays, and no worker is disturbed. Exit code 1: a worker
    cannot do without something that is missing; 2: the config is wrong; 0: all is there, warnings aside.
    """
    settings = load(config)
    require_pipelines(settings)
    # What goes wrong on the way is in the table.
    logging.getLogger("processor").addHandler(logging.NullHandler())
    # The client of the broker is slow to import: a config that is wrong is said at once.
    from processor.inspection.doctor.examine import examine  # noqa: PLC0415 - see above

    trials = asyncio.run(examine(settings))
    code = EXIT_FAILED if trials.problems else EXIT_DONE
    note_exit_code(code)
    (_for_programs if as_json else _for_people)(trials)
    ctx.exit(code)


def _for_programs(trials: Findings) -> None:
    for row in trials.rows:
        fields = asdict(row)
        del fields["place"]  # no row is about a key
        result(**fields)


def _for_people(trials: Findings) -> None:
    console = people(stderr=False)
    kinds = (len(trials.problems), "problem"), (len(trials.warnings), "warning")
    found = [count(number, word) for number, word in kinds if number]
    style = _STYLES["problem" if trials.problems else "warning" if trials.warnings else "ok"]
    console.print(Text(", ".join(found) if found else "all is well", style=style))
    table = Table()
    for title in ("what was tried", "", "what was found", "what to do"):
        table.add_column(title, overflow="fold")
    part = ""
    for row in trials.rows:
        if row.part != part and part:
            table.add_section()
        part = row.part
        style = _STYLES[row.outcome]
        table.add_row(shown(row.tried), shown(row.outcome, style), shown(row.says), shown(row.advice))
    console.print(table)
