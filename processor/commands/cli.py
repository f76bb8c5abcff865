"""``seqmark`` finds the command, and turns how it ends into an exit code.

Commands are imported when they are called: `seqmark check` does not wait for the stream processor's
kernels. Exit codes: 0 done, or what runs until it is stopped was stopped by a signal; 1 failed, or interrupted;
2 command line or config wrong; 3 violation.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import click

from processor.config.visible import visible
from processor.errors import EXIT_DONE, EXIT_FAILED, SeqmarkError, StopError, ending_signals
from schemas.near import alike

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SECTIONS = {
    "setup": {
        "init": "Audit a topic, and write a config that loses nothing of it.",
        "check": "Say everything that is wrong with a config and all that it names.",
        "doctor": "Try what the brokers allow, and table what is missing.",
        "topics": "Create the topics that are missing; name those that are wrong.",
        "config": "Print the JSON schema of the config file, for editors.",
    },
    "run": {
        "worker": "Run the stream worker.",
        "reset": "Rewind a stopped pipeline and its state together, or step over records.",
        "redrive": "Judge quarantined records again, after the config was mended.",
        "materialize": "Write the clean topic from a source and its verdicts.",
        "generate": "Produce a stream with known duplicates into a source topic.",
        "broker": "Run the embedded Kafka broker in the foreground.",
        "demo": "Show it all on an embedded broker.",
    },
    "look": {
        "audit": "Count the copies in a topic, say what made them, and which rule fits.",
        "read": "Print the records of a topic: clean ones, receipts, quarantined ones.",
        "explain": "Say what became of one record, and why.",
        "status": "Show workers, lag, state, open transactions and quarantine codes.",
        "verify": "Prove that source = sink + duplicates + quarantine.",
        "simulate": "Predict what windows, modes and backends would do, and recommend a config.",
        "report": "Write a page with plots of what became of the records, and of the aggregates.",
    },
    "spark": {
        "aggregate": "Run the Spark job that aggregates the clean topics.",
        "batch": "Make files at rest clean, within a run and across runs.",
        "backfill": "Begin a pipeline with what was delivered before, so that it knows those ids.",
    },
}
"""What each command does, by the folder that has its module."""
_HEADINGS = {"setup": "Set up", "run": "Run", "look": "Look", "spark": "Spark"}
_FOLDERS = {name: folder for folder, commands in _SECTIONS.items() for name in commands}
_GONE = {
    "apply": "docs/verdicts.md, From a table, has a MERGE that deletes what the verdicts skip",
    "sink": "it is seqmark aggregate",
}
"""Commands that there were, and what there is."""
_UNTIL_STOPPED = ("broker", "worker", "aggregate")
_INTERRUPTED = {
    "verify": "nothing is proved",
    "simulate": "nothing is predicted",
    "audit": "the topic was not read to its end, so nothing is known of it",
    "init": "no config was written",
    "read": "there may be more records",
    "explain": "it has not said what became of the record",
    "batch": "nothing was written, or what was does not count unless it said committed: run it again",
    "backfill": "run the same backfill again, it goes on where it was",
    "materialize": "run the same command again, it goes on where it was",
    "redrive": "what it has committed counts: run the same command again, it goes on where it was",
    "reset": "what was not said to be reset may be or not: run the same reset again",
}


class Commands(click.Group):
    """The commands by name, each in a module of a folder in `processor.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which a newcomer meets them."""
        del ctx
        return list(_FOLDERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        # Click notes it when the import is done; it may take a second, and be cut off.
        ctx.invoked_subcommand = cmd_name
        if cmd_name not in _FOLDERS:
            return None
        module = importlib.import_module(f"processor.commands.{_FOLDERS[cmd_name]}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command, of which some print and end."""
        with _written(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; of one that there is not, say which it may have been meant to be."""
        if args and args[0] in _GONE:
            ctx.fail(f"there is no command {args[0]!r} any more: {_GONE[args[0]]}")
        if args and args[0] not in _FOLDERS and (close := alike(args[0], _FOLDERS)):
            ctx.fail(f"there is no command {args[0]!r}; did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        widest = max(map(len, _FOLDERS))
        for folder, commands in _SECTIONS.items():
            with formatter.section(_HEADINGS[folder]):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what Seqmark raises on purpose becomes a message and an exit code.

        So does a result that cannot be written; where its reader has read enough, nothing is wrong.
        """
        with _written(ctx):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            with _terminable():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            name = str(ctx.invoked_subcommand)
            if name in _UNTIL_STOPPED:
                ctx.exit(EXIT_DONE)
            _say(StopError(f"{name} was interrupted: {_INTERRUPTED.get(name, 'it is not done')}"))
            ctx.exit(EXIT_FAILED)
        except SeqmarkError as error:
            _say(error)
            ctx.exit(error.exit_code)


@contextlib.contextmanager
def _written(ctx: click.Context) -> Iterator[None]:
    """End the command where its result cannot be written; escape what a mistaken command line is told of."""
    try:
        try:
            yield
        except click.ClickException as error:
            # What was typed may come out of a file, and would command the terminal.
            error.message = visible(error.message, kept="\n")
            raise
        finally:
            if sys.stdout is not None:  # as it is where a shell closed it
                sys.stdout.flush()
    except OSError as error:
        if not _is_of_stream(error):
            raise
        # What Python would flush at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        from processor.commands.console import noted_exit_code  # noqa: PLC0415 - rich is slow to import

        if isinstance(error, BrokenPipeError):
            ctx.exit(noted_exit_code(ctx))
        _say(StopError(f"stdout cannot be written: {error.strerror}"))
        ctx.exit(EXIT_FAILED)


def _is_of_stream(error: OSError) -> bool:
    """Whether it comes from writing a result, which click, rich and the flush above do, not from the work."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals["__name__"])
    return error.filename is None and (module == __name__ or module.startswith(("click.", "rich.")))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let other signals end a command as Ctrl-C does, unless it listens to them itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    others = set(ending_signals()) - {signal.SIGINT}
    before = {number: signal.signal(number, _interrupt) for number in others}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # asyncio puts a handler of its own in place of Ctrl-C's; a shell's background jobs ignore that signal.
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(number, frame)


def _say(error: SeqmarkError) -> None:
    # rich is slow to import, and most calls go well.
    from processor.commands.console import note_exit_code, say_error  # noqa: PLC0415 - see above

    note_exit_code(error.exit_code)
    say_error(error)


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if not value or ctx.resilient_parsing:
        return
    try:
        click.echo(f"seqmark {version('seqmark')}")
    except PackageNotFoundError:
        click.echo("seqmark, run from a source tree that is not installed")
    ctx.exit(EXIT_DONE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Remove duplicates between two Kafka topics, exactly once."""
    # What clients log on their way to an error is in the error's message; the worker sets up logging.
    for name in ("aiokafka", "processor.kafka.fetch", "processor.kafka.protocol.connections"):
        logging.getLogger(name).addHandler(logging.NullHandler())
