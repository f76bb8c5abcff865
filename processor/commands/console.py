"""Talks to people on stderr and to programs on stdout.

Colours, progress bars and line breaks to fit the window only on a terminal: what goes to a file or a pipe stays
whole, so that it can be searched.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from processor.config.visible import visible, visible_json
from processor.errors import EXIT_DONE, ConfigError, Problem
from processor.ops.number_table import NumberTable
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from processor.errors import SeqmarkError

_CONFIG = "seqmark.config"
"""Where a call of a command notes its config file, for messages to name places in it."""


def _note_config(ctx: click.Context, _: click.Parameter, path: Path) -> Path:
    ctx.meta[_CONFIG] = path
    return path


def note_exit_code(code: int) -> None:
    """Note the exit code that is known before the result is written: a reader that goes away keeps it."""
    click.get_current_context().meta[_FOUND] = code


def noted_exit_code(ctx: click.Context) -> int:
    """Return the exit code that was noted; none: 0."""
    code: int = ctx.meta.get(_FOUND, EXIT_DONE)
    return code


# Not exists=True: a file that is missing is reported as every other problem of the config.
config_option = click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    callback=_note_config,
    required=True,
    metavar="FILE",
    help="The config file (TOML); SEQMARK_... variables override its keys.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")

# Wide enough for a topic's name of the longest kind (249) beside its other columns.
_WIDE = 320
_FOUND = "seqmark.exit_code"
"""Where a command notes the exit code that it will end with, for when nobody reads its result to the end."""
STYLES = {"problem": "bold red", "warning": "yellow", "info": "dim", "ok": "green"}
LEVELS = tuple(STYLES)
"""From what stops to what is right; programs are told of all but the last."""
_MARKS = {"problem": "error", "warning": "warning", "info": "note", "ok": "ok"}
CONFIG_WRONG = "in the config, nothing was started:"


class _PeopleConsole(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `processor.commands.cli`, which knows the exit code."""
        raise  # noqa: PLE0704 - rich calls this while it handles the error


def people(*, stderr: bool = True) -> Console:
    """Return the console on stderr; made again each time, for tests and callers replace the stream."""
    console = _PeopleConsole(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def shown(text: str, style: str = "") -> Text:
    """Return text for a terminal: ``[...]`` in it is no markup, and nothing in it commands the terminal."""
    return Text(visible(text, kept="\n"), style=style)


def say(text: str, style: str = "") -> None:
    """Tell people one thing."""
    people().print(shown(text, style), soft_wrap=True)


def placed(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems with the places of their keys in the config that this call is about."""
    ctx = click.get_current_context(silent=True)
    path = ctx.meta.get(_CONFIG) if ctx else None
    if path is None:
        return list(problems)
    # pydantic is slow to import, and most calls go well.
    from processor.config.load import located  # noqa: PLC0415 - see above

    return located(problems, path)


def problem_line(problem: Problem, level: str = "problem") -> Text:
    """Return a problem as a line for people: place, key, and what would be right."""
    message = f": {problem.message}" if problem.where else problem.message
    return shown(problem.where, STYLES[level]).append_text(shown(message, "default"))


def problem_fields(problem: Problem, level: str) -> dict[str, Any]:
    """Return a problem as fields for programs; those of a place that is not known are null."""
    place = problem.place
    return {
        "key": problem.key,
        "level": level,
        "message": problem.message,
        "path": (place and place.path) or None,
        "name": (place and place.element) or None,
        "file": place and place.file,
        "line": place and place.line,
        "variable": (place and place.variable) or None,
    }


def list_problems(problems: Iterable[Problem], level: str, *, as_json: bool) -> None:
    """Give problems as the result of a command: a marked line each for people, an object for programs."""
    out = people(stderr=False)
    for problem in placed(problems):
        if not as_json:
            mark = Text(f"{_MARKS[level]:<8}", style=STYLES[level])
            out.print(mark.append_text(problem_line(problem, level)), soft_wrap=True)
        elif level != "ok":
            result(**problem_fields(problem, level))


def repeat_on_stderr(problems: Sequence[Problem], heading: str) -> None:
    """Tell whoever reads the errors of a command alone why it failed; nothing where nothing is wrong.

    On a terminal, where both come together, the heading does.
    """
    if not problems:
        return
    say(heading, STYLES["problem"])
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        say_problems(problems)


def say_problems(problems: Iterable[Problem], level: str = "problem") -> None:
    """Tell people what is wrong, a line each, place and key first."""
    console = people()
    for problem in placed(problems):
        console.print(Text("  ").append_text(problem_line(problem, level)), soft_wrap=True)


def say_error(error: SeqmarkError) -> None:
    """Tell people what ended a command."""
    if isinstance(error, ConfigError):
        options = all(problem.key.startswith("-") for problem in error.problems)
        where = "on the command line, nothing was started:" if options else CONFIG_WRONG
        say(f"{count(len(error.problems), 'problem')} {where}", STYLES["problem"])
        say_problems(error.problems)
    else:
        say(f"seqmark: {error}", "bold red")


def table_on_stdout(
    titles: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int], *, stderr: bool = False
) -> None:
    """Print a table that is the result of a command, or stands beside it; ``right`` columns hold numbers."""
    people(stderr=stderr).print(table_of(titles, rows, right))


def table_of(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> NumberTable:
    """Return a table; nothing in it commands the terminal."""
    table = NumberTable(*titles)
    for index in right:
        table.columns[index].justify = "right"
    for row in rows:
        table.add_row(*map(shown, row))
    return table


def result(**fields: Any) -> None:
    """Give programs one JSON object on a line of stdout."""
    click.echo(visible_json(json.dumps(fields, ensure_ascii=False)))


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
