"""The names, files and config of one run of the demo at rest."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.config.load import load
from processor.demo.plan import NOT_INHERITED, new_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from schemas.config import FileBatch, Pipeline, Settings

_CONFIG = """\
# Written by `seqmark demo --mode batch`; the other commands take it, too, while the demo's broker is there.
[kafka]
bootstrap_servers = {servers}

[worker]
application_id = {application}
state_dir = {state}

[[batches]]                              # the files that there are
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

[[pipelines]]                            # what comes from now on
name = "clicks"
source = {source}
sink = {sink}
duplicates = {duplicates}
quarantine = {aside}

[pipelines.dedup]                        # as above, so that both know an id by the same hash
mode = "insert-id"
id = [{{ from = "value", pointer = "/event_id" }}]
window = "30d"
fingerprint = {{ exclude = ["/sent_at"] }}
on_collision = "rename"
rename = {{ to = "/event_id", keep = "header" }}
"""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """One run: its files, its settings, and the environment of a run that is a process of its own."""

    config: Path
    raw: Path
    worker_log: Path
    picture: Path
    report: Path
    settings: Settings
    environ: Mapping[str, str]

    @property
    def batch(self) -> FileBatch:
        """The only batch."""
        return self.settings.batches[0]

    @property
    def pipeline(self) -> Pipeline:
        """The only pipeline."""
        return self.settings.pipelines[0]


def plan_archive(
    directory: Path, bootstrap_servers: str, environ: Mapping[str, str] = os.environ
) -> ArchivePlan:
    """Write the config of a new run into ``directory`` and load it; the files of the run before go.

    Raises:
        ConfigError: What the environment says of Kafka is wrong.
    """
    directory = directory.resolve()
    name = new_run(directory)
    folder = directory / name
    values = {
        "servers": bootstrap_servers,
        "application": name,
        "source": f"{name}.raw",
        "sink": f"{name}.clean",
        "duplicates": f"{name}.duplicates",
        "aside": f"{name}.quarantine",
        **{part: str(folder / part) for part in ("state", "raw", "clean", "receipts", "quarantine")},
    }
    # A JSON string is a TOML string.
    quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    config = directory / "batch.toml"
    config.write_text(_CONFIG.format(**quoted), encoding="utf-8")
    inherited = {key: value for key, value in environ.items() if not key.upper().startswith(NOT_INHERITED)}
    inherited["SEQMARK_KAFKA__BOOTSTRAP_SERVERS"] = bootstrap_servers
    return ArchivePlan(
        config=config,
        raw=folder / "raw",
        worker_log=directory / "batch-worker.log",
        picture=directory / "batch.svg",
        report=directory / "batch.html",
        settings=load(config, inherited),
        environ=inherited,
    )
