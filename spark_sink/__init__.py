"""The Spark side: reads the clean topics and files at rest, and is the only importer of pyspark.

For users: `read_clean`, `register` and `clean_topic`. Each is imported when it is asked for: pyarrow and the
kernels are slow to import, and not every install has them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_sink.batch.reader import read_clean
    from spark_sink.source.clean import clean_topic, register

__all__ = ["clean_topic", "read_clean", "register"]

_MODULES = {"clean_topic": "source.clean", "read_clean": "batch.reader", "register": "source.clean"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
