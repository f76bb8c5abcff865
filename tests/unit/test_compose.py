"""Does docker-compose.yml fit the rest of the tree? No Docker engine is needed, or had here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from processor.settings import load, require_supported

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"


@pytest.fixture
def services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return services


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Return the mounted files of a service: path in the container to path in the tree."""
    parts = [volume.split(":") for volume in service.get("volumes", ())]
    return {inside: outside for outside, inside, *_ in parts if outside.startswith(".")}


def test_every_mounted_file_is_in_the_tree(services: dict[str, Any]) -> None:
    mounted = [path for service in services.values() for path in mounts(service).values()]

    assert mounted
    for path in mounted:
        assert (ROOT / path).is_file(), path


def test_the_worker_runs_a_config_that_loads_and_meets_the_broker(services: dict[str, Any]) -> None:
    worker, kafka = services["worker"], services["kafka"]
    inside = worker["command"].split(" -c ")[1]

    settings = load(ROOT / mounts(worker)[inside], worker["environment"])
    require_supported(settings)

    listeners = kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{settings.kafka.bootstrap_servers}" in listeners
    assert settings.worker.web_host == "0.0.0.0"  # noqa: S104 - a container's port is published by Docker
    assert f":{settings.worker.web_port}:" in worker["ports"][0] + ":"


def test_the_source_that_compose_creates_is_the_one_that_the_worker_reads(
    services: dict[str, Any],
) -> None:
    settings = load(ROOT / "examples" / "clicks.toml", services["worker"]["environment"])

    assert f"--topic {settings.pipelines[0].source} " in services["source-topic"]["command"]


def test_the_state_outlives_the_container(services: dict[str, Any]) -> None:
    worker = services["worker"]

    state_dir = worker["environment"]["SEQMARK_WORKER__STATE_DIR"]

    assert f"state:{state_dir}" in worker["volumes"]
    assert f"VOLUME {state_dir}\n" in (ROOT / "Dockerfile").read_text()


def test_the_image_gets_everything_it_copies() -> None:
    copied = [
        line.split()[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
    ]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert set(copied) <= let_in
    for path in let_in:
        assert (ROOT / path).exists(), path


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
