"""What docs/deploy.md tells to type and to set is there."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from processor.config.environment import variables
from processor.config.load import load

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/deploy.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def lines(program: str) -> list[list[str]]:
    """Return the commands of the page that call a program, as words."""
    blocks = re.findall(r"^```shell\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    commands = [part for block in blocks for line in block.splitlines() for part in line.split("&&")]
    return [words for command in commands if (words := shlex.split(command)) and words[0] == program]


def test_helm_is_called_for_the_chart_and_with_values_that_it_has() -> None:
    (words,) = lines("helm")
    values = yaml.safe_load((ROOT / "deploy/helm/seqmark/values.yaml").read_text())

    assert words[:2] == ["helm", "install"]
    assert (ROOT / words[3] / "Chart.yaml").exists()
    for option, setting in pairwise(words):
        if option.startswith("--set"):
            here = values
            for step in setting.partition("=")[0].split("."):
                here = here[step]


def test_what_is_copied_for_systemd_is_there() -> None:
    copied = [word for words in lines("cp") for word in words[1:-1]]

    assert copied
    assert all(list(ROOT.glob(word)) for word in copied)


def test_build_arguments_and_stages_are_those_of_the_dockerfile() -> None:
    arguments = set(re.findall(r"`(?:--build-arg )?([A-Z_]{5,})=", PAGE)) & {"EXTRAS", "PYTHON", "NUMBA_CPU"}

    assert arguments == set(re.findall(r"(?m)^ARG (\w+)", DOCKERFILE))
    for target in re.findall(r"`--target (\w+)`", PAGE):
        assert f" AS {target}\n" in DOCKERFILE


def test_services_that_are_run_are_those_of_the_compose_file() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    named = re.findall(r"docker compose run --rm (\w+)", PAGE)

    assert len(named) >= 2
    assert set(named) <= services.keys()


@pytest.mark.parametrize("example", re.findall(r"(?ms)^```toml\n(.*?)^```$", PAGE))
def test_keys_that_are_shown_are_keys_of_the_config(example: str, tmp_path: Path) -> None:
    whole = (ROOT / "examples/insert-id.toml").read_text()
    path = tmp_path / "my.toml"
    path.write_text(whole.replace("[worker]\n", example, 1))

    assert load(path, {}).worker.otel_endpoint == "http://collector:4318"


def test_variables_that_are_named_are_keys_of_the_config() -> None:
    named = set(re.findall(r"SEQMARK_\w+__\w+", PAGE))
    for path in (ROOT / "deploy").rglob("*"):
        if path.is_file() and path.suffix != ".json":
            named |= set(re.findall(r"SEQMARK_\w+__\w+", path.read_text()))

    found, problems = variables(dict.fromkeys(named, "x"))

    assert problems == []
    assert "SEQMARK_KAFKA__SASL_PLAIN_PASSWORD" in {each.name for each in found}
