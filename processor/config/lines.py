"""Finds the line of each key in a TOML text: the standard library's reader keeps none.

Invariant: `tomllib` has read the text, so that it is valid. The scan looks for where keys, tables and elements
begin, and steps over values. What it cannot follow has no line; nothing fails for want of one.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections import Counter
from contextlib import suppress

KeyPath = tuple[str | int, ...]
"""Steps into the file: keys, and the numbers of elements."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Of three quotes that end a text up to two more belong to it.
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'", re.DOTALL
)
_OTHER = re.compile(r"[^,\]}#\n]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of each key, table and element of a valid TOML text.

    A table that is only implied (``a`` of ``[a.b]``) has the line of the first that implies it. A key that is
    written as part of a dotted one has that line.
    """
    scan = _Scan(text.replace("\r\n", "\n"))
    with suppress(_LostError, RecursionError):
        scan.document()
    return scan.lines


class _LostError(Exception):
    """The text is not what this scan knows of TOML."""


class _Scan:
    """One walk over a text."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._elements: Counter[KeyPath] = Counter()
        """How many tables an array of tables has so far."""

    def document(self) -> None:
        """Walk to the end."""
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self._text):
            if self._takes("[["):
                table = self._element()
            elif self._takes("["):
                table = self._table()
            else:
                self._pair(table)

    def _element(self) -> KeyPath:
        line = self._line()
        *above, last = self._key("]]")
        array = (*self._resolved(above), last)
        path = (*array, self._elements[array])
        self._elements[array] += 1
        self._note(path, line)
        return path

    def _table(self) -> KeyPath:
        line = self._line()
        path = self._resolved(self._key("]"))
        self._note(path, line)
        # What was only implied before is written here.
        self.lines[path] = line
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = (*table, *self._key("="))
        self._note(path, line)
        self._value(path)

    def _key(self, end: str) -> list[str]:
        """Step over a key, dotted or not, and what has to follow it."""
        steps: list[str] = []
        while True:
            self._skip(_SPACE)
            if match := _BARE_KEY.match(self._text, self._at):
                steps.append(match[0])
            elif match := _STRING.match(self._text, self._at):
                steps.append(str(tomllib.loads(f"key = {match[0]}")["key"]))
            else:
                raise _LostError
            self._at = match.end()
            self._skip(_SPACE)
            if self._takes(end):
                return steps
            if not self._takes("."):
                raise _LostError

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        if self._takes("["):
            number = 0
            while not self._closes("]"):
                self._note((*path, number), self._line())
                self._value((*path, number))
                number += 1
        elif self._takes("{"):
            while not self._closes("}"):
                self._pair(path)
        elif match := _STRING.match(self._text, self._at) or _OTHER.match(self._text, self._at):
            self._at = match.end()
        else:
            raise _LostError

    def _closes(self, bracket: str) -> bool:
        """Step to the next element of an array or a table in one line; return whether there is none."""
        self._skip(_BLANK)
        if self._takes(","):
            self._skip(_BLANK)
        return self._takes(bracket)

    def _resolved(self, steps: list[str]) -> KeyPath:
        """Return where a header leads: into the last table of each array of tables on the way."""
        path: KeyPath = ()
        for step in steps:
            path = (*path, step)
            if self._elements[path]:
                path = (*path, self._elements[path] - 1)
        return path

    def _note(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def _line(self) -> int:
        return bisect_right(self._ends, self._at - 1) + 1

    def _skip(self, blank: re.Pattern[str]) -> int:
        match = blank.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True
