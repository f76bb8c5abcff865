"""Which options do several commands share? Declared once, so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path

import click

# Not exists=True: a file that is missing is reported as every other problem of the config.
config_option = click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The config file (TOML); SEQMARK_... variables override its keys.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")
