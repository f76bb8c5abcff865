"""Renders the report as one HTML file that needs nothing else: no script, no network, pictures inside.

The sum first, then the picture, then the numbers; each picture has its text and its table. Phones get narrow
pictures, and tables that scroll in their own box; who prefers it dark gets it dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from processor.inspection.report.batches import batch_section
from processor.inspection.report.flows import flow_section
from processor.inspection.report.markup import Html, document, element
from processor.inspection.report.sinks import sink_section
from processor.inspection.report.svg import dark_colours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.report.hours import Flow
    from spark_sink.batch.table.summary import BatchPart
    from spark_sink.reading.summary import SinkPart


@dataclass(frozen=True, slots=True)
class ReportPage:
    """All that one page shows; the topics were read at ``made_ms``.

    Without a pipeline and an aggregate there are no ``servers``, and the batches' names are the application's.
    """

    application: str
    servers: str
    config: str
    made_ms: int
    version: str
    flows: Sequence[Flow]
    sinks: Sequence[SinkPart]
    batches: Sequence[BatchPart] = ()

    @property
    def problems(self) -> list[str]:
        """Everything that could not be read, a sentence each."""
        found = [(flow.name, flow.problems) for flow in self.flows]
        found += [(sink.name, list(sink.problems)) for sink in self.sinks]
        found += [(batch.name, batch.problems) for batch in self.batches]
        return [f"{name}: {problem}" for name, problems in found for problem in problems]


def render(report: ReportPage) -> str:
    """Return the page."""
    flows = [(f"pipeline-{place}", flow) for place, flow in enumerate(report.flows)]
    sinks = [(f"aggregate-{place}", sink) for place, sink in enumerate(report.sinks)]
    batches = [(f"batch-{place}", batch) for place, batch in enumerate(report.batches)]
    titles = [(name, f"Pipeline {flow.name}") for name, flow in flows]
    titles += [(name, f"Aggregate {sink.name}") for name, sink in sinks]
    titles += [(name, f"Batch {batch.name}") for name, batch in batches]
    body = [
        _header(report),
        _contents(titles),
        *(flow_section(name, flow) for name, flow in flows),
        *(sink_section(name, sink) for name, sink in sinks),
        *(batch_section(name, batch) for name, batch in batches),
        _footer(report),
    ]
    return document(f"Seqmark: {report.application}", body, dark_colours("".join(body)))


def _header(report: ReportPage) -> Html:
    made = f"{datetime.fromtimestamp(report.made_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    by = "All times are UTC."
    brokers: list[object] = []
    if report.servers:
        brokers = [", brokers ", element("code", report.servers)]
        by = (
            "All times are UTC; records are counted by their Kafka timestamps, as a consumer with "
            "read_committed sees them."
        )
    what = "records" if report.servers else "rows"
    return element(
        "header",
        element("h1", f"What became of the {what} of ", element("code", report.application)),
        element(
            "p",
            f"Made {made} UTC by Seqmark {report.version} from ",
            element("code", report.config),
            *brokers,
            f". {by}",
            class_="soft",
        ),
    )


def _contents(parts: list[tuple[str, str]]) -> Html:
    if len(parts) < 2:
        return Html("")
    links = (element("li", element("a", text, href=f"#{name}")) for name, text in parts)
    return element("nav", element("ul", *links))


def _footer(report: ReportPage) -> Html:
    text = "This page counts; it proves nothing about single records"
    if not report.servers:
        return element("footer", text, ".")
    return element("footer", text, ": that is what ", element("code", "seqmark verify"), " is for.")
