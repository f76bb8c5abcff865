"""Compares aggregates with what their checkpoints have counted, without Spark.

Only checkpoints on this machine are looked at: others need Spark's file systems, and it says the same when it
starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from processor.errors import StopError
from schemas.event import EventModel
from spark_sink.query.definition import differences, meaning, read_definition

if TYPE_CHECKING:
    from processor.inspection.check.findings import Findings
    from schemas.config import Settings, Sink


class _LocalFolder:
    """A folder of this machine, as `spark_sink.files` shows one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> str:
        return str(self._folder)

    def read(self, name: str) -> str | None:
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else None


def check_checkpoints(settings: Settings, found: Findings) -> None:
    """Look at the checkpoints of aggregates whose models have been found to fit."""
    for index, sink in enumerate(settings.aggregates):
        _checkpoint(f"aggregates.{index}.checkpoint", sink, found)


def _checkpoint(key: str, sink: Sink, found: Findings) -> None:
    url = urlsplit(sink.checkpoint)
    if url.scheme not in {"", "file"}:
        found.note(key, f"{url.scheme} is not looked at here: Spark compares it when it starts")
        return
    try:
        written = read_definition(_LocalFolder(Path(url.path if url.scheme else sink.checkpoint)))
    except (StopError, OSError, UnicodeDecodeError) as error:
        found.warn(key, str(error))
        return
    if written is None:
        return
    changed = differences(written.means, meaning(sink, EventModel.load(sink.event)))
    if changed:
        found.warn(
            key,
            f"has counted something else than the config says now: {'; '.join(changed)}. Spark refuses to go "
            "on: set it back; or, to count anew from the topic's first record, name a new checkpoint and a new "
            "output",
        )
    else:
        found.fine(key, f"{sink.checkpoint} has counted what {sink.name} says")
