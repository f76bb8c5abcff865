"""Pushes a worker's metrics to an OpenTelemetry collector, where that is configured.

A thread of its own reads the registry once per interval, as a scrape of /metrics does: nothing is added to the
way of a record, and a collector that is away holds nothing up. What did not arrive is not kept: counters and
histograms are cumulative, so the next push has it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from processor.ops.extras import install, missing, require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from processor.ops.metrics import Metrics
    from processor.ops.otel import OtlpSender
    from schemas.config.worker import WorkerOptions

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""OpenTelemetry's own default, and as often as most collect."""
LAST_S = 1.0
"""For the push at the end: with what else a stop may take it has to be within 10 s."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"


def require_push(options: WorkerOptions) -> None:
    """Refuse an endpoint in the config where the packages that push are not installed.

    Raises:
        MissingExtraError: They are not.
    """
    if options.otel_endpoint is not None:
        require("worker.otel_endpoint", "otel")


@asynccontextmanager
async def pushed(
    options: WorkerOptions, metrics: Metrics, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[None]:
    """Push while the block runs, and once more when it ends; do nothing where no endpoint is configured.

    Raises:
        MissingExtraError: As `require_push`.
    """
    require_push(options)
    if not _is_wanted(options, environ):
        yield
        return
    from processor.ops.otel import OtlpSender  # noqa: PLC0415 - an extra

    who = {
        "service.name": options.application_id,
        "service.namespace": "seqmark",
        "service.instance.id": options.group_instance_id or f"{socket.gethostname()}-{os.getpid()}",
    }
    push = _Push(OtlpSender(metrics.registry, options.otel_endpoint, who), _interval_s(environ))
    try:
        yield
    finally:
        await asyncio.to_thread(push.end)


def _is_wanted(options: WorkerOptions, environ: Mapping[str, str]) -> bool:
    """Return whether to push. An environment that is not ours alone stops no worker: it is told why not."""
    if options.otel_endpoint is not None:
        return True
    named = next((name for name in _ENDPOINTS if environ.get(name)), None)
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if named is None or off or environ.get("OTEL_METRICS_EXPORTER", "otlp") != "otlp":
        return False
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        log.warning("%s is set, but no metrics are pushed: only %s is spoken here", named, _SPOKEN)
    elif missing("otel"):
        log.warning("%s is set, but no metrics are pushed: that %s", named, install(["otel"]))
    else:
        return True
    return False


def _interval_s(environ: Mapping[str, str]) -> float:
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    return int(text) / 1000 if text.isdecimal() and int(text) else INTERVAL_S


class _Push:
    """A thread that sends every so many seconds, and a last time when it is ended."""

    def __init__(self, sender: OtlpSender, every_s: float) -> None:
        self._sender = sender
        self._every_s = every_s
        self._ended = threading.Event()
        self._failing = False
        # A daemon: whatever it waits for, the process ends.
        self._thread = threading.Thread(target=self._run, name="otel", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Send what there is now; give up after `LAST_S`."""
        self._ended.set()
        self._thread.join(LAST_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(self._every_s)
            self._say(self._sender.send())

    def _say(self, fault: str | None) -> None:
        """Log a change, not each push."""
        if fault is not None and not self._failing:
            log.warning("metrics cannot be pushed, tried again every %g s: %s", self._every_s, fault)
        elif fault is None and self._failing:
            log.info("metrics are pushed again")
        self._failing = fault is not None
