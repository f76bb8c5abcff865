"""Talks to people on stderr and to programs on stdout.

Colours and line breaks to fit the window only on a terminal: what goes to a file or a pipe stays whole, so
that it can be searched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from processor.errors import ConfigError
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from processor.errors import Problem, SeqmarkError

# Not exists=True: a file that is missing is reported as every other problem of the config.
config_option = click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The config file (TOML); SEQMARK_... variables override its keys.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")

# Wide enough for a topic's name of the longest kind (249) beside its other columns.
_WIDE = 320
STYLES = {"problem": "bold red", "warning": "yellow", "info": "dim"}


def people() -> Console:
    """Return the console on stderr; made again each time, for tests and callers replace the stream."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def say(message: str, style: str = "") -> None:
    """Tell people one thing; ``[...]`` in it is no markup."""
    people().print(Text(message, style=style), soft_wrap=True)


def say_problems(problems: Iterable[Problem], level: str = "problem") -> None:
    """Tell people what is wrong, a line each, the key first."""
    console = people()
    for problem in problems:
        line = Text("  ")
        line.append(problem.key, style=STYLES[level])
        line.append(f": {problem.message}" if problem.key else problem.message)
        console.print(line, soft_wrap=True)


def say_error(error: SeqmarkError) -> None:
    """Tell people what ended a command."""
    if isinstance(error, ConfigError):
        say(f"{count(len(error.problems), 'problem')} in the config, nothing was started:", "bold red")
        say_problems(error.problems)
    else:
        say(f"seqmark: {error}", "bold red")


def table_on_stdout(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int]) -> None:
    """Print a table that is the result of a command; columns in ``right`` hold numbers."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    table = Table(*titles)
    for index in right:
        table.columns[index].justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(table)


def result(**fields: Any) -> None:
    """Give programs one JSON object on a line of stdout."""
    click.echo(json.dumps(fields, ensure_ascii=False))
