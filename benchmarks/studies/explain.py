"""Measures how soon `seqmark explain` answers: ``python -m benchmarks.studies.explain [RECORDS]``.

A load of RECORDS (a million, where none are named) with ids, five in a hundred sent again, is judged by a
worker with receipts. Then random positions are asked for, each over connections of its own, opened within the
time and with nothing known from the question before: medians and the slowest of twenty, for dropped records and
for those that passed. ``GET /ids`` of a live worker is asked for ids of such records. One object per line, and
at the end what a whole command takes, Python's start and imports included.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cluster import cluster, create
from benchmarks.load import Load, produce
from benchmarks.measure.processes import running
from benchmarks.peers import ID_HEADER, FailedError
from benchmarks.studies.spark import free_port
from processor.commands.console import say
from processor.config.load import load as load_config
from processor.inspection.explain.explainer import explain_position
from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.inspection.explain.story import Story

RECORDS = 1_000_000
ASKED = 100
"""Of each kind: a median moves little then, and the slowest of twenty is not a single one."""
MOST_TRIES = 40 * ASKED
"""One position in twenty was dropped."""
START_S = 120.0
SOURCE, SINK, DUPLICATES = "bench-explain-raw", "bench-explain-clean", "bench-explain-duplicates"
_CONFIG = """\
[kafka]
bootstrap_servers = "{servers}"

[worker]
application_id = "bench-explain"
state_dir = "{folder}/state"
web_port = {port}

[[pipelines]]
name = "bench"
source = "{source}"
sink = "{sink}"
duplicates = "{duplicates}"

[pipelines.dedup]
mode = "insert-id"
id = [{{ from = "header", name = "{header}" }}]
window = "7d"
"""


def main(records: int) -> None:
    """Run it."""
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as folder, cluster(say) as (servers, _):
        path, port = Path(folder), free_port()
        names = {"source": SOURCE, "sink": SINK, "duplicates": DUPLICATES, "header": ID_HEADER}
        config = path / "explain.toml"
        config.write_text(_CONFIG.format(servers=servers, folder=folder, port=port, **names))
        load = Load(records=records, ids="text", far=True)
        asyncio.run(_fill(servers, load))
        worker = [sys.executable, "-m", "processor", "worker", "-c", str(config)]
        ended = subprocess.run([*worker, "--drain"], capture_output=True, text=True, check=False)
        if ended.returncode:
            raise FailedError(ended.stderr)
        dropped, passed = _asked(config, load)
        _tell("explain, dropped", records, [took for took, _ in dropped])
        _tell("explain, passed", records, [took for took, _ in passed])
        with running(worker, {}, path / "worker.log"):
            _tell("GET /ids", records, list(_by_id(port, [story for _, story in passed])))
        ref = str(passed[0][1].asked)
        command = [sys.executable, "-m", "processor", "explain", "-c", str(config), ref]
        began_s = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        _tell("the command, once", records, [time.perf_counter() - began_s])


async def _fill(servers: str, load: Load) -> None:
    for topic in (SOURCE, SINK, DUPLICATES):
        await create(servers, topic, load.partitions)
    await produce(servers, SOURCE, load)


def _asked(config: Path, load: Load) -> tuple[list[tuple[float, Story]], list[tuple[float, Story]]]:
    """Return seconds and answers, of dropped records and of those that passed."""
    settings, chance = load_config(config), random.Random(load.seed)  # noqa: S311 - draws what is measured
    told: dict[Outcome, list[tuple[float, Story]]] = {Outcome.DUPLICATE: [], Outcome.PASSED: []}
    for _ in range(MOST_TRIES):
        partition = chance.randrange(load.partitions)
        ref = RecordRef(SOURCE, partition, chance.randrange(load.share(partition)))
        began_s = time.perf_counter()
        story = asyncio.run(explain_position(settings, ref))
        took_s = time.perf_counter() - began_s
        if story.outcome not in told or story.problems:
            raise FailedError(story.sentence)
        if len(told[story.outcome]) < ASKED:
            told[story.outcome].append((took_s, story))
        if all(len(each) == ASKED for each in told.values()):
            return told[Outcome.DUPLICATE], told[Outcome.PASSED]
    raise FailedError(f"of {MOST_TRIES} positions too few were dropped: {len(told[Outcome.DUPLICATE])}")


def _by_id(port: int, stories: list[Story]) -> Iterator[float]:
    """Yield how long a live worker took for the id of each record."""
    urls = []
    for story in stories:
        (word,) = story.grounds.id or []
        query = urllib.parse.urlencode({"pipeline": "bench", "id": word})
        urls.append(f"http://127.0.0.1:{port}/ids?{query}")
    deadline_s = time.monotonic() + START_S
    while not _ready(port):
        if time.monotonic() > deadline_s:
            raise FailedError(f"the worker is not ready in {START_S:.0f} s")
        time.sleep(0.1)
    for url in urls:
        began_s = time.perf_counter()
        with urllib.request.urlopen(url, timeout=START_S) as answer:  # noqa: S310 - of this machine
            answer.read()
        yield time.perf_counter() - began_s


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _tell(what: str, records: int, took_s: list[float]) -> None:
    found = np.array(took_s) * 1000
    figures = {
        "median_ms": round(float(np.median(found)), 1),
        "p95_ms": round(float(np.percentile(found, 95)), 1),
    }
    print(json.dumps({"what": what, "records": records, "asked": len(took_s), **figures}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else RECORDS)
