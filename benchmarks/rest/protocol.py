"""Lets a program say where it is, and wait until somebody has looked at what it has taken.

Imports nothing but the standard library: programs run in environments of their own. A program gets a `RestJob`
on its command line. On what was its stdout it writes one line of JSON per mark, ``{"mark": …, "files": […]}``,
and goes on when a line comes on stdin. Whatever else prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ID, TIME = "event_id", "occurred_at"
STARTED, REMEMBERED, CLEANED, COPIED = "started", "remembered", "cleaned", "copied"


@dataclass(frozen=True, slots=True)
class RestStep:
    """One run: its input files, and the window where a way has one.

    Attributes:
        copied: Whether the same is then read and written once more without being judged, with its own mark.
    """

    name: str
    inputs: list[str]
    window: str
    copied: bool = False


@dataclass(frozen=True, slots=True)
class RestJob:
    """What a program is to do: remember the history, then make each step's inputs clean.

    Attributes:
        folder: Exists and is empty; all that is written goes there.
        history: Files whose ids are remembered, each id once.
        steps: In their order; each remembers what the ones before have kept.
        memory_gb: What the program may take.
        fingerprints: Whether an id with other content is another event.
    """

    folder: str
    history: list[str]
    steps: list[RestStep]
    memory_gb: int
    fingerprints: bool = False

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of_arguments(cls) -> RestJob:
        """Return what the command line says."""
        fields = json.loads(sys.argv[1])
        return cls(**{**fields, "steps": [RestStep(**each) for each in fields["steps"]]})

    @property
    def heap(self) -> str:
        """Of a JVM that holds the rows: a gigabyte is for the rest of it."""
        return f"{max(self.memory_gb - 1, 1)}g"


class ProgramMarks:
    """Says how far a program is."""

    def __init__(self) -> None:
        self._said: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # children too

    def say(self, mark: str, files: Iterable[Path] = ()) -> None:
        """Say it, with the files that have the rows that were kept, and wait."""
        self._said.write(json.dumps({"mark": mark, "files": [str(each) for each in files]}) + "\n")
        self._said.flush()
        sys.stdin.readline()


def parquet_files(folder: Path) -> set[Path]:
    """Return the Parquet files in a folder and below."""
    return {each for each in folder.rglob("*.parquet") if not each.name.startswith(".")}
