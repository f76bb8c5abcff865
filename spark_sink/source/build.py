"""Says which Seqmark a Python has: its version, and a hash of the sources that a task may run.

A task is sent by the names of its functions: what they do is up to the executor's own sources. Those of one
version may differ, so that the hash decides, and the version is for people.

    in the tree      of processor/, schemas/ and spark_sink/
    in the wheel     of seqmark/, where these three are
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from processor import errors
from schemas import config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

_PACKAGES = sorted({name.partition(".")[0] for name in (errors.__name__, config.__name__, __name__)})


class SeqmarkBuild(NamedTuple):
    """The Seqmark of one Python."""

    version: str
    """Empty where no package is installed."""
    sources: str
    """The hash of its sources."""


@cache
def own_build() -> SeqmarkBuild:
    """Return the Seqmark of this process; takes some 50 ms once."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path, source in _sources(files(package), package):
            digest.update(f"{path}\n{len(source)}\n".encode())
            digest.update(source)
    try:
        installed = version("seqmark")
    except PackageNotFoundError:
        installed = ""
    return SeqmarkBuild(installed, digest.hexdigest())


def task_build(_: int) -> tuple[str, ...]:
    """Return the Seqmark of an executor, in a task of it.

    As a plain tuple: another version's class may have other fields.

    Raises:
        ImportError: Something that the source's tasks need is not there.
    """
    from spark_sink.source import task  # noqa: F401, PLC0415 - kernels and pyarrow; whether that works is asked

    return tuple(own_build())


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the modules below a folder, which may lie in an archive: path and content, in one order."""
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        inside = f"{path}/{each.name}"
        if each.is_dir():
            yield from _sources(each, inside)
        elif each.name.endswith(".py"):
            yield inside, each.read_bytes()
