"""What a file of this tree imports, directly or not: read from its source, nothing is run."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

ROOT = Path(__file__).parents[3]
PACKAGES = ("benchmarks", "packing", "processor", "schemas", "seqmark", "spark_sink", "tests")


def imported(tree: Path, file: str, packages: Collection[str] = PACKAGES) -> set[str]:
    """Return a file and all that it imports of some packages, by their paths below ``tree``.

    Imports inside functions count as well; what is only named in a string, as a command's module is, does not.
    """
    found: set[str] = set()
    ahead = [file]
    while ahead:
        name = ahead.pop()
        if name not in found and (tree / name).is_file():
            found.add(name)
            ahead += (each for each in _names(tree / name) if each.partition("/")[0] in packages)
    return found


@cache
def _names(file: Path) -> tuple[str, ...]:
    """Return files that a file may import; not all of them are there."""
    return tuple(_asked(ast.parse(file.read_bytes())))


def _asked(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from _files(node.module)
            for each in node.names:
                yield from _files(f"{node.module}.{each.name}")
        elif isinstance(node, ast.Import):
            for each in node.names:
                yield from _files(each.name)


def _files(module: str) -> tuple[str, str]:
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def digest(tree: Path, files: Iterable[str], more: bytes = b"") -> str:
    """Return a hash over the names and contents of some files, and of something more."""
    sums = hashlib.sha256(more)
    for name in sorted(files):
        sums.update(f"\n{name}\n".encode())
        sums.update(_content(tree / name))
    return sums.hexdigest()


@cache
def _content(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest() if file.is_file() else b""
