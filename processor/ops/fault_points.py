"""Ends or halts this process for a test, between every two steps of a commit or a batch, and while it restores.

``SEQMARK_FAULT_STEP=NAME[:N]`` ends the process with SIGKILL right after the N-th time (default 1) that
the step NAME was done; with ``SEQMARK_FAULT_ACTION=stop`` it is halted there with SIGSTOP instead, once,
until a test lets it go on. With ``SEQMARK_FAULT_PIPELINE`` only the commits of the pipeline, or the hop, of
that name count. For tests only; without the variable `reached` costs one comparison.
"""

from __future__ import annotations

import contextlib
import os
import signal
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class CommitStep(StrEnum):
    """The commit's steps, as numbered in `processor.pipeline.slot_pipeline` and docs/architecture.md."""

    BEGUN = "begun"
    OUTPUT = "output"
    CHANGELOG = "changelog"
    OFFSETS = "offsets"
    ENDED = "ended"
    LOCAL = "local"


class Restoring(StrEnum):
    """Moments of a restore, see `processor.state.restore`."""

    LOADED = "loaded"
    """Some of the local state has been read."""
    TAKEN_IN = "taken-in"
    """Some of the changelog has been taken in, and written locally as far as that is due."""


_wanted, _left, _pipeline, _signal = "", 1, "", signal.SIGKILL


def arm(environ: Mapping[str, str]) -> None:
    """Do from here on what these variables ask for, which are this process's when this module is imported."""
    global _wanted, _left, _pipeline, _signal  # noqa: PLW0603 - one counter for the process, by design
    _wanted, _, count = environ.get("SEQMARK_FAULT_STEP", "").partition(":")
    _left = int(count) if count else 1
    _pipeline = environ.get("SEQMARK_FAULT_PIPELINE", "")
    _signal = signal.SIGSTOP if environ.get("SEQMARK_FAULT_ACTION") == "stop" else signal.SIGKILL


arm(os.environ)
_disarmed: list[None] = []
"""Not empty while nothing counts."""
_listeners: list[Callable[[StrEnum, str], None]] = []


@contextlib.contextmanager
def disarmed() -> Iterator[None]:
    """Let no step count in the block: it works on made-up records, where no test means to end or halt."""
    _disarmed.append(None)
    try:
        yield
    finally:
        _disarmed.pop()


@contextlib.contextmanager
def heard_by(listener: Callable[[StrEnum, str], None]) -> Iterator[None]:
    """Call a listener with each step and its pipeline in the block; what it raises ends who did the step."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def reached(step: StrEnum, pipeline: str = "") -> None:
    """Note that ``step`` is done, for ``pipeline``; a test may have asked to end or halt here.

    Args:
        step: A `CommitStep`, a moment of `Restoring`, or a step of `spark_sink.batch.job`.
        pipeline: Whose commit it is.
    """
    global _left  # noqa: PLW0603 - one counter for the process, by design
    for listener in _listeners:
        listener(step, pipeline)
    if _disarmed or step != _wanted or (_pipeline and pipeline != _pipeline):
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), _signal)
