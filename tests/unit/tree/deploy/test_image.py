"""The images hold what they need, and nothing else. There is no Docker engine here: the file is parsed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from packaging.utils import canonicalize_name
from typing_extensions import override

from packing.hook import KERNELS
from packing.locked import locked
from tests.support.suite.installed import distributions, link

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


class Stage(NamedTuple):
    """A stage of the Dockerfile."""

    base: str
    lines: list[tuple[str, str]]
    """Instruction and its text, continued lines joined."""

    def said(self, instruction: str) -> list[str]:
        return [text for name, text in self.lines if name == instruction]


def stages() -> dict[str, Stage]:
    text = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", DOCKERFILE))
    lines = [line.split(None, 1) for line in text.splitlines() if line]
    found: dict[str, Stage] = {}
    for name, rest in lines:
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            found[stage] = Stage(base, [])
        elif found:
            found[list(found)[-1]].lines.append((name, rest))
    return found


STAGES = stages()


def in_image(stage: str, instruction: str) -> list[str]:
    """Return what a stage and those that it is made from say, the first stage first."""
    base = STAGES[stage].base
    return (in_image(base, instruction) if base in STAGES else []) + STAGES[stage].said(instruction)


def names(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", lock, re.MULTILINE))


@pytest.mark.parametrize("extra", [None, "otel", "spark", "report", "postgres"])
def test_the_part_of_the_lock_is_what_the_packages_say_that_they_need(extra: str | None) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = Message()
    for text in [*project["dependencies"], *project["optional-dependencies"].get(extra, [])]:
        asked["Requires-Dist"] = text

    installed = {canonicalize_name(each.name) for each in distributions(asked, [])}

    assert installed
    assert installed <= names(locked([f"seqmark[{extra or ''}]"]))


def test_a_worker_has_neither_spark_nor_plots_nor_tools() -> None:
    worker = locked(["seqmark"])

    assert not names(worker) & {
        "pyspark",
        "matplotlib",
        "psycopg",
        "pytest",
        "mypy",
        "hatchling",
        "setuptools",
        "pip",
    }
    assert "opentelemetry-sdk" in names(locked(["seqmark[otel]"])) - names(worker)
    assert names(locked(["hatchling"])) >= {"hatchling", "packaging"}
    assert worker.count("--hash=sha256:") > len(names(worker))
    with pytest.raises(KeyError, match="there-is-none"):
        locked(["there-is-none"])


def test_everything_is_installed_by_its_hash_or_made_here() -> None:
    commands = [
        each.strip() for stage in STAGES.values() for run in stage.said("RUN") for each in run.split("&&")
    ]

    for command in commands:
        if re.match(r"pip .*\binstall\b", command):
            assert "--require-hashes" in command or "--no-deps /wheels/*.whl" in command, command
    assert sum("packing.locked" in command for command in commands) == 4


def test_base_images_are_one_and_can_be_named_with_a_digest() -> None:
    bases = {stage.base for stage in STAGES.values()} - STAGES.keys()
    default = re.search(r"(?m)^ARG PYTHON=(\S+)$", DOCKERFILE)

    assert bases == {"${PYTHON}"}
    assert default
    assert re.fullmatch(r"python:3\.1[123]-slim-[a-z]+", default[1])


def test_everything_that_is_copied_is_in_the_tree_and_let_in() -> None:
    copied = [
        path
        for stage in STAGES.values()
        for copy in stage.said("COPY")
        if not copy.startswith("--from")
        for path in copy.split()[:-1]
    ]
    others = [
        copy.split()[0].removeprefix("--from=") for stage in STAGES.values() for copy in stage.said("COPY")
    ]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert set(copied) == let_in
    assert all((ROOT / path).exists() for path in copied)
    assert set(others) - set(copied) <= STAGES.keys()


@pytest.mark.parametrize("image", ["worker", "spark"])
def test_an_image_runs_seqmark_as_nobody_special_and_takes_signals(image: str) -> None:
    assert in_image(image, "USER")[-1] == "10001:10001"
    assert json.loads(in_image(image, "ENTRYPOINT")[-1]) == ["seqmark"]
    assert in_image(image, "STOPSIGNAL") == ["SIGTERM"]
    assert in_image(image, "VOLUME") == ["/var/lib/seqmark"]
    assert list(STAGES)[-1] == "worker"


def test_a_worker_is_made_without_a_package_manager_and_without_what_builds_it() -> None:
    assert not [run for run in in_image("worker", "RUN") if re.search(r"apt-get|\bpip\b", run)]
    assert in_image("worker", "COPY") == ["--from=build /opt/seqmark /opt/seqmark"]
    assert "--without-pip" in "".join(STAGES["build"].said("RUN"))


def test_modules_that_a_build_calls_are_there_as_the_wheel_has_them() -> None:
    called = re.findall(r"(?:-m|from) (seqmark\.[\w.]+|packing\.\w+)", DOCKERFILE)

    assert len(called) == 7
    for module in called:
        assert (ROOT / module.removeprefix("seqmark.").replace(".", "/")).with_suffix(".py").exists(), module


def test_the_wheel_has_kernels_of_its_own_python_and_no_processor_is_named_at_the_start() -> None:
    steps = [step.strip() for step in "".join(STAGES["build"].said("RUN")).split("&&")]
    (compiles,) = (n for n, step in enumerate(steps) if step.endswith("python -m packing.kernels /tmp/kernels"))
    installs = next(n for n, step in enumerate(steps) if "-r /tmp/worker.lock" in step)
    (builds,) = (n for n, step in enumerate(steps) if "pip wheel" in step)

    # numba has to be there, and the kernels before the wheel.
    assert installs < compiles < builds
    assert re.match(r"PYTHONPATH=\$\(python -c .*\) /opt/seqmark/bin/python", steps[compiles])
    assert steps[builds].startswith(f"{KERNELS}=/tmp/kernels pip wheel ")
    # A name would have others looked for.
    assert not any("NUMBA" in text for stage in STAGES for text in STAGES[stage].said("ENV"))
    (warms,) = (run for run in in_image("worker", "RUN") if "pipeline.warm" in run)
    assert warms.startswith("NUMBA_CPU_NAME=$NUMBA_CPU python ")


def test_what_compiles_them_needs_a_workers_packages_and_what_builds_the_wheel(tmp_path: Path) -> None:
    asked = Message()
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        asked["Requires-Dist"] = text
    tools = Message()
    tools["Requires-Dist"] = "hatchling"
    for each, folder in ((asked, "worker"), (tools, "tools")):
        link(distributions(each, []), tmp_path / folder)

    def code(*folders: str) -> int:
        paths = os.pathsep.join(str(tmp_path / folder) for folder in folders)
        call = [sys.executable, "-S", "-c", "import packing.kernels"]
        env = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(call, cwd=ROOT, env=env, stderr=subprocess.DEVNULL, check=False).returncode

    assert (code("tools", "worker"), code("worker"), code("tools")) == (0, 1, 1)


@pytest.fixture
def port() -> Iterator[int]:
    """A server that answers only when it is asked for its health."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_container_is_well_while_health_is_answered_and_not_otherwise(port: int) -> None:
    (check,) = STAGES["worker"].said("HEALTHCHECK")
    command: list[str] = json.loads(check.partition("CMD ")[2])
    assert command[0] == "python"

    codes = [
        subprocess.run(
            [sys.executable, *command[1:]],
            env=os.environ | {"SEQMARK_WORKER__WEB_PORT": str(each)},
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        ).returncode
        for each in (port, 1)
    ]

    assert codes == [0, 1]
