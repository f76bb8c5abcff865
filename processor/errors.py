"""Errors, named for the reaction that they ask for.

Errors are named for the reaction, not for the place they come from::

    SeqmarkError
    ├── ConfigError         refuse: nothing is started, exit 2, all problems at once
    ├── MissingExtraError   refuse: a package is not installed, exit 2, says which extra brings it
    ├── StopError           stop: commit what came before, exit 1, say what to do
    │   ├── StopBeforeError stop before a record: rebuild first, if what came before it is not committed
    │   └── BrokerError     stop: the embedded broker or its Java cannot run
    ├── RebuildError        rebuild: drop overlay and producer, fence, restore, go on
    └── FencedError         ask the group: rebuild where the slot is still ours, else rejoin

Errors of libraries are translated where they enter (one door each) with the cause kept.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_VIOLATION = 3


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a process to end in good order.

    SIGHUP, of a terminal that was closed, is one of them unless it is ignored, as `nohup` has it.
    """
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return signal.SIGTERM, signal.SIGINT, *(() if ignored else (signal.SIGHUP,))


def reset_command(pipeline: str, to: str) -> str:
    """Return the command that sets a stopped pipeline to another place, as messages name it."""
    return f"seqmark reset -c FILE --pipeline {pipeline} {to}"


class SeqmarkError(Exception):
    """Everything that Seqmark raises on purpose."""

    exit_code = EXIT_FAILED


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a config a problem stands, in the words of who wrote it."""

    path: str
    """Dotted path with names: ``pipelines.orders.dedup.window``; by number where there is no name."""
    element: str = ""
    """Name of the pipeline or aggregate; empty: it is in none, or that has none."""
    file: str = ""
    line: int | None = None
    variable: str = ""
    """The environment variable that gave the value; empty: the file did."""

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        given = f"environment variable {self.variable}" if self.variable else f"{self.file}{line}"
        return f"{self.element} ({given})" if self.element and given else self.element or given


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where it stands and what would be right."""

    key: str
    """Dotted path in the config (``pipelines.0.dedup.sequence.format``), an option or a topic's name."""
    message: str
    place: Place | None = None
    """Where it stands, for people; None: the key says it."""

    @property
    def where(self) -> str:
        """The place, and the key as people know it."""
        return self.key if self.place is None else ": ".join(filter(None, (str(self.place), self.place.path)))

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class ConfigError(SeqmarkError):
    """The command line or the config is wrong; carries every problem found."""

    exit_code = EXIT_CONFIG

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MissingExtraError(SeqmarkError):
    """What was asked for needs packages that an extra brings; the message is the command that installs it."""

    exit_code = EXIT_CONFIG


class StopError(SeqmarkError):
    """The worker must stop here: going on would lose or invent a record."""


class StopBeforeError(StopError):
    """A record cannot go on, which was found when it had been judged: that cannot be committed, nor taken back.

    Args:
        offset: The record's, in the topic that the slot reads.
        message: As for any stop; says that everything before the record is committed.
    """

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        super().__init__(message)


class BrokerError(StopError):
    """The embedded broker, its Java or its jars cannot be used; the message says what to do."""


class RebuildError(SeqmarkError):
    """The outcome is unknown or the batch was refused: fence, restore and go on from what stands.

    Args:
        reason: A short stable word for metrics and logs, such as ``produce`` or ``timeout``.
        message: What happened, where.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class FencedError(SeqmarkError):
    """The transactional id is not ours any more: another worker has it, or the coordinator took it back."""
