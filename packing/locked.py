"""Prints the part of `requirements.lock` that some packages need: images have no test tools.

    python -m packing.locked seqmark            what the worker needs
    python -m packing.locked 'seqmark[otel]'    with an extra
    python -m packing.locked hatchling          a tool, and what that needs

The lock says beside each package who needs it ("via"); that is followed from the packages named.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
_FACE = "seqmark"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^]]*)\])?")


def locked(wanted: Iterable[str]) -> str:
    """Return the entries of these packages and of all that they need, as the lock has them.

    Args:
        wanted: Packages; ``seqmark`` is this one, with extras in brackets.

    Raises:
        KeyError: The lock does not have a package, or there is no such extra.
    """
    entries = list(_entries((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    known = {name for name, _, _ in entries}
    needed: set[str] = set()
    new = {name for each in wanted for name in _named(each)}
    while new:
        if unknown := new - known:
            raise KeyError(f"requirements.lock has no {', '.join(sorted(unknown))}")
        needed |= new
        new = {name for name, needers, _ in entries if needers & new} - needed
    return "".join(text for name, _, text in entries if name in needed)


def _entries(lock: str) -> Iterator[tuple[str, set[str], str]]:
    """Yield name, who needs it, and text; a package may have several, for several versions of Python."""
    for text in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]:
        via = text.partition("# via")[2]
        yield text.partition("==")[0], set(re.findall(r"[a-z0-9][a-z0-9._-]*(?=\s*$)", via, re.MULTILINE)), text


def _named(requirement: str) -> Iterator[str]:
    name, extras = _split(requirement)
    if name != _FACE:
        yield name
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = [*project["dependencies"]]
    for extra in extras:
        direct += project["optional-dependencies"][extra]
    for each in direct:
        inner, more = _split(each)
        # An extra may be made of others: seqmark[spark,report].
        yield from _named(f"{inner}[{','.join(more)}]") if inner == _FACE else (inner,)


def _split(requirement: str) -> tuple[str, list[str]]:
    name, extras = _REQUIREMENT.findall(requirement)[0]
    return name.lower(), [extra for extra in extras.replace(" ", "").split(",") if extra]


if __name__ == "__main__":
    sys.stdout.write(locked(sys.argv[1:]))
