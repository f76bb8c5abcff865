"""The names, files and config of one run of the demo at rest."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.config.load import load
from processor.demo.plan import new_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from schemas.config import FileBatch, Settings

# The demo's config says these itself; a value meant for another config must not redirect it.
_INHERITED_NOT = (
    "SEQMARK_KAFKA__",
    "SEQMARK_WORKER__",
    "SEQMARK_PIPELINES__",
    "SEQMARK_AGGREGATES__",
    "SEQMARK_SINKS__",
    "SEQMARK_BATCHES__",
)
_CONFIG = """\
# Written by `seqmark demo --mode batch`; `seqmark batch` and `seqmark report` take it, too.
[[batches]]
name = "clicks"
input = {{ format = "json", path = {raw} }}
output = {{ format = "parquet", path = {clean} }}
duplicates = {receipts}
quarantine = {quarantine}
id = ["event_id"]
event_time = "occurred_at"
window = "30d"                           # how far back earlier runs count
fingerprint = {{ exclude = ["sent_at"] }}  # the same id and content: a resend, whenever it was sent
on_collision = "rename"                  # the same id, other content: another click, kept under a new id
"""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """One run: its files, its settings, and the environment of a run that is a process of its own."""

    config: Path
    raw: Path
    picture: Path
    report: Path
    settings: Settings
    environ: Mapping[str, str]

    @property
    def batch(self) -> FileBatch:
        """The only batch."""
        return self.settings.batches[0]


def plan_archive(directory: Path, environ: Mapping[str, str] = os.environ) -> ArchivePlan:
    """Write the config of a new run into ``directory`` and load it; the files of the run before go."""
    directory = directory.resolve()
    folder = directory / new_run(directory)
    # A JSON string is a TOML string.
    quoted = {
        name: json.dumps(str(folder / name), ensure_ascii=False)
        for name in ("raw", "clean", "receipts", "quarantine")
    }
    config = directory / "batch.toml"
    config.write_text(_CONFIG.format(**quoted), encoding="utf-8")
    inherited = {key: value for key, value in environ.items() if not key.upper().startswith(_INHERITED_NOT)}
    return ArchivePlan(
        config=config,
        raw=folder / "raw",
        picture=directory / "batch.svg",
        report=directory / "batch.html",
        settings=load(config, inherited),
        environ=inherited,
    )
