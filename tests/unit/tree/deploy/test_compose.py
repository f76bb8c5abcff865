"""Does docker-compose.yml fit the rest of the tree? No Docker engine is needed, or had here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from processor.config.load import load, require_aggregates, require_pipelines
from schemas.config import ParquetOutput, PostgresOutput, Settings

ROOT = Path(__file__).parents[4]
COMPOSE = ROOT / "docker-compose.yml"
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def substituted(value: str) -> str:
    """Put defaults where the user's variables would go."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.fixture
def services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(substituted(COMPOSE.read_text()))["services"]
    return services


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Return the mounted files of a service: path in the container to path in the tree."""
    parts = [volume.split(":") for volume in service.get("volumes", ())]
    return {inside: outside for outside, inside, *_ in parts if outside.startswith(".")}


def config_of(service: dict[str, Any]) -> Settings:
    """Load the config that a service is given, with its environment."""
    inside = re.search(r" -c (\S+)", service["command"])
    assert inside
    return load(ROOT / mounts(service)[inside[1]], service["environment"])


def test_everything_mounted_is_in_the_tree(services: dict[str, Any]) -> None:
    mounted = [path for service in services.values() for path in mounts(service).values()]

    assert mounted
    for path in mounted:
        assert (ROOT / path).exists(), path


def test_the_worker_runs_a_config_that_loads_and_meets_the_broker(services: dict[str, Any]) -> None:
    worker, kafka = services["worker"], services["kafka"]

    settings = config_of(worker)
    require_pipelines(settings)

    listeners = kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{settings.kafka.bootstrap_servers}" in listeners
    assert settings.worker.web_host == "0.0.0.0"  # noqa: S104 - a container's port is published by Docker
    assert f":{settings.worker.web_port}:" in worker["ports"][0] + ":"


def test_the_source_that_compose_creates_is_the_one_that_the_worker_reads(
    services: dict[str, Any],
) -> None:
    settings = config_of(services["worker"])

    assert f"--topic {settings.pipelines[0].source} " in services["source-topic"]["command"]


def test_the_spark_job_reads_what_the_worker_writes_into_the_database_beside_it(
    services: dict[str, Any],
) -> None:
    sink, postgres = services["sink"], services["postgres"]["environment"]
    settings = config_of(sink)

    require_aggregates(settings)
    assert {each.topic for each in settings.aggregates} == {config_of(services["worker"]).pipelines[0].sink}
    output = settings.aggregates[0].output
    assert isinstance(output, PostgresOutput)
    user, password, database = (postgres[f"POSTGRES_{name}"] for name in ("USER", "PASSWORD", "DB"))
    assert output.url.get_secret_value() == f"postgresql://{user}:{password}@postgres:5432/{database}"


def test_what_the_spark_job_writes_outlives_the_container(services: dict[str, Any]) -> None:
    settings = config_of(services["sink"])

    assert "sink:/var/lib/seqmark" in services["sink"]["volumes"]
    assert "WORKDIR /var/lib/seqmark\n" in DOCKERFILE
    paths = [each.checkpoint for each in settings.aggregates]
    paths += [each.output.path for each in settings.aggregates if isinstance(each.output, ParquetOutput)]
    assert all(not Path(path).is_absolute() for path in paths)


def test_prometheus_asks_the_ports_that_worker_and_spark_job_serve(services: dict[str, Any]) -> None:
    scrapes = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    asked = {
        name: found["port"] for each in scrapes for found in each["dns_sd_configs"] for name in found["names"]
    }

    served = re.search(r"--metrics-port (\d+)", services["sink"]["command"])
    assert served
    assert asked == {"worker": config_of(services["worker"]).worker.web_port, "sink": int(served[1])}
    assert asked.keys() <= services.keys()


def test_grafana_is_given_prometheus_and_the_dashboard(services: dict[str, Any]) -> None:
    inside = mounts(services["grafana"])
    provisioning = ROOT / inside["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "seqmark.yml").read_text())["providers"]

    assert source["url"] == "http://prometheus:9090"
    assert (ROOT / inside[provider["options"]["path"]] / "seqmark.json").is_file()
    dashboard = (DEPLOY / "grafana" / "dashboards" / "seqmark.json").read_text()
    assert set(re.findall(r'"uid": "([^"]+)"', dashboard)) == {source["uid"], "seqmark"}


def test_every_image_is_pinned_and_every_target_exists(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if "image" in service:
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?", service["image"]), name
        else:
            assert f" AS {service['build']['target']}\n" in DOCKERFILE, name


def test_ports_are_published_on_this_machine_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", ())]

    assert len(published) == 5
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_state_outlives_the_container(services: dict[str, Any]) -> None:
    worker = services["worker"]

    state_dir = worker["environment"]["SEQMARK_WORKER__STATE_DIR"]

    assert f"state:{state_dir}" in worker["volumes"]
    assert f"VOLUME {state_dir}\n" in DOCKERFILE


def test_docker_compose_accepts_the_file() -> None:
    command = shutil.which("docker-compose")
    if command is None:
        pytest.skip("docker-compose is not installed; .ci/run installs it where it can")

    done = subprocess.run(
        [command, "--file", str(COMPOSE), "config", "--quiet"],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
