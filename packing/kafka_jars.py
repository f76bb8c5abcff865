"""Writes the list of the embedded broker's jars with their hashes: ``python -m packing.kafka_jars``.

It lets Ivy resolve them, or takes what it has resolved before, and names each as a Maven repository does. The
list has to follow `processor.broker.jars.KAFKA_JARS`: `make jars`.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import click

from processor.broker.jars import KAFKA_JARS, resolve
from processor.broker.locked_jars import LOCK
from processor.paths import cache_dir

if TYPE_CHECKING:
    from pathlib import Path


def jar_list() -> dict[str, object]:
    """Return the list as it must be.

    Raises:
        BrokerError: Ivy cannot resolve the jars.
    """
    jars = resolve(KAFKA_JARS, "kafka", say=lambda text: click.echo(text, err=True))
    hashes = {_path(jar): hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}
    return {"coordinates": list(KAFKA_JARS), "jars": dict(sorted(hashes.items()))}


def _path(jar: Path) -> str:
    # Ivy keeps what it has fetched as ORGANISATION/MODULE/jars/FILE, or in `bundles`.
    (kept,) = (cache_dir() / "ivy").glob(f"*/*/*/{jar.name}")
    organisation, module = kept.parts[-4:-2]
    revision = jar.stem.removeprefix(f"{module}-")
    return f"{organisation.replace('.', '/')}/{module}/{revision}/{jar.name}"


if __name__ == "__main__":
    LOCK.write_text(json.dumps(jar_list(), indent=1) + "\n", encoding="utf-8")
    click.echo(f"wrote {LOCK.name}", err=True)
