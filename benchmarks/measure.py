"""What did a worker cost? CPU seconds of its whole process tree, wall time, commit times, memory.

The second half is told apart from the whole run: start-up and first fetches are no part of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SAMPLE_S = 0.1
"""Rendering the metrics costs the worker about a millisecond: one percent."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a running worker."""

    at_s: float
    cpu_s: float
    records: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a run cost.

    Attributes:
        records: Taken in.
        ready_s: From the start of the process until /ready answered 200.
        wall_s: From the start of the process until everything was committed.
        cpu_s: Of the whole process tree, start-up included.
        half_records: Taken in during the second half.
        half_wall_s: Of the second half.
        half_cpu_s: Of the second half.
        commit_p50_ms: By the worker's own histogram.
        commit_p99_ms: Likewise.
        peak_rss_bytes: Of the process tree.
        verdicts: Records by verdict.
    """

    records: int
    ready_s: float
    wall_s: float
    cpu_s: float
    half_records: int
    half_wall_s: float
    half_cpu_s: float
    commit_p50_ms: float
    commit_p99_ms: float
    peak_rss_bytes: int
    verdicts: Mapping[str, int]


def run_worker(config: Path, port: int, expected: int, folder: Path) -> Result:
    """Run ``seqmark worker`` until it has committed all records, and measure it.

    Args:
        config: Its config; its web port must be ``port``.
        port: Where /metrics is.
        expected: Records in the source.
        folder: The worker's log goes to ``worker.log`` in it.

    Raises:
        RuntimeError: The worker failed.
    """
    command = [sys.executable, "-m", "processor", "worker", "-c", str(config)]
    started = time.monotonic()
    ready_s = 0.0
    samples: list[Sample] = []
    text = ""
    with (folder / "worker.log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        root = psutil.Process(process.pid)
        while not samples or samples[-1].records < expected:
            if process.poll() is not None:
                raise RuntimeError(f"the worker ended by itself; see {folder / 'worker.log'}")
            if not ready_s and _get(port, "/ready") is not None:
                ready_s = time.monotonic() - started
            scraped = _get(port, "/metrics")
            if scraped is not None:
                text = scraped
                samples.append(_sample(root, time.monotonic() - started, text))
            time.sleep(SAMPLE_S if ready_s else 0.02)
        process.terminate()
        if process.wait(timeout=15):
            raise RuntimeError(f"SIGTERM ended the worker with exit code {process.returncode}")
    return _result(samples, text, ready_s)


def _get(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return None


def _sample(root: psutil.Process, at_s: float, text: str) -> Sample:
    cpu, rss = 0.0, 0
    for process in (root, *root.children(recursive=True)):
        times = process.cpu_times()
        cpu += times.user + times.system
        rss += process.memory_info().rss
    return Sample(at_s, cpu, sum(_verdicts(text).values()), rss)


def _verdicts(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "seqmark_records_total":
                verdict = sample.labels["verdict"]
                found[verdict] = found.get(verdict, 0) + int(sample.value)
    return found


def _result(samples: list[Sample], text: str, ready_s: float) -> Result:
    last = samples[-1]
    middle = next(sample for sample in samples if sample.records >= last.records / 2)
    return Result(
        records=int(last.records),
        ready_s=ready_s,
        wall_s=last.at_s,
        cpu_s=last.cpu_s,
        half_records=int(last.records - middle.records),
        half_wall_s=last.at_s - middle.at_s,
        half_cpu_s=last.cpu_s - middle.cpu_s,
        commit_p50_ms=quantile(text, "seqmark_commit_seconds", 0.5) * 1000,
        commit_p99_ms=quantile(text, "seqmark_commit_seconds", 0.99) * 1000,
        peak_rss_bytes=max(sample.rss_bytes for sample in samples),
        verdicts=_verdicts(text),
    )


def quantile(text: str, name: str, share: float) -> float:
    """Return a quantile of a Prometheus histogram in its unit, linear within the bucket."""
    buckets: list[tuple[float, float]] = []
    for family in text_string_to_metric_families(text):
        if family.name == name:
            buckets += [
                (float(sample.labels["le"]), sample.value)
                for sample in family.samples
                if sample.name.endswith("_bucket")
            ]
    buckets.sort()
    if not buckets or not buckets[-1][1]:
        return float("nan")
    wanted = buckets[-1][1] * share
    below, low = 0.0, 0.0
    for upper, count in buckets:
        if count >= wanted:
            if upper == float("inf"):
                return low
            return low + (upper - low) * (wanted - below) / (count - below)
        below, low = count, upper
    return low
