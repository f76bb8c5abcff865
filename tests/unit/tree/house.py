"""Measures a checkout against the rules of the house: widths, lengths, cycles, names, words, layers.

`make check` runs it. ``python -m tests.unit.tree.house`` runs it alone and prints nothing where all rules hold.
With paths it prints the table of `docs/decisions/0018-one-redesign.md`, a column per checkout, whatever rules
these break. It parses and never imports, so that it measures trees that do not run here.

A rule yields findings; each has a place: a file, a folder or a name. `ALLOWED` says how many may stay where. It
can only shrink: a place with fewer findings than it allows fails, too.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.unit.tree.gone_words import GONE_CLASSES, GONE_FUNCTIONS, GONE_MODULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
PROGRAMS = ("processor", "schemas", "spark_sink", "seqmark", "packing", "benchmarks")

ENTRIES = 15  # what fits one screen of `ls` and one head
ROOT_ENTRIES = 20  # for the three roots below: they are the way in, and mirror all parts
# Where hosts, tools and people look for them; they are no part of the tree's own order.
FIXED = {
    *("LICENSE", "NOTICE", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md"),
    *("SUPPORT.md", "llms.txt", ".gitignore", ".dockerignore", ".editorconfig", ".github"),
    ".pre-commit-config.yaml",
}
ROOTS = {".", "processor", "tests/unit"}
LINES = 600
LONG = 2  # how many modules `ALLOWED` may call long, each one loop or one life cycle
SHARED_PRIVATE = 8  # private classes of one module's own, which may share a name: `_Page`, `_Group`
LAYERS = 16
BY_KIND = 5  # in processor/judges, where judges are made

# Folders that hold data, one file per thing: their width is their content.
DATA = {
    "tests/support/wire/vectors": "a record batch per file, as brokers have written them",
    "docs": "a page per subject, grouped by the site's navigation",
    "docs/decisions": "a page per decision",
    "benchmarks/results": "a result per file",
}

# Lines of Python that a room may have. Only a commit that says why raises one.
BUDGETS = {
    "processor/commands": 5_300,
    "processor/demo": 1_120,
    "processor/inspection": 16_250,
    "processor/verify": 3_300,
    "processor/worker": 3_900,
    "processor/reset": 3_730,
    "processor/pipeline": 3_250,
    "processor/judges": 3_000,
    "processor/kafka": 7_900,
    "processor/state": 3_400,
    "processor/wire": 2_650,
    "processor/engine": 15_200,
    "processor/generator": 2_090,
    "processor/broker": 1_000,
    "processor/ops": 2_200,
    "processor/config": 1_600,
    "schemas": 5_850,
    "spark_sink": 17_000,
    "seqmark": 1_100,
    "packing": 820,  # a release and its checks (decision 38); it is not in the wheel
    "tests": 95_310,  # test_release.py, for what decision 38 adds; fillers.py
}

# What may stay: rule -> place -> how many findings.
ALLOWED: dict[str, dict[str, int]] = {}


class Finding(NamedTuple):
    """What breaks a rule, and where."""

    place: str
    message: str


# Kinds of judge: configuration of a mode, judge, evidence, grounds, and the log that keeps a state.
_KINDS = re.compile(
    r"\w*(Dedup|Grounds|Evidence|Judge|Judgement|Log|Mode|ReceiptText)"
    r"|(Insert|Bloom|Exact)Ids|(Partition|Scoped)Watermark"
)


@dataclass(frozen=True)
class Module:
    """A module of one of the programs.

    Attributes:
        path: From the root of the checkout.
        name: As it is imported.
        lines: How many it has.
        tree: Its syntax.
    """

    path: str
    name: str
    lines: int
    tree: ast.Module

    @property
    def folder(self) -> str:
        """Its folder below the program: ``processor/engine`` for all of the engine."""
        return "/".join(self.path.split("/")[:-1][:2])

    @cached_property
    def headline(self) -> str:
        """The first paragraph of its docstring."""
        return (ast.get_docstring(self.tree) or "").partition("\n\n")[0].strip()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its syntax."""
        return list(ast.walk(self.tree))

    def classes(self) -> Iterator[str]:
        """Yield the name of each class, inner ones with it."""
        yield from (node.name for node in self.nodes if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[str]:
        """Yield the name of each function and method."""
        yield from (
            node.name for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )


class House:
    """A checkout: its files, and its modules parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = sorted(_files(root))

    @cached_property
    def modules(self) -> dict[str, Module]:
        """Every module of the programs, by its name."""
        found = {}
        for path in self.files:
            if path.endswith(".py") and path.split("/")[0] in PROGRAMS:
                text = (self.root / path).read_text()
                name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                found[name] = Module(path, name, text.count("\n"), ast.parse(text))
        return found

    @cached_property
    def widths(self) -> dict[str, int]:
        """How many entries each folder has."""
        entries = defaultdict(set)
        for path in self.files:
            parts = path.split("/")
            for depth in range(len(parts)):
                entries["/".join(parts[:depth]) or "."].add(parts[depth])
        entries["."] -= FIXED
        return {folder: len(names) for folder, names in entries.items() if folder not in DATA}

    @cached_property
    def cycles(self) -> list[list[str]]:
        """Sets of modules that import each other, imports for types and inside functions included."""
        imports = {name: set(_imports(module, self.modules)) - {name} for name, module in self.modules.items()}
        reached = {name: _reached(name, imports) for name in imports}
        groups = {
            tuple(sorted(other for other in reached[name] if name in reached[other]))
            for name in imports
            if name in reached[name]
        }
        return [list(group) for group in sorted(groups)]

    @cached_property
    def shared_classes(self) -> dict[str, list[str]]:
        """Names of classes that stand in more than one module, with these modules' paths."""
        places = defaultdict(set)
        for module in self.modules.values():
            for name in module.classes():
                places[name].add(module.path)
        return {name: sorted(paths) for name, paths in sorted(places.items()) if len(paths) > 1}

    @cached_property
    def judged_by_kind(self) -> Counter[str]:
        """How often each folder of processor asks of which kind a judge, its mode, or what it says is."""
        found: Counter[str] = Counter()
        for module in self.modules.values():
            asked = sum(map(_asks_kind, module.nodes))
            if asked and module.path.startswith("processor/"):
                found[module.folder] += asked
        return found

    @cached_property
    def contracts(self) -> dict[str, dict[str, list[str]]]:
        """The import contracts, by their ids."""
        linter = tomllib.loads((self.root / "pyproject.toml").read_text())["tool"]["importlinter"]
        return {contract["id"]: contract for contract in linter["contracts"]}


def _files(root: Path) -> Iterator[str]:
    """Yield each file of a checkout that `.gitignore` does not name; whose checkout it is, git is not asked."""
    ignored = {".git"}
    if (root / ".gitignore").exists():
        lines = (root / ".gitignore").read_text().splitlines()
        ignored |= {line.strip("/") for line in lines if line and not line.startswith("#")}
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if not _matches(inside / name, ignored)]
        yield from ((inside / name).as_posix() for name in names if not _matches(inside / name, ignored))


def _matches(path: Path, patterns: set[str]) -> bool:
    """Return whether a path is ignored: by its name, or from the root on."""
    return any(fnmatch(path.name, pattern) or path.as_posix() == pattern for pattern in patterns)


def _imports(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Yield the modules of the programs that a module names in its imports."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in modules or node.module in modules:
                    yield full if full in modules else node.module


def _reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that ``start`` imports, directly or not."""
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = imports[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def _asks_kind(node: ast.AST) -> bool:
    """Return whether a node asks of which kind a judge is: ``isinstance``, or a ``case`` of ``match``."""
    if isinstance(node, ast.MatchClass):
        asked: list[ast.AST] = [node.cls]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        asked = list(ast.walk(node.args[1]))
    else:
        return False
    names = [part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in asked]
    return any(_KINDS.fullmatch(name) for name in names)


def folder_width(house: House) -> Iterator[Finding]:
    """No folder has more than 15 entries, no root more than 20."""
    for folder, entries in house.widths.items():
        most = ROOT_ENTRIES if folder in ROOTS else ENTRIES
        if entries > most:
            yield Finding(
                folder, f"has {entries} entries, {most} at most: what belongs together needs a folder"
            )


def module_size(house: House) -> Iterator[Finding]:
    """No module has more than 600 lines."""
    for module in house.modules.values():
        if module.lines > LINES:
            yield Finding(module.path, f"has {module.lines} lines, {LINES} at most: split it")


def room_budget(house: House) -> Iterator[Finding]:
    """No room has more lines than its budget."""
    for room, most in BUDGETS.items():
        paths = [path for path in house.files if path.startswith(f"{room}/") and path.endswith(".py")]
        lines = sum((house.root / path).read_bytes().count(b"\n") for path in paths)
        if lines > most:
            yield Finding(room, f"has {lines:,} lines, {most:,} at most: make one of what is there twice")


def import_cycles(house: House) -> Iterator[Finding]:
    """No modules import each other."""
    for cycle in house.cycles:
        yield Finding(cycle[0], f"is in a cycle of imports: {', '.join(cycle)}")


def class_names(house: House) -> Iterator[Finding]:
    """A public class has a name of its own; few private ones share one."""
    private = [name for name in house.shared_classes if name.startswith("_")]
    for name, paths in house.shared_classes.items():
        if name not in private:
            yield Finding(name, f"is a class in more than one module: {', '.join(paths)}")
    if len(private) > SHARED_PRIVATE:
        yield Finding(
            "private classes",
            f"{len(private)} names are shared, {SHARED_PRIVATE} at most: {', '.join(private)}",
        )


def gone_words(house: House) -> Iterator[Finding]:
    """Names that were replaced do not come back; a leading underscore makes no other name."""
    for module in house.modules.values():
        stem = module.name.rpartition(".")[2]
        for names, gone in (
            ([stem], GONE_MODULES),
            (module.classes(), GONE_CLASSES),
            (module.functions(), GONE_FUNCTIONS),
        ):
            for name in names:
                for word in gone:
                    if word.was == name.lstrip("_") and module.path.startswith(word.below):
                        yield Finding(module.path, f"{name} is called {word.now} now")


def headlines(house: House) -> Iterator[Finding]:
    """The docstring of a module begins with a statement."""
    for module in house.modules.values():
        if not module.headline:
            yield Finding(module.path, "has no docstring that could stand in `ls`")
        elif "?" in module.headline:
            yield Finding(module.folder, f"{module.path} asks: {module.headline.partition('?')[0]}?")


def judged_by_kind(house: House) -> Iterator[Finding]:
    """Only where judges are made does code ask of which kind one is."""
    for folder, asked in house.judged_by_kind.items():
        if folder != "processor/judges":
            yield from [Finding(folder, f"asks {asked} times of which kind a judge or its mode is")] * asked
        elif asked > BY_KIND:
            yield from [
                Finding(folder, f"asks {asked} times, {BY_KIND} at most: give the base class a method")
            ] * asked


def layers(house: House) -> Iterator[Finding]:
    """Few layers, and all of processor in them."""
    count = len(house.contracts["layers"]["layers"])
    if count > LAYERS:
        yield Finding("pyproject.toml", f"has {count} layers, {LAYERS} at most: join neighbours in a folder")


def spark_allow_list(house: House) -> Iterator[Finding]:
    """The Spark side may import errors of processor, and nothing that is not allowed by name."""
    children = {".".join(name.split(".")[:2]) for name in house.modules if name.startswith("processor.")}
    forbidden = set(house.contracts["spark-is-apart"]["forbidden_modules"])
    for child in sorted(children - {"processor.errors"} - forbidden):
        yield Finding("pyproject.toml", f'the contract "spark-is-apart" has to forbid {child}')


def engine_environment(house: House) -> Iterator[Finding]:
    """Nothing of the engine reads the environment but `processor.engine.jit`, which decides what to compile."""
    for module in house.modules.values():
        if module.path.startswith("processor/engine/") and module.name != "processor.engine.jit":
            names = (getattr(node, "attr", getattr(node, "id", "")) for node in module.nodes)
            if any(name in {"environ", "getenv"} for name in names):
                yield Finding(module.path, "reads the environment: let its caller pass the value")


def glossary(house: House) -> Iterator[Finding]:
    """Each word of the glossary has one meaning, and none has gone."""
    page = "docs/architecture.md"
    _, _, section = (house.root / page).read_text().partition("\n## Glossary\n")
    rows = re.findall(r"^\| *([^|]+?) *\|", section.partition("\n## ")[0], re.MULTILINE)
    if len(rows) < 3:  # its head, the line below it, and a word
        yield Finding(page, "has no table of words under the heading `Glossary`")
    gone = {word.was.lower(): word.now for word in (*GONE_MODULES, *GONE_CLASSES) if not word.below}
    for word, times in Counter(re.sub(r"[`*]", "", row).lower() for row in rows[2:]).items():
        if times > 1:
            yield Finding(page, f"explains {word!r} {times} times")
        if word in gone:
            yield Finding(page, f"explains {word!r}, which is called {gone[word]} now")


RULES: tuple[Callable[[House], Iterator[Finding]], ...] = (
    folder_width,
    module_size,
    room_budget,
    import_cycles,
    class_names,
    gone_words,
    headlines,
    judged_by_kind,
    layers,
    spark_allow_list,
    engine_environment,
    glossary,
)


def problems(house: House, allowed: dict[str, dict[str, int]] = ALLOWED) -> Iterator[str]:
    """Yield what breaks the rules, and what `ALLOWED` allows without need."""
    for rule in RULES:
        name = rule.__name__
        may_stay = allowed.get(name, {})
        found = list(rule(house))
        counts = Counter(finding.place for finding in found)
        for finding in dict.fromkeys(found):
            if counts[finding.place] > may_stay.get(finding.place, 0):
                yield f"{name}: {finding.place}: {finding.message}"
        for place, most in may_stay.items():
            if counts[place] < most:
                yield f"{name}: {place}: ALLOWED has {most} and {counts[place]} are left: take the rest off"
    if len(allowed.get("module_size", ())) > LONG:
        yield f"module_size: ALLOWED names more than {LONG} modules"


def table(house: House) -> list[tuple[str, str]]:
    """Return the numbers of the house, as pairs of a measure and its value."""
    below = {folder: count for folder, count in house.widths.items() if folder.startswith("processor/")}
    widest = max(below, key=lambda folder: below[folder], default="")
    long = [module for module in house.modules.values() if module.lines > LINES]
    private = sum(name.startswith("_") for name in house.shared_classes)
    asked = house.judged_by_kind
    questions = sum("?" in module.headline for module in house.modules.values())
    lines = sum(module.lines for module in house.modules.values() if module.path.startswith("processor/"))
    return [
        ("entries at the root of `processor/`", str(house.widths["processor"])),
        ("widest folder below it", f"{below.get(widest, 0)} (`{widest}`)"),
        ("layers in the import contract", str(len(house.contracts["layers"]["layers"]))),
        ("modules in the largest import cycle", str(max(map(len, house.cycles), default=0))),
        ("modules above 600 lines", str(len(long))),
        ("class names used in more than one module", f"{len(house.shared_classes)}, {private} of them private"),
        (
            "questions which kind a judge is",
            f"{sum(asked.values())}, {asked['processor/judges']} of them where judges are made",
        ),
        ("modules that begin with a question", str(questions)),
        ("lines of `processor/`", f"{lines:,}"),
    ]


def main(arguments: list[str]) -> int:
    """Check this checkout, or print the table of those at the paths that are given, a column for each."""
    if arguments:
        columns = [dict(table(House(Path(path)))) for path in arguments]
        for measure in columns[0]:
            sys.stdout.write(f"| {measure} | {' | '.join(column[measure] for column in columns)} |\n")
        return 0
    found = list(problems(House(ROOT)))
    sys.stdout.writelines(f"{problem}\n" for problem in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
