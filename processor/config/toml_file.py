"""Reads a TOML file; where it cannot be read, says why, with the line and a caret below it.

Of a line that cannot be read only what is surely no secret is shown: the value of a key that is known and
secret by no rule, or none.
"""

from __future__ import annotations

import codecs
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

from processor.config.bounds import MOST_BYTES, OutOfBoundsError, within_bounds
from processor.config.echo import secret_name, secret_text
from processor.errors import ConfigError, Place, Problem
from schemas.config.reference import key_names
from schemas.near import near

if TYPE_CHECKING:
    from pathlib import Path

_MOST_FILES = 5
_OF_OTHERS = {"pyproject.toml", "Cargo.toml", "book.toml", "netlify.toml"}
"""Files that other programs read: nobody means one."""
_MOST_LINE = 100
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_PAIR = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*=")
_HEADER = re.compile(r"\s*\[[\sA-Za-z0-9_.\[\]-]*$")
# Part of tomllib's message, form of the line, what to do.
_HINTS = (
    ("Invalid value", re.compile(r"[^=]*=\s*[A-Za-z_/$]"), 'a text stands in quotes: key = "text"'),
    ("Illegal character '\\n'", re.compile(""), "a quote is not closed in this line"),
    ("Unescaped '\\' in a string", re.compile(""), "a text with backslashes stands in single quotes"),
)


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Return the tables of a file, and its text.

    Raises:
        ConfigError: It is not there, cannot be read, is no TOML, or is too large, deep or full for a config.
    """
    line = None
    try:
        text = _text(_content(path))
        try:
            return within_bounds(tomllib.loads, text), text
        except tomllib.TOMLDecodeError as error:
            message, line = _syntax(str(error), text)
        except OutOfBoundsError as error:
            message = str(error)
        except ValueError:
            # Python's reader of integers has a bound, which tomllib passes on as it is.
            message = "has a number of too many digits"
    except FileNotFoundError:
        message = f"there is no such file{_others(path)}"
    except IsADirectoryError:
        message = f"cannot be read: it is a folder; name a file in it{_others(path / path.name)}"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 at byte {error.start}, in line {line}: save it as UTF-8"
    except _Utf16Error:
        message = "is UTF-16: save it as UTF-8"
    except _TooLargeError as error:
        message = f"is too large for a config: {error}"
    raise ConfigError([Problem(str(path), message, Place("", file=str(path), line=line))])


class _TooLargeError(Exception):
    """Reading it would take minutes."""


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            # A pipe's size is not known before its end.
            found = max(os.fstat(file.fileno()).st_size, len(content))
            raise _TooLargeError(f"{found:,} bytes, at most {MOST_BYTES:,} are read")
    return content


class _Utf16Error(Exception):
    """What some editors and shells of Windows write by themselves."""


def _text(content: bytes) -> str:
    if content.startswith(_UTF_16):
        raise _Utf16Error
    return content.removeprefix(codecs.BOM_UTF8).decode()


def _others(path: Path) -> str:
    """Say what else lies where a file was looked for."""
    try:
        there = sorted(each.name for each in path.parent.glob("*.toml") if each.name not in _OF_OTHERS)
    except OSError:
        return ""
    if (close := near(path.stem, [name.removesuffix(".toml") for name in there])) is not None:
        return f"; did you mean {path.parent / close}.toml?"
    listed = ", ".join(there[:_MOST_FILES]) + (", ..." if len(there) > _MOST_FILES else "")
    return f"; there are {listed}" if there else ": `seqmark init` writes one"


def _syntax(error: str, text: str) -> tuple[str, int | None]:
    """Return what is wrong, and the line, counted from 1; None: the end."""
    at = _AT.search(error)
    what = error[: at.start()] if at else error
    lines = text.replace("\r\n", "\n").split("\n")
    if at is None or at[1] is None:
        hint = "something is not closed, such as a quote or a bracket"
        return f"is not valid TOML: {what}, at the end: {hint}", None
    number, column = int(at[1]), int(at[2])
    line = lines[number - 1]
    hint = next((f"; {hint}" for part, form, hint in _HINTS if part in what and form.match(line)), "")
    head = f"is not valid TOML in line {number}, column {column}: {what}{hint}"
    shown = _shown(line)
    if shown is None:
        return head, number
    caret = "" if column > len(shown) + 1 else f"\n    {' ' * (column - 1)}^"
    return f"{head}\n    {shown}{caret}", number


def _shown(line: str) -> str | None:
    """Return a line as far as it is no secret; None: nothing of it."""
    plain = "".join(each if each.isprintable() else " " for each in line).partition("#")[0].rstrip()
    cut = plain[:_MOST_LINE]
    if _HEADER.match(plain):
        return cut
    pair = _PAIR.match(plain)
    if pair is None or secret_text(plain):
        return None
    key = pair[1].rpartition(".")[2]
    if key in key_names() and not any(map(secret_name, (pair[1], plain))):
        return cut
    return f"{pair[0]} ..."
