"""How much of the suite a run does: all of it with ``--all``, otherwise fewer kills and planted mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def add_option(parser: pytest.Parser) -> None:
    """Declare ``--all``."""
    parser.addoption(
        "--all",
        action="store_true",
        help="run everything: all kills, all planted mistakes, the long form of whatever has a short one",
    )


def everything(config: pytest.Config) -> bool:
    """Say whether this run leaves nothing out."""
    return bool(config.getoption("--all"))
