"""Puts the three programs below ``seqmark`` in the wheel: a user's own ``schemas`` and ``processor`` stay his.

    in the tree                       in the wheel
    processor/paths.py                seqmark/processor/paths.py
    from processor.paths import x     from seqmark.processor.paths import x
    "processor.wire.decode"           "seqmark.processor.wire.decode"       in texts and comments, too
    getLogger("processor")            getLogger("seqmark.processor")
    "schemas.events:ClickEvent"       as it is: a user's config names it    (`schemas.event.model` finds it)

Hatchling loads this file alone, so it imports nothing of the tree. What cannot be rewritten is refused by name:
the build fails, and not the import on somebody's machine.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FACE = "seqmark"
PROGRAMS = ("processor", "schemas", "spark_sink")
USERS = ("schemas.events",)
"""Modules that configs name; in texts they keep the name that they have there."""
KERNELS = "SEQMARK_KERNELS"
"""Variable that names the folder with the compiled kernels, which `packing.kernels` has filled."""
_ANY = "|".join(PROGRAMS)
_HEAD = re.compile(rf"(?:from\s+)?(?=(?:{_ANY})\b)")
_REFERENCE = re.compile(rf"(?<![\w./-])({_ANY})\.([a-z_][a-z_0-9]*)")

Children = dict[str, frozenset[str]]
"""By program: the modules and packages right below it."""


class PackingError(Exception):
    """A file says a program's name in a way that would mean something else in the wheel."""


class WheelHook(BuildHookInterface[Any]):
    """Hands hatchling the rewritten tree; an editable install takes the repository's as it stands."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the tree into a temporary folder and name it to the build."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory(prefix="seqmark-wheel-")
        write_packed(Path(self.root), Path(self._made.name))
        build_data["force_include"][self._made.name] = FACE
        if kernels := os.environ.get(KERNELS):
            build_data["force_include"][kernels] = f"{FACE}/processor/engine/compiled"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        del build_data, artifact_path
        if version != "editable":
            self._made.cleanup()


def write_packed(root: Path, folder: Path) -> None:
    """Write the package into a folder."""
    for inside, content in packed(root):
        file = folder / inside
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def packed(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the package: its path below ``seqmark``, and what is in it there.

    Raises:
        PackingError: A file cannot be rewritten; says which, and its line.
    """
    children = {program: frozenset(_children(root / program)) for program in PROGRAMS}
    for top in (FACE, *PROGRAMS):
        for file in sorted((root / top).rglob("*")):
            inside = file.relative_to(root)
            if not file.is_file() or any(
                part == "__pycache__" or part.startswith(".") for part in inside.parts
            ):
                continue
            content = file.read_bytes()
            if file.suffix == ".py":
                try:
                    content = rewritten(content.decode(), children).encode()
                except PackingError as error:
                    raise PackingError(f"{inside}:{error}") from error
            yield (inside.relative_to(FACE) if top == FACE else inside).as_posix(), content


def rewritten(source: str, children: Mapping[str, frozenset[str]]) -> str:
    """Return a module's source as it stands in the wheel; only names grow, no line is added or taken away.

    Raises:
        PackingError: It binds a program's name by ``import``, or has it as a string of its own; names the line.
    """
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_names(ast.parse(source), children), reverse=True):
        text = lines[line - 1]
        head = _HEAD.match(text, column)
        if head is None:
            raise PackingError(f"{line}: an import that is spread over lines")
        lines[line - 1] = f"{text[: head.end()]}{FACE}.{text[head.end() :]}"

    def grown(found: re.Match[str]) -> str:
        known = found[2] in children[found[1]] and found[0] not in USERS
        return f"{FACE}.{found[0]}" if known else found[0]

    return _REFERENCE.sub(grown, "".join(lines))


def _children(folder: Path) -> Iterator[str]:
    yield from (
        each.stem for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()
    )


def _names(tree: ast.Module, children: Mapping[str, frozenset[str]]) -> Iterator[tuple[int, int]]:
    """Yield where names of the programs stand in imports and for loggers: line and column, in ASCII lines.

    Raises:
        PackingError: A name would mean something else in the wheel.
    """
    loggers = {id(node.args[0]) for node in ast.walk(tree) if _makes_logger(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _program(node.module or ""):
            yield node.lineno, node.col_offset
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _program(alias.name):
                    if alias.asname is None:
                        raise PackingError(f"{node.lineno}: import {alias.name} binds its first name: use from")
                    yield alias.lineno, alias.col_offset
        elif isinstance(node, ast.Constant) and node.value in PROGRAMS:
            if id(node) in loggers:
                yield node.lineno, node.col_offset + len('"')
                continue
            raise PackingError(
                f'{node.lineno}: in the wheel there is no "{node.value}": say {FACE}, or __name__'
            )
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in children.get(node.value.id, ())
        ):
            raise PackingError(f"{node.lineno}: {node.value.id}.{node.attr} looks like a module: rename it")


def _makes_logger(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "getLogger" and bool(node.args)


def _program(name: str) -> bool:
    return name.partition(".")[0] in PROGRAMS
