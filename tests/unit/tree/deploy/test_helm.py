"""The Helm chart runs a worker as it wants to be run, with variables that the config takes.

Where Helm is on the PATH it lints the chart and renders it again. Elsewhere what it rendered last is looked at,
and a chart that was edited since fails.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft7Validator

from processor.config.load import load, require_pipelines
from processor.worker.app import STOP_S
from tests.support.deploy.helm import (
    CASES,
    CHART,
    GOLDEN,
    HASH,
    ROOT,
    chart_hash,
    helm,
    program,
    render,
    rendered,
)

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.config import Settings

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
TEMPLATES = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def merged(over: dict[str, Any], below: dict[str, Any] = VALUES) -> dict[str, Any]:
    """Lay values over the chart's own, as Helm does."""
    found = copy.deepcopy(below)
    for key, value in over.items():
        found[key] = (
            merged(value, found[key]) if isinstance(value, dict) and isinstance(found.get(key), dict) else value
        )
    return found


def faults(values: dict[str, Any]) -> list[str]:
    return [error.json_path for error in SCHEMA.iter_errors(merged(values))]


def pod(case: str) -> dict[str, Any]:
    found: dict[str, Any] = rendered(case)["StatefulSet"]["spec"]["template"]["spec"]
    return found


def container(case: str) -> dict[str, Any]:
    (found,) = pod(case)["containers"]
    worker: dict[str, Any] = found
    return worker


def settings(case: str, folder: Path) -> Settings:
    """Load the config as the container would, with its variables; those of secrets have some value."""
    written = rendered(case).get("ConfigMap", {}).get("data", {}).get("seqmark.toml")
    path = folder / "seqmark.toml"
    path.write_text(written or (ROOT / "examples/insert-id.toml").read_text())
    environ = {each["name"]: each.get("value", "clicks-seqmark-0") for each in container(case)["env"]}
    if "envFrom" in container(case):
        environ |= dict.fromkeys(
            re.findall(r"SEQMARK_KAFKA\w+", (ROOT / "deploy/helm/example-values.yaml").read_text()), "x"
        )
    return load(path, environ)


def test_what_is_kept_is_what_helm_makes_of_the_chart(case: str) -> None:
    anew = "run python -m tests.support.deploy.helm with Helm on the PATH"
    assert HASH.read_text().strip() == chart_hash(), f"the chart was edited: {anew}"
    if program() is not None:
        assert (GOLDEN / f"{case}.yaml").read_text() == render(case), anew
        assert "0 chart(s) failed" in helm("lint", "--strict", values=CASES[case])


def test_the_values_keep_their_schema_and_wrong_ones_are_refused(case: str) -> None:
    assert faults({}) == []
    assert faults(CASES[case]) == []

    assert faults({"replica": 2}) == ["$"]
    assert faults({"memoryLimit": "2Gi"}) == ["$.memoryLimit"]
    assert faults({"terminationGracePeriodSeconds": 5}) == ["$.terminationGracePeriodSeconds"]
    assert faults({"persistence": {"accessModes": ["ReadWriteMany"]}}) == ["$.persistence.accessModes[0]"]
    assert faults({"image": {"digest": "latest"}}) == ["$.image.digest"]


def test_templates_use_values_that_there_are_and_all_of_them() -> None:
    used = {path.removeprefix("$") for path in re.findall(r"\$?\.Values((?:\.[a-zA-Z]+)+)", TEMPLATES)}

    for path in used:
        here: Any = VALUES
        for step in path.split(".")[1:]:
            assert step in here, path
            here = here[step]
    assert {path.split(".")[1] for path in used} == VALUES.keys()
    assert VALUES.keys() == SCHEMA.schema["properties"].keys() - {"global"}


def test_the_chart_is_of_this_version_of_seqmark() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert chart["apiVersion"] == "v2"
    assert chart["name"] == "seqmark"
    assert chart["appVersion"] == chart["version"] == project["version"]
    assert container("full")["image"].endswith(":VERSION")


def test_the_config_and_its_variables_are_taken(case: str, tmp_path: Path) -> None:
    loaded = settings(case, tmp_path)
    require_pipelines(loaded)
    worker = loaded.worker

    mounts = {mount["name"]: mount["mountPath"] for mount in container(case)["volumeMounts"]}
    assert container(case)["args"] == ["worker", "-c", f"{mounts['config']}/seqmark.toml"]
    assert str(worker.state_dir).startswith(f"{mounts['state']}/")
    assert worker.group_instance_id == ("clicks-seqmark-0" if case == "full" else None)
    assert worker.log_format == "json"
    # Otherwise a Service puts variables here that begin like ours.
    assert pod(case)["enableServiceLinks"] is False


def test_the_worker_stops_by_itself_before_the_system_ends_it(case: str, tmp_path: Path) -> None:
    loaded = settings(case, tmp_path).worker
    limit = container(case)["resources"]["limits"]["memory"]

    assert loaded.memory_limit is not None
    assert loaded.memory_limit <= int(limit.removesuffix("Gi")) * 2**30 * 0.8
    grace_s = pod(case)["terminationGracePeriodSeconds"]
    assert STOP_S + 3 < grace_s < loaded.session_timeout_ms / 1000


def test_probes_and_monitors_ask_pages_that_are_served(case: str, tmp_path: Path) -> None:
    worker, loaded = container(case), settings(case, tmp_path).worker
    pages = set(re.findall(r'View\("(/\w+)"', (ROOT / "processor/worker/web/site.py").read_text()))
    (port,) = worker["ports"]

    asked = {name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert asked == {
        "startup": {"path": "/health", "port": "http"},
        "liveness": {"path": "/health", "port": "http"},
        "readiness": {"path": "/ready", "port": "http"},
    }
    assert {each["path"] for each in asked.values()} <= pages
    assert (port["name"], port["containerPort"]) == ("http", loaded.web_port)
    assert rendered(case)["Service"]["spec"]["ports"][0]["port"] == loaded.web_port
    assert loaded.web_host == "0.0.0.0"  # noqa: S104 - a pod's own address
    if case == "full":
        (endpoint,) = rendered(case)["PodMonitor"]["spec"]["podMetricsEndpoints"]
        assert endpoint["path"] in pages
        assert endpoint["port"] == "http"


def test_it_scales_by_the_lag_of_the_group_that_the_config_names(tmp_path: Path) -> None:
    loaded, spec = settings("full", tmp_path), rendered("full")["ScaledObject"]["spec"]

    assert spec["scaleTargetRef"]["name"] == rendered("full")["StatefulSet"]["metadata"]["name"]
    assert "replicas" not in rendered("full")["StatefulSet"]["spec"]
    asked = [trigger["metadata"] for trigger in spec["triggers"]]
    assert [each["topic"] for each in asked] == [pipeline.source for pipeline in loaded.pipelines]
    assert {each["consumerGroup"] for each in asked} == {loaded.worker.application_id}
    assert {each["bootstrapServers"] for each in asked} == {loaded.kafka.bootstrap_servers}
    assert spec["maxReplicaCount"] <= loaded.worker.slots * len(loaded.pipelines)


def test_nothing_runs_as_root_or_writes_beside_its_volumes(case: str) -> None:
    user = re.search(r"--uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert user
    security = pod(case)["securityContext"]

    assert security["runAsNonRoot"] is True
    assert {security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user[1])}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(case)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod(case)["automountServiceAccountToken"] is False


def test_everything_that_is_named_is_there(case: str) -> None:
    manifests = rendered(case)
    stateful = manifests["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    claims = {each["metadata"]["name"] for each in stateful.get("volumeClaimTemplates", ())}

    volumes = {volume["name"] for volume in pod(case)["volumes"]} | claims
    assert {mount["name"] for mount in container(case)["volumeMounts"]} == volumes
    assert stateful["serviceName"] == manifests["Service"]["metadata"]["name"]
    selectors = [stateful["selector"]["matchLabels"], manifests["Service"]["spec"]["selector"]]
    selectors += [
        manifests[kind]["spec"]["selector"]["matchLabels"]
        for kind in ("PodDisruptionBudget", "PodMonitor")
        if kind in manifests
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    assert re.fullmatch("[0-9a-f]{64}", stateful["template"]["metadata"]["annotations"]["checksum/config"])
    assert len(selectors) == (4 if case == "full" else 2)
