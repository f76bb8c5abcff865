"""Counts names and phrases that say nothing to who reads them once: ``found``, ``each``, "is no".

``python -m tests.unit.tree.fillers [PATH…]`` prints them with their places, and their share of all names.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[3]
PROGRAMS = ("processor", "schemas", "spark_sink", "seqmark", "packing", "benchmarks")

FILLERS = frozenset(
    [
        *(
            "anew",
            "asked",
            "beside",
            "doing",
            "each",
            "found",
            "given",
            "gone",
            "got",
            "heard",
            "held",
            "here",
            "kept",
        ),
        *(
            "known",
            "made",
            "meant",
            "others",
            "said",
            "seen",
            "shown",
            "some",
            "sought",
            "taken",
            "there",
            "told",
        ),
        *("wanted", "what", "which", "who", "whoever"),
    ]
)
"""A name that is one of these, apart from underscores around it, is a participle or a pronoun, no subject."""

PHRASES = re.compile(
    r"\banew\b|\bnot to be had\b|\bto be had\b|\bwhoever\b|\bmade again\b|\bput aside\b|\bstep(?:s|ped)? over\b"
    r"|\bnobody\b|\bis no(?! (?:longer|more|less|other|such|one|better)\b) \w+|\brun of now\b|\bas ever\b"
    r"|\btold apart\b|\bgave our place away\b|\bif he likes\b|\bwho one is\b|\bsays? of (?:each|it|them)\b",
    re.IGNORECASE,
)
"""Calques, in what people read: strings of the programs, help, pages."""


class Filler(NamedTuple):
    """A filler, where it is, and the line it is in."""

    path: str
    line: int
    name: str
    text: str


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a module binds, with lines: functions, classes, parameters, targets, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case _:
                pass


def fillers(paths: Iterable[Path]) -> tuple[list[Filler], int]:
    """Return the names in files that are fillers, and how many names are bound in them."""
    fillers, count = [], 0
    for path in paths:
        text = path.read_text()
        lines = text.splitlines()
        for name, line in bound(ast.parse(text)):
            count += 1
            if name.strip("_").lower() in FILLERS:
                fillers.append(Filler(str(path.relative_to(ROOT)), line, name, lines[line - 1].strip()))
    return fillers, count


def phrases(paths: Iterable[Path]) -> list[Filler]:
    """Return the calques in strings of modules, docstrings apart, and in pages."""
    return [
        Filler(str(path.relative_to(ROOT)), line, match[0], text.strip())
        for path in paths
        for line, text in (
            _strings(path) if path.suffix == ".py" else enumerate(path.read_text().splitlines(), 1)
        )
        for match in PHRASES.finditer(text)
    ]


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that people may read, with their lines, and the help of commands."""
    tree = ast.parse(path.read_text())
    help_texts = path.is_relative_to(ROOT / "processor/commands")
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and not (help_texts and isinstance(node, ast.FunctionDef) and node.decorator_list)
    }
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)} - docs
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | plain:
            yield node.lineno, node.value


def modules(paths: Iterable[str] = PROGRAMS) -> list[Path]:
    """Return the Python files at or below paths of the checkout."""
    return sorted(
        file
        for path in paths
        for file in ((ROOT / path).rglob("*.py") if (ROOT / path).is_dir() else [ROOT / path])
    )


def main() -> None:
    """Print them."""
    paths = sys.argv[1:]
    files = modules(paths or PROGRAMS)
    names, count = fillers(files)
    pages = [] if paths else [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for filler in [*names, *phrases([*files, *pages])]:
        sys.stdout.write(f"{filler.path}:{filler.line}: {filler.name}: {filler.text[:160]}" + "\n")
    sys.stderr.write(f"{len(names)} of {count:,} names, {1000 * len(names) / max(count, 1):.1f} of 1,000\n")


if __name__ == "__main__":
    main()
