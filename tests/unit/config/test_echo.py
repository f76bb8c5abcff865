"""What was given is shown, a secret never: not in a message, not in a line that cannot be read."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from processor.commands.cli import main
from processor.config.echo import MOST_SHOWN, Echo
from processor.config.load import load
from processor.errors import ConfigError

ROOT = Path(__file__).parents[3]
CLICKS = (ROOT / "examples" / "clicks.toml").read_text(encoding="utf-8")
POSTGRES = (ROOT / "examples" / "postgres.toml").read_text(encoding="utf-8")
SECRET = "correct1horse2battery"  # noqa: S105 - looked for in what is said


def shown(path: str, value: Any, environ: dict[str, str] | None = None) -> str | None:
    """Return what is shown of a value that is all there is in a config."""
    steps = [int(step) if step.isdecimal() else step for step in path.split(".")]
    tree = value
    for step in reversed(steps):
        tree = [tree] if isinstance(step, int) else {step: tree}
    return Echo(tree, environ or {}).shown(tuple(steps))


@pytest.mark.parametrize(
    ("path", "value", "as_shown"),
    [
        ("worker.slots", 0, "0"),
        ("worker.slots", True, "true"),
        ("worker.slots", 0.5, "0.5"),
        ("worker.slots", "many", '"many"'),
        ("worker.slots", {"a": SECRET}, "a table"),
        ("worker.slots", [SECRET], "a list"),
        ("worker.application_id", 'a"b\\', '"a\\"b\\\\"'),
        ("worker.application_id", "a\x1b[31m\n\u202e", '"a\\u001b[31m\\n\\u202e"'),
        ("worker.application_id", "x" * 5_000, f'"{"x" * MOST_SHOWN}…" (5,000 characters)'),
        ("pipelines.0.dedup.mode", "ids", '"ids"'),
        ("kafka.security_protocol", "SASL_TLS", '"SASL_TLS"'),
        ("kafka.sasl_mechanism", "GSSAPI", '"GSSAPI"'),
    ],
)
def test_a_value_is_shown_as_it_was_written_and_shortly(path: str, value: Any, as_shown: str) -> None:
    assert shown(path, value) == as_shown


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kafka.sasl_plain_password", SECRET),
        ("kafka.ssl_password", 12345),
        ("kafka.sasl_pasword", SECRET),
        ("kafka", SECRET),
        ("aggregates.0.output.url", SECRET),
        ("aggregates.0.output", f"postgresql://u:{SECRET}@h/db"),
        ("kafka.bootstrap_servers", f"u:{SECRET}@h:1"),
        ("kafka.bootstrap_servers", f"https://{SECRET}@h:1"),
        ("worker.state_dir", f"s3://key:{SECRET}@bucket"),
        ("worker.state_dir", f"x?password={SECRET}"),
        ("kafka.ssl_cafile", f"-----BEGIN PRIVATE KEY-----\n{SECRET}"),
        ("kafka.sasl_mechanism", SECRET),
        ("pipelines.0.dedup.mode", SECRET),
    ],
)
def test_a_secret_is_not_shown(path: str, value: Any) -> None:
    assert shown(path, value) is None


def test_what_is_a_secret_elsewhere_is_not_shown_where_it_does_not_belong() -> None:
    tables = {"kafka": {"sasl_plain_password": SECRET, "sasl_plain_username": f"{SECRET}\n"}}
    assert Echo(tables, {}).shown(("kafka", "sasl_plain_username")) is None
    assert shown("worker.application_id", f"id {SECRET}", {"DB_PASSWORD": SECRET}) is None
    assert shown("worker.application_id", f"id {SECRET}", {"HOME": SECRET}) is not None


def check(tmp_path: Path, text: str, *words: str, **env: str) -> Result:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(main, ["check", "-c", str(path), *words], env=env)


def head(line: str) -> str:
    return CLICKS.replace("[kafka]\n", f"[kafka]\n{line}\n", 1)


@pytest.mark.parametrize(
    ("text", "env"),
    [
        (head(f'sasl_plain_password = "{SECRET}"'), {}),
        (head(f'sasl_password = "{SECRET}"'), {}),
        (head(f'sasl_plain_password = ["{SECRET}"]'), {}),
        (head(f"sasl_plain_password = {{ {SECRET} = 1 }}"), {}),
        (head(f'security_protocol = "{SECRET}"'), {}),
        (head(f'ssl_password = "{SECRET}"\nssl_cafile = "{SECRET}"'), {}),
        (head(f'sasl_plain_password = "{SECRET}'), {}),
        (head(f'sasl_pasword = "{SECRET}'), {}),
        (head(f'anything = "{SECRET}'), {}),
        (head(f"sasl_plain_password = {SECRET}"), {}),
        (head(f"{SECRET}"), {}),
        (head(f'"{SECRET}" = '), {}),
        (head(f'sasl_plain_password = """\n{SECRET}\n"'), {}),
        (head(f'client_id = ["a", {{ b = "{SECRET} }}]'), {}),
        (head(f'anything = "{SECRET}"'), {}),
        (head(f'bootstrap_servers = "u:{SECRET}@h:1'), {}),
        (head(f'ssl_cafile = = "x" # {SECRET}'), {}),
        (POSTGRES.replace("output = {", f'output = {{ url = "postgresql://u:{SECRET}@h/d", kin = 1,'), {}),
        (POSTGRES.replace("output = ", f'output = "postgresql://u:{SECRET}@h/d" # '), {}),
        (POSTGRES.replace("output = ", f'output = {{ kind = "postgres", url = "{SECRET} }} # '), {}),
        (CLICKS, {"SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": SECRET}),
        (CLICKS, {"SEQMARK_KAFKA__SASL_PASSWORD": SECRET}),
        (CLICKS, {"SEQMARK_KAFKA__SASL_PLAIN_PASWORD": SECRET}),
        (CLICKS, {"SEQMARK_KAFKA": SECRET}),
        (CLICKS, {"SEQMARK_KAFKA": f'{{"ssl_password": "{SECRET}", "ssl_cafile": "{SECRET}"}}'}),
        (CLICKS, {"SEQMARK_PIPELINES__0__DEDUP__SEQUENCE": f"{{ {SECRET}"}),
        (CLICKS, {"SEQMARK_PIPELINES__0__DEDUP__MODE": SECRET}),
        (CLICKS, {"SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": SECRET, "SEQMARK_WORKER__SLOTS": SECRET}),
    ],
)
@pytest.mark.parametrize("words", [(), ("--json",)], ids=["people", "programs"])
def test_no_message_of_a_wrong_config_shows_a_secret(
    tmp_path: Path, text: str, env: dict[str, str], words: tuple[str, ...]
) -> None:
    ended = check(tmp_path, text, *words, **env)
    assert ended.exit_code == 2, ended.output
    assert SECRET not in ended.output + repr(ended.exception)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "my.toml", env)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_programs_get_the_place_of_each_problem(tmp_path: Path) -> None:
    ended = check(tmp_path, CLICKS.replace('"partition"', '"keys"'), "--json")
    (line,) = map(json.loads, ended.stdout.splitlines())
    assert line["message"].startswith('must be "partition", "key", "header:NAME" or "value:/POINTER"')
    assert line["message"].endswith('; given: "keys"')
    assert (line["key"], line["path"]) == ("pipelines.0.dedup.scope", "pipelines.clicks.dedup.scope")
    number = CLICKS.splitlines().index(next(each for each in CLICKS.splitlines() if '"partition"' in each)) + 1
    assert (line["name"], line["line"], line["variable"]) == ("clicks", number, None)
    assert line["file"] == str(tmp_path / "my.toml")
