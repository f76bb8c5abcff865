"""How commands without a config reach a cluster: by an address, and security from the environment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import TypeAdapter, ValidationError

from processor.config.load import load
from schemas.config.reference import ENV_DELIMITER, ENV_PREFIX
from schemas.config.values import Servers, topic_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.config import Kafka, Settings

_OURS = f"{ENV_PREFIX}KAFKA{ENV_DELIMITER}"
_SERVERS = f"{_OURS}BOOTSTRAP_SERVERS"
_ANY = """
[worker]
application_id = "init"
[[pipelines]]
name = "init"
source = "source"
sink = "sink"
[pipelines.dedup]
mode = "insert-id"
id = [{ from = "key" }]
window = "1d"
"""
"""What a config has beside how the cluster is reached."""


def _bootstrap(text: str) -> str:
    try:
        servers: str = TypeAdapter(Servers).validate_python(text)
    except ValidationError as error:
        raise click.BadParameter(error.errors()[0]["msg"]) from None
    return servers


def bootstrap_option(*, required: bool) -> Callable[[Any], Any]:
    """Return the option ``--bootstrap``."""
    return click.option(
        "--bootstrap",
        type=_bootstrap,
        required=required,
        envvar=_SERVERS,
        show_envvar=True,
        metavar="H:P",
        help="Addresses of the cluster. Security comes from SEQMARK_KAFKA__... variables.",
    )


def topic_name(text: str) -> str:
    """Return the name of a topic.

    Raises:
        click.BadParameter: No topic can be called so.
    """
    if (fault := topic_fault(text)) is not None:
        raise click.BadParameter(f"{text!r} {fault}")
    return text


def kafka_of(bootstrap: str) -> Kafka:
    """Return how the cluster is reached: the address given, and security from the environment."""
    return read_text(f'[kafka]\nbootstrap_servers = "{bootstrap}"\n{_ANY}').kafka


def read_text(text: str) -> Settings:
    """Read a config as every command does, with what the environment says of Kafka but the address.

    Raises:
        ConfigError: It is wrong.
    """
    given = {name: value for name, value in os.environ.items() if name.startswith(_OURS) and name != _SERVERS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proposed.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, given)
