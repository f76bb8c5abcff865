"""Every query of the dashboard and of the alerts asks for what a real worker and the Spark job serve."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from processor.ops.metrics import Metrics
from spark_sink.query.progress import SinkMetrics
from tests.support.deploy import promql
from tests.support.kafka.topics import create_topic
from tests.support.worker.process import New, PipelineConfig, new, new_config, produce, start_worker, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "seqmark.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
SCRAPED = {"job", "instance"}
"""Prometheus adds them to every sample, and the metric `up`."""

Known = dict[str, dict[str, set[str]]]
"""Metrics that are served, and of each its labels with the values that were seen."""


def panels() -> Iterator[tuple[str, str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


QUERIES = [(title, expr) for title, expr, _ in panels()] + [(rule["alert"], rule["expr"]) for rule in rules()]


def read_metrics(text: str, known: Known) -> None:
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue  # when a counter began: of no use to anybody here
        # Without a sample yet, the comments name the metric all the same.
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        for ending in endings:
            known.setdefault(family.name + ending, {})
        for sample in family.samples:
            for label, value in sample.labels.items():
                known.setdefault(sample.name, {}).setdefault(label, set()).add(value)


def declared(metrics: Metrics | SinkMetrics, known: Known) -> None:
    """Add the labels of metrics that have no sample yet, as of a worker that aborts nothing."""
    for each in vars(metrics).values():
        for name in getattr(each, "_labelnames", ()):
            for served in [key for key in known if key in {each._name, f"{each._name}_total"}]:
                known[served].setdefault(name, set())


@pytest.fixture(scope="module")
def known(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Known:
    """Give what a worker serves that has seen records of every verdict, by partition, by key and by id."""
    config = new_config(broker.bootstrap_servers, tmp_path_factory.mktemp("dashboard")).with_quarantine()
    keyed = PipelineConfig("keyed", f"{config.source}.2", f"{config.sink}.2", dedup={"scope": "key"})
    dedup = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "fingerprint": {"of": "bytes"}}
    told_apart = PipelineConfig("ids", f"{config.source}.3", f"{config.sink}.3", dedup=dedup)
    for each in (keyed, told_apart):
        create_topic(config.bootstrap_servers, each.source)
    config = replace(config, pipelines=(*config.pipelines, keyed, told_apart))
    records = [new(1), new(5), new(5), new(2), New(b"k", b"no sequence", (), 1_700_000_000_000)]
    produce(config.bootstrap_servers, config.source, records)
    produce(config.bootstrap_servers, keyed.source, records[:4])
    twice = [New(b"k", value, (), 1_700_000_000_000) for value in (b"this", b"that")]
    late = New(b"k", b"this", (), 1_700_000_000_000 + 2 * 3_600_000)  # escapes: it comes after the window
    produce(config.bootstrap_servers, told_apart.source, [*twice, late])
    verdicts = {"pass", "duplicate", "late", "collision", "quarantine"}
    with start_worker(config) as worker:
        worker.wait_ready()

        def seen() -> Known | None:
            known: Known = {}
            read_metrics(worker.get("/metrics")[1], known)
            values = known.get("seqmark_records_total", {})
            done = values.get("verdict") == verdicts and values.get("pipeline") == {"p", "keyed", "ids"}
            return known if done and known.get("seqmark_escape_window_seconds") else None

        found: Known = until(seen, f"records of each verdict are counted:\n{worker.stderr}")
    declared(Metrics(), found)
    sink = SinkMetrics()
    sink.open("hourly")
    sink.up.labels("hourly").set(1)
    read_metrics(generate_latest(sink.registry).decode(), found)
    found["up"] = {}
    return found


def values(matcher: str) -> set[str]:
    """Return the values that a matcher names; none where it is a variable of the dashboard."""
    return set() if matcher.startswith("$") else set(matcher.split("|"))


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_asks_for_metrics_and_labels_that_are_served(where: str, query: str, known: Known) -> None:
    asked = promql.read(query)

    assert asked.selectors, where
    for metric, matchers in asked.selectors:
        assert metric in known, f"{where}: nobody serves {metric}"
        assert matchers.keys() | (asked.grouped - SCRAPED) <= known[metric].keys() | SCRAPED, (where, metric)
        for label in matchers.keys() - SCRAPED:
            assert values(matchers[label]) <= known[metric][label], (where, metric, label)


@pytest.mark.parametrize(("where", "query", "legend"), list(panels()))
def test_a_legend_names_labels_that_its_query_leaves(where: str, query: str, legend: str, known: Known) -> None:
    asked = promql.read(query)
    labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
    left = asked.grouped or {label for metric, _ in asked.selectors for label in known[metric]}

    assert labels <= left, where


def test_the_dashboards_variables_come_from_labels_that_are_served(known: Known) -> None:
    variables = {each["name"]: each["query"]["query"] for each in DASHBOARD["templating"]["list"]}

    assert set(re.findall(r"\$(\w+)", json.dumps([query for _, query in QUERIES]))) == {
        *(*variables, "__rate_interval", "__range")
    }
    for query in variables.values():
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]  # fails just so
        assert label in known[metric]


def test_every_metric_that_is_served_is_looked_at_somewhere(known: Known) -> None:
    asked = {metric for _, query in QUERIES for metric, _ in promql.read(query).selectors}

    unseen = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known.keys() - asked}
    unseen -= {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert unseen == {"seqmark_position", "seqmark_watermark"}  # numbers of a topic's own, no quantities


def test_every_panel_says_what_it_shows_and_lies_beside_the_others() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["type"] == "row" or panel["description"]
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_labels_that_it_has_and_says_what_it_means(rule: dict[str, Any], known: Known) -> None:
    asked = promql.read(rule["expr"])
    left = asked.grouped | SCRAPED | {label for metric, _ in asked.selectors for label in known[metric]}
    text = json.dumps(rule["annotations"])

    assert set(re.findall(r"\$labels\.(\w+)", text)) <= left
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}


@pytest.mark.parametrize("asked", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")])
def test_prometheus_own_tool_takes_config_and_rules(asked: tuple[str, str, str]) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed")

    done = subprocess.run(
        [tool, *asked[:2], str(DEPLOY / "prometheus" / asked[2])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_of_a_worker_is_seen_to_fire_and_to_be_silent() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
    looks = [
        (each["alertname"], bool(each["exp_alerts"])) for test in tests for each in test["alert_rule_test"]
    ]
    worker = [rule["alert"] for rule in ALERTS["groups"][0]["rules"]]

    assert set(looks) == {(alert, fires) for alert in worker for fires in (True, False)}


@pytest.mark.parametrize(
    "wrong", ["sum(rate(a[5m])", "nosuch(a)", "a{b>1}", "sum(a))", "a ? b", 'rate(a{b="c"}[5 m])']
)
def test_what_is_no_query_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        promql.read(wrong)
