"""What a collector is sent is what Prometheus scrapes, and a collector that fails holds up nothing."""

from __future__ import annotations

import asyncio
import sys
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from processor.errors import MissingExtraError
from processor.ops.metrics import Metrics
from processor.ops.push import pushed, require_push
from schemas.config.worker import WorkerOptions
from tests.support.kafka.topics import until
from tests.support.suite.collector import Collector, Labels, histograms, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OPTIONS = WorkerOptions(application_id="clicks", group_instance_id="worker-1")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.expect("orders", ["field_missing"])
    made.records.labels("orders", "pass").inc(41)
    made.records.labels("orders", "duplicate").inc(3)
    made.begin("orders", 7, 100, 142)
    for seconds in (0.004, 0.02, 0.02, 99.0):
        made.commit_seconds.labels("orders").observe(seconds)
    return made


def push(options: WorkerOptions, metrics: Metrics, environ: Mapping[str, str]) -> None:
    async def nothing() -> None:
        async with pushed(options, metrics, environ):
            pass

    asyncio.run(nothing())


def scraped(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    """Return what /metrics says, without the times at which series were made."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def received(collector: Collector) -> dict[tuple[str, Labels], float]:
    """Return the last push as /metrics would say it."""
    found: dict[tuple[str, Labels], float] = {}
    for name, metric in collector.metrics.items():
        for labels, value in numbers(metric).items():
            found[name, labels] = value
        for labels, point in histograms(metric).items():
            found[f"{name}_count", labels], found[f"{name}_sum", labels] = point.count, point.sum
            bounds = [*map(str, point.explicit_bounds), "+Inf"]
            for bound, count in zip(bounds, accumulate(point.bucket_counts), strict=True):
                found[f"{name}_bucket", labels | {("le", bound)}] = count
    return found


def test_a_push_holds_every_number_of_a_scrape(collector: Collector, metrics: Metrics) -> None:
    push(OPTIONS.model_copy(update={"otel_endpoint": collector.endpoint}), metrics, {})

    assert received(collector) == scraped(metrics)
    sent = collector.metrics
    assert sent["seqmark_records_total"].sum.is_monotonic
    assert sent["seqmark_records_total"].sum.aggregation_temporality == 2  # cumulative
    assert sent["seqmark_lag_records"].WhichOneof("data") == "gauge"
    assert sent["seqmark_commit_seconds"].histogram.aggregation_temporality == 2
    assert all(metric.description for metric in sent.values())


@pytest.mark.parametrize(
    "address", ["collector:4318", "http://me:secret@collector", "http://c/?key=x", "grpc://c"]
)
def test_an_endpoint_is_an_address_without_credentials(address: str) -> None:
    with pytest.raises(ValidationError, match="such as"):
        WorkerOptions(application_id="clicks", otel_endpoint=address)


def test_the_sender_says_who_it_is_and_the_environment_knows_better(
    collector: Collector, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OPTIONS.model_copy(update={"otel_endpoint": f"{collector.endpoint}/"})
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")

    push(options, metrics, {})
    first = collector.resource
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    push(options, metrics, {})

    assert first["service.name"] == "clicks"
    assert first["service.instance.id"] == "worker-1"
    assert first["deployment.environment.name"] == "test"
    assert collector.resource["service.name"] == "mine"


def test_the_variables_of_opentelemetry_are_enough(
    collector: Collector, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    push(OPTIONS, metrics, environ)

    assert received(collector) == scraped(metrics)
    assert collector.headers["x-key"] == "secret"


@pytest.mark.parametrize(
    "more",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_switches_it_off_is_heeded(collector: Collector, metrics: Metrics, more: dict[str, str]) -> None:
    push(OPTIONS, metrics, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, **more})
    push(OPTIONS, metrics, {})

    assert collector.requests == []


def test_each_interval_has_its_push_and_a_fault_is_said_once(
    collector: Collector, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "processor.ops.push")
    collector.status = 400
    options = OPTIONS.model_copy(update={"otel_endpoint": collector.endpoint})

    async def run() -> None:
        async with pushed(options, metrics, {"OTEL_METRIC_EXPORT_INTERVAL": "10"}):
            await asyncio.to_thread(until, lambda: caplog.messages, "a fault is said")
            collector.status = 200
            await asyncio.to_thread(until, lambda: len(collector.requests) > 2, "pushes arrive")

    asyncio.run(run())

    fault, well = caplog.messages
    assert fault.startswith("metrics cannot be pushed, tried again every 0.01 s: ")
    assert "400" in fault
    assert well == "metrics are pushed again"


def test_without_the_extra_a_configured_endpoint_is_refused_and_one_of_the_environment_told(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk", raising=False)
    endpoint = "http://127.0.0.1:9"

    with pytest.raises(MissingExtraError, match=r"needs the extra: pip install 'seqmark\[otel\]'"):
        require_push(OPTIONS.model_copy(update={"otel_endpoint": endpoint}))
    require_push(OPTIONS)
    push(OPTIONS, metrics, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})

    (told,) = caplog.messages
    assert "no metrics are pushed: that needs the extra: pip install 'seqmark[otel]'" in told
