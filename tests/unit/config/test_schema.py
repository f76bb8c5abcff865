"""The JSON schema takes every config that is shown anywhere, refuses wrong ones, and says what the docs say."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from processor.commands.cli import main
from processor.config.schema import config_schema
from schemas.config.reference import keys

ROOT = Path(__file__).parents[3]
SCHEMA = config_schema()
FILES = [*sorted(ROOT.glob("examples/*.toml")), *sorted(ROOT.glob("deploy/**/*.toml"))]
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]
BASE = {
    "kafka": {"bootstrap_servers": "h:1"},
    "worker": {"application_id": "a"},
    "pipelines": [
        {
            "name": "p",
            "source": "s",
            "sink": "t",
            "dedup": {"mode": "insert-id", "id": [{"from": "key"}], "window": "7d"},
        }
    ],
}


def faults(config: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(config)]


def shown() -> list[Any]:
    """Return each config in the docs that has its tables; of parts of one some lack required keys."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks):
            try:
                config = tomllib.loads(block)
            except tomllib.TOMLDecodeError:
                continue  # ways to write one key, below each other
            if all(isinstance(each, list) for key, each in config.items() if key not in {"kafka", "worker"}):
                found.append(pytest.param(config, id=f"{page.name} {number}"))
    assert len(found) > 5
    return found


def test_the_command_prints_the_schema_and_nothing_else() -> None:
    done = CliRunner().invoke(main, ["config", "schema"])
    assert (done.exit_code, json.loads(done.stdout), done.stderr) == (0, SCHEMA, "")
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_of_ours_is_right(file: Path) -> None:
    assert faults(tomllib.loads(file.read_text())) == []


@pytest.mark.parametrize("config", shown())
def test_every_config_of_the_docs_is_right(config: dict[str, Any]) -> None:
    missing = [fault for fault in faults(config) if fault.endswith("is a required property")]
    assert faults(config) == missing, "what is shown is a part"


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a right config with one key set; None: with it taken away."""
    config: dict[str, Any] = json.loads(json.dumps(BASE))
    *above, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    node: Any = config
    for step in above:
        node = node[step]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return config


def test_a_right_config_is_right() -> None:
    assert faults(BASE) == []
    tables = tomllib.loads((ROOT / "examples" / "aggregates.toml").read_text())["aggregates"]
    assert faults(BASE | {"aggregates": tables}) == []
    assert faults(BASE | {"sinks": tables})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kafka", None),
        ("worker.application_id", None),
        ("worker.application_id", "a b"),
        ("worker.slots", 0),
        ("worker.slots", "4"),
        ("worker.slot", 4),
        ("worker.guarantee", "once"),
        ("worker.memory_limit", "4 GB"),
        ("kafka.sasl_password", "x"),
        ("kafka.bootstrap_servers", "localhost"),
        ("kafka.bootstrap_servers", "a:1,,b:2"),
        ("pipelines", {}),
        ("pipelines.0.sink", "a/b"),
        ("pipelines.0.dedup.mode", "watermark"),
        ("pipelines.0.dedup.mode", None),
        ("pipelines.0.dedup.id", "/id"),
        ("pipelines.0.dedup.id", []),
        ("pipelines.0.dedup.id.0.name", "x"),
        ("pipelines.0.dedup.window", "7 fortnights"),
        ("pipelines.0.dedup.window", 7),
        ("pipelines.0.dedup.bloom", {"expected_per_bucket": 0}),
        ("pipelines.0.dedup.fingerprint", {"exclude": ["a"]}),
        ("workers", {}),
    ],
)
def test_a_wrong_config_is_wrong(path: str, value: Any) -> None:
    assert faults(changed(path, value))


def test_descriptions_and_defaults_are_those_of_the_docs() -> None:
    tables = [table["properties"] for table in SCHEMA["$defs"].values()]
    found = {(key, field["description"]): field for table in tables for key, field in table.items()}
    for key in keys():
        field = found[key.path[-1], key.description]
        default = field.get("default", "")
        text = json.dumps(default) if isinstance(default, bool) else f'"{default}"'
        assert key.default in {None, text, str(default), json.dumps(default), "[]", "{}", ""}, key
