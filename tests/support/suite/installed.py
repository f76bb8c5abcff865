"""Installs Seqmark's wheel as a user does: into an environment of its own, with what it asks for and no more.

The wheel is installed by pip. What it depends on is not fetched again: the environment sees a folder of links
into this environment's packages, exactly those that the wheel's metadata lead to. So a package that is imported
and not declared is missing there, as are those of the extras.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
import zipfile
from collections import defaultdict
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.kafka.topics import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from email.message import Message

ROOT = Path(__file__).parents[3]
WAIT_S = 300


class Built(NamedTuple):
    """What `make dist` makes."""

    wheel: Path
    sdist: Path


class Installed:
    """An environment with the wheel in it.

    Args:
        folder: Where it is made.
        wheel: What is installed, without extras.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        (packages,) = folder.glob("lib/python*/site-packages")
        install = [
            "--no-deps",
            "--no-index",
            "--no-compile",
            "--quiet",
            "--disable-pip-version-check",
            str(wheel),
        ]
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", *install],
            check=True,
            timeout=WAIT_S,
        )
        needed = folder / "needed"
        link(distributions(metadata(wheel), []), needed)
        (packages / "needed.pth").write_text(f"{needed}\n")

    def run(
        self, program: str, *arguments: str, folder: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python`` or ``seqmark`` of the environment in a folder."""
        inherited = environment({})
        inherited.pop("PYTHONPATH", None)
        return subprocess.run(
            [self.bin / program, *arguments],
            cwd=folder,
            env={**inherited, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )


def build(folder: Path, source: Path = ROOT, *targets: str, env: Mapping[str, str] | None = None) -> Path:
    """Build wheel and sdist, or only some targets; return the folder that holds them. Nothing is fetched."""
    chosen = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *chosen],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600", **(env or {})},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=WAIT_S,
    )
    return folder


def metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def distributions(wheel: Message, extras: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """Return what a wheel asks for, directly and not, as it is installed here.

    Raises:
        AssertionError: What is installed here is outside of the range that is asked for.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    ahead = [(text, frozenset(extras)) for text in wheel.get_all("Requires-Dist", [])]
    seen: set[tuple[str, frozenset[str]]] = set()
    while ahead:
        text, wanted = ahead.pop()
        asked = Requirement(text)
        if (text, wanted) in seen or not any(_applies(asked, extra) for extra in wanted or {""}):
            continue
        seen.add((text, wanted))
        name = canonicalize_name(asked.name)
        there = found.setdefault(name, importlib.metadata.distribution(name))
        assert asked.specifier.contains(there.version, prereleases=True), f"{text}: {there.version} is tested"
        ahead += [(each, frozenset(asked.extras)) for each in there.requires or ()]
    return list(found.values())


def _applies(asked: Requirement, extra: str) -> bool:
    return asked.marker is None or asked.marker.evaluate({"extra": extra})


def link(packages: Iterable[importlib.metadata.Distribution], folder: Path) -> None:
    """Fill a folder with links to all that some packages have installed."""
    owners = _owners()
    for package in packages:
        for top, inside in _tops(package).items():
            if len(owners[top]) == 1:
                _link(Path(str(package.locate_file(top))), folder / top)
            else:  # a namespace: each has files of its own in it
                for file in inside:
                    _link(Path(str(package.locate_file(file))), folder / file)


def _owners() -> Mapping[str, set[str]]:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for package in importlib.metadata.distributions():
        for top in _tops(package):
            owners[top].add(package.name)
    return owners


def _tops(package: importlib.metadata.Distribution) -> Mapping[str, list[str]]:
    """Return the files of a package by the entry of site-packages that they are below."""
    tops: defaultdict[str, list[str]] = defaultdict(list)
    for file in _files(package):
        tops[file.split("/")[0]].append(file)
    return tops


def _files(package: importlib.metadata.Distribution) -> Iterator[str]:
    for file in package.files or ():
        if file.parts[0] not in {"..", "__pycache__", "bin"} and not file.is_absolute():
            yield file.as_posix()


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.exists() and not target.exists():
        target.symlink_to(source)
