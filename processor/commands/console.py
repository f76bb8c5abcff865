"""Talks to people on stderr and to programs on stdout.

Colours, progress bars and line breaks to fit the window only on a terminal: what goes to a file or a pipe stays
whole, so that it can be searched.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from processor.errors import ConfigError
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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


def people(*, stderr: bool = True) -> Console:
    """Return the console on stderr; made again each time, for tests and callers replace the stream."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def say(text: str, style: str = "") -> None:
    """Tell people one thing; ``[...]`` in it is no markup."""
    people().print(Text(text, style=style), soft_wrap=True)


def report_problems(problems: Sequence[Problem], level: str, *, as_json: bool) -> None:
    """Give programs a line per problem, or tell people how many there are and then each; nothing where none."""
    if as_json:
        for problem in problems:
            result(key=problem.key, level=level, message=problem.message)
    elif problems:
        say(f"{'to know' if level == 'info' else count(len(problems), level)}:", STYLES[level])
        say_problems(problems, level)


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
    table = Table(*titles)
    for index in right:
        table.columns[index].justify = "right"
    for row in rows:
        table.add_row(*row)
    people(stderr=False).print(table)


def result(**fields: Any) -> None:
    """Give programs one JSON object on a line of stdout."""
    click.echo(json.dumps(fields, ensure_ascii=False))


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block runs, where stderr is a terminal.

    Gives a function that is called with the number of records done since its last call.
    """
    console = people()
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich import progress  # noqa: PLC0415 - slow to import, and seen by people only

    columns = progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn()
    with progress.Progress("{task.description}", *columns, console=console) as shown:
        task = shown.add_task(what, total=total)
        yield lambda done: shown.advance(task, done)
