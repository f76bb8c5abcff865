"""``seqmark config`` tells about the config file itself."""

from __future__ import annotations

import json

import click


@click.group()
def config() -> None:
    """Tell about the config file itself."""


@config.command()
def schema() -> None:
    """Print the JSON schema of the config file (draft 2020-12), for editors.

    Written into seqmark.schema.json, an editor with Taplo (in VS Code: Even Better TOML) completes, explains
    and checks keys in each file that begins with the line "#:schema ./seqmark.schema.json".
    """
    # pydantic is slow to import: help is shown without it.
    from processor.config.schema import config_schema  # noqa: PLC0415 - see above

    click.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))
