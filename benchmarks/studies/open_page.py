"""Measures what the escape gauge and an open dashboard cost: ``python -m benchmarks.studies.open_page``.

The same job with ids, in turns: a worker without web server and gauge, one with the gauge, and one with both
that is asked for the status of all workers every two seconds, as an open page asks. The figure is that of the
benchmark, records per CPU second of the process in the second half of a run; what comes out is checked as
there. Ratios are those of medians over the rounds. Arguments: records, and rounds.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from benchmarks.cases import spread
from benchmarks.cluster import create, remove
from benchmarks.load import Load, produce
from benchmarks.measure.cost import measure
from benchmarks.peers import Job
from benchmarks.peers.seqmark import Seqmark
from benchmarks.studies.spark import free_port
from processor.broker.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = 4_000_000
ROUNDS = 3
EVERY_S = 2.0
"""As the page asks."""
PARTITIONS = 4
GOAL = 0.97
"""Share of the rate that is to be left with both."""


class Variant(NamedTuple):
    """How a worker is run."""

    name: str
    gauge: bool
    page: bool


VARIANTS = (
    Variant("neither", False, False),
    Variant("gauge", True, False),
    Variant("gauge and page", True, True),
)


class _Worker(Seqmark):
    """The worker of this checkout, as a variant has it."""

    def __init__(self, variant: Variant, port: int) -> None:
        super().__init__()
        self._variant = variant
        self._port = port

    @override
    def environment(self, job: Job) -> dict[str, str]:
        return {
            **super().environment(job),
            "SEQMARK_WORKER__WEB_PORT": str(self._port if self._variant.page else 0),
            "SEQMARK_WORKER__ESCAPE_GAUGE": str(self._variant.gauge).lower(),
        }


@contextmanager
def _asked(port: int, answers: list[int]) -> Iterator[None]:
    """Ask for the status while the block runs, as a page does; ``answers`` gets the size of each."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(EVERY_S):
            # It is starting, or has ended.
            with (
                suppress(OSError),
                urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/status.json?workers=all", timeout=EVERY_S
                ) as got,
            ):
                answers.append(len(got.read()))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _run(broker: EmbeddedBroker, source: str, load: Load, variant: Variant, number: int) -> tuple[float, int]:
    """Return records per CPU second, and how often it was asked."""
    group, port, answers = f"page-{number}", free_port(), list[int]()
    folder = Path(tempfile.mkdtemp(prefix="seqmark-page-"))
    servers, sink = broker.bootstrap_servers, f"{group}-sink"
    job = Job(servers, source, sink, group, PARTITIONS, "exactly_once", folder, ids=load.ids)
    asyncio.run(create(servers, sink, PARTITIONS))
    try:
        with _asked(port, answers):
            figures = measure(_Worker(variant, port), job, load, None)
    finally:
        asyncio.run(remove(servers, group))
        shutil.rmtree(folder, ignore_errors=True)
    return figures.half_rate, len(answers)


def run_open_page(records: int = RECORDS, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Measure all variants in turns; returns their rates."""
    load, rates = (
        spread(Load(records=records, ids="text")),
        {variant.name: list[float]() for variant in VARIANTS},
    )
    with EmbeddedBroker() as broker:
        asyncio.run(create(broker.bootstrap_servers, "page-source", PARTITIONS))
        asyncio.run(produce(broker.bootstrap_servers, "page-source", load, lambda _: None))
        _Worker(VARIANTS[0], 0).prepare(print)
        for number in range(rounds * len(VARIANTS)):
            # Each comes first, second and third in a round: machines get slower, and faster.
            variant = VARIANTS[(number + number // len(VARIANTS)) % len(VARIANTS)]
            rate, asked = _run(broker, "page-source", load, variant, number)
            rates[variant.name].append(rate)
            print(f"{variant.name}: {rate:,.0f} records per CPU second, asked {asked} times", flush=True)
    return rates


if __name__ == "__main__":
    found = {name: median(each) for name, each in run_open_page(*map(int, sys.argv[1:3])).items()}
    for name, rate in found.items():
        print(f"{name}: {rate:,.0f}, {rate / found['neither']:.1%} of neither (goal {GOAL:.0%})")
