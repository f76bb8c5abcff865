"""Sends the metrics of a registry by OTLP over HTTP, once. The only importer of opentelemetry.

Names, labels and meanings are those of /metrics: a counter is a cumulative sum, a histogram keeps its buckets.
The SDK's own instruments are not used, for each number would be counted twice; what is read is the registry.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.samples import Sample

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_PATH = "v1/metrics"
_USER = re.compile(r"//[^/@\s]*@")


class OtlpSender:
    """Sends all metrics of a registry whenever it is told to.

    Args:
        registry: What is sent.
        endpoint: Base address of the receiver, to which the path is added; None: as OpenTelemetry's own
            variables say. Time-out, headers, compression and certificates are always taken from those.
        who: Attributes of the sender; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override them.
    """

    def __init__(self, registry: CollectorRegistry, endpoint: str | None, who: Mapping[str, str]) -> None:
        self._registry = registry
        self._since_ns = time.time_ns()
        self._complaints = _Complaints()
        logger = logging.getLogger("opentelemetry")
        logger.handlers[:] = [self._complaints]
        logger.propagate = False
        self._resource = Resource.create(dict(who)).merge(OTELResourceDetector().detect())
        address = None if endpoint is None else f"{endpoint.rstrip('/')}/{_PATH}"
        self._exporter = OTLPMetricExporter(endpoint=address)

    def send(self) -> str | None:
        """Send what the registry has now; tries again for as long as the time-out allows.

        Returns:
            Why it did not arrive; None: it did. Without user and password of the address.
        """
        self._complaints.last = "no answer"
        scope = ScopeMetrics(InstrumentationScope("seqmark"), list(self._metrics()), "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        if self._exporter.export(data) is MetricExportResult.SUCCESS:
            return None
        return _USER.sub("//", self._complaints.last)

    def _metrics(self) -> Iterator[Metric]:
        now_ns = time.time_ns()
        for family in self._registry.collect():
            name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
            data = (
                self._histogram(family, now_ns)
                if family.type == "histogram"
                else self._sum(family, name, now_ns)
            )
            if data.data_points:  # none before its first series
                yield Metric(name, family.documentation, "", data)

    def _sum(self, family: Family, name: str, now_ns: int) -> Gauge | Sum:
        points = [
            NumberDataPoint(sample.labels, self._since_ns, now_ns, sample.value)
            for sample in family.samples
            if sample.name == name
        ]
        if family.type == "gauge":
            return Gauge(points)
        return Sum(points, _CUMULATIVE, is_monotonic=family.type == "counter")

    def _histogram(self, family: Family, now_ns: int) -> Histogram:
        series: dict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
        for sample in family.samples:
            series[tuple(item for item in sample.labels.items() if item[0] != "le")].append(sample)
        points = [
            self._buckets(dict(labels), samples, family.name, now_ns) for labels, samples in series.items()
        ]
        return Histogram(points, _CUMULATIVE)

    def _buckets(
        self, labels: Mapping[str, str], samples: list[Sample], name: str, now_ns: int
    ) -> HistogramDataPoint:
        by_name = {sample.name: sample.value for sample in samples}
        buckets = [(sample.labels["le"], int(sample.value)) for sample in samples if "le" in sample.labels]
        # Prometheus' buckets hold all below their bound, those of OTLP what is between two.
        reached = [count for _, count in buckets]
        counts = [count - below for count, below in zip(reached, [0, *reached], strict=False)]
        return HistogramDataPoint(
            labels,
            self._since_ns,
            now_ns,
            count=reached[-1],
            sum=by_name[f"{name}_sum"],
            bucket_counts=counts,
            explicit_bounds=[float(bound) for bound, _ in buckets[:-1]],
            min=None,  # type: ignore[arg-type]  # optional in the protocol; nobody knows it
            max=None,  # type: ignore[arg-type]  # likewise
        )


class _Complaints(logging.Handler):
    """Keeps the last thing that the library says: it logs why, and returns only that it failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
