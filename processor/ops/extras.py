"""Says which extra of the package brings what a command needs and this installation lacks.

A base install runs the worker, and all that looks at it. ``pip install 'seqmark[spark]'`` adds an extra.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from processor.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULES = {"spark": "pyspark", "report": "matplotlib", "postgres": "psycopg", "otel": "opentelemetry.sdk"}
"""By extra: the module by which it is known to be installed."""


def missing(*extras: str) -> list[str]:
    """Return those of the extras that are not installed; nothing of them is imported."""
    return [extra for extra in extras if not _found(MODULES[extra])]


def install(extras: Iterable[str]) -> str:
    """Return the words that a message ends in: which extras, and the command that brings them."""
    names = list(extras)
    return f"needs the extra{'s' if len(names) > 1 else ''}: pip install 'seqmark[{','.join(names)}]'"


def require(what: str, *extras: str, module: str | None = None) -> None:
    """Refuse ``what``, a command as users type it, where it needs an extra that is not installed.

    Args:
        what: The command.
        extras: What it needs.
        module: One more that the extras bring, and that an older install of them has not brought.

    Raises:
        MissingExtraError: Names all that are missing, and how they are installed.
    """
    if lacking := missing(*extras) or (list(extras) if module and not _found(module) else []):
        raise MissingExtraError(f"{what} {install(lacking)}")


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False
