"""A small OpenTelemetry collector: takes metrics by OTLP over HTTP on loopback, and keeps them."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint

Labels = frozenset[tuple[str, str]]


class Collector:
    """Runs while its block does.

    Attributes:
        requests: What came, in order.
        headers: Those of the last request.
        status: What it answers.
    """

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: Mapping[str, str] = {}
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/metrics"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.headers = dict(self.headers)
                if outer.status == 200:
                    outer.requests.append(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def endpoint(self) -> str:
        """The base address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def resource(self) -> dict[str, str]:
        """Who sent the last request."""
        return attributes(self.requests[-1].resource_metrics[0].resource)

    @property
    def metrics(self) -> dict[str, Metric]:
        """What the last request held, by name."""
        found = self.requests[-1].resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: metric for metric in found}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def attributes(point: object) -> dict[str, str]:
    """Return the labels of a data point, or the attributes of a resource."""
    found: list[object] = list(point.attributes)  # type: ignore[attr-defined]  # several messages have them
    return {each.key: each.value.string_value for each in found}  # type: ignore[attr-defined]


def numbers(metric: Metric) -> dict[Labels, float]:
    """Return the values of a sum or a gauge, by labels."""
    points: list[NumberDataPoint] = list(metric.sum.data_points or metric.gauge.data_points)
    return {frozenset(attributes(point).items()): point.as_double for point in points}


def histograms(metric: Metric) -> dict[Labels, HistogramDataPoint]:
    """Return the data points of a histogram, by labels."""
    return {frozenset(attributes(point).items()): point for point in metric.histogram.data_points}
