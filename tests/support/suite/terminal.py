"""A pseudo-terminal, and the screen that its escape codes make: what a person sees.

It knows the codes that programs here use, and refuses all others: what is not understood is not seen right.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_CODE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """Lines that were written, the cursor, and whether it can be seen. Has no bottom: nothing scrolls away."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.cursor = True
        self._rest = ""

    def feed(self, text: str) -> None:
        """Take what the program has written."""
        text = self._rest + text
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
                continue
            code = _CODE.match(text, at)
            if code is None:
                break
            self._obey(code[1], code[2])
            at = code.end()
        self._rest = text[at:]
        assert len(self._rest) < 20, f"no code: {self._rest!r}"

    def _put(self, character: str) -> None:
        match character:
            case "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            case "\r":
                self.column = 0
            case _:
                assert character.isprintable(), repr(character)
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1

    def _obey(self, numbers: str, letter: str) -> None:
        match letter, numbers:
            case "A", _:
                self.row -= int(numbers or 1)
                assert self.row >= 0
            case "K", "2":
                self.lines[self.row] = ""
            case (("h" | "l"), "?25"):
                self.cursor = letter == "h"
            case "m", _:
                pass
            case _:
                raise AssertionError(f"unknown code: {numbers}{letter}")

    @property
    def text(self) -> str:
        """What is to be seen."""
        return "\n".join(line.rstrip() for line in self.lines)


class OnTerminal:
    """A process whose stdout and stderr are a terminal; a context manager that kills it at the end.

    Args:
        command: What to run.
        folder: Where.
        env: All of its environment.
        columns: Width of the terminal.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str], columns: int = 160
    ) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        # Lines come as the program wrote them: a terminal makes \r\n of \n, which the screen knows as well.
        self.raw = ""
        self.frames: list[str] = []
        """The screen after each piece of output."""
        self.screen = Screen()
        # Rich believes these two more than the terminal.
        sized = {name: value for name, value in env.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            command, cwd=folder, env=sized, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._wrong: Exception | AssertionError | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        decoded = b""
        # The terminal's end answers EIO when nobody holds the other end any more.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                decoded += data
                text = decoded.decode(errors="ignore")
                decoded = decoded[len(text.encode()) :]
                self.raw += text
                try:
                    self.screen.feed(text)
                except AssertionError as error:
                    self._wrong = error
                    raise
                self.frames.append(self.screen.text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        os.close(self._ours)

    def ended(self, timeout_s: float = 30.0) -> int:
        """Wait for the end and for all that was written; return the exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(10)
        if self._wrong is not None:
            raise self._wrong
        return code
