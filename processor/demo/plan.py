"""The names, files and config of one run of the demo.

Every run has topics and an application of its own, so that it can run again on a broker that is kept.
Its config is a file that stays in the folder: what a reader may copy from, and what the worker reads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from processor.config.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from schemas.config import Pipeline, Settings

Mode = Literal["watermark", "insert-id", "fingerprint", "verdicts"]
ID_MEMBER = "event_id"
"""Of a click: its id, in the modes ``insert-id`` and ``fingerprint``."""

# The demo's config says these itself; a value meant for another config must not redirect it.
NOT_INHERITED = (
    "SEQMARK_WORKER__",
    "SEQMARK_PIPELINES__",
    "SEQMARK_AGGREGATES__",
    "SEQMARK_SINKS__",
    "SEQMARK_BATCHES__",
)

_CONFIG = """\
# Written by `seqmark demo`; the other commands take it too while the demo's broker is there.
[kafka]
bootstrap_servers = {servers}

[worker]
application_id = {application}
state_dir = {state_dir}

[[pipelines]]
name = "clicks"
source = {source}
{output}
duplicates = {duplicates}
quarantine = {quarantine}

[pipelines.dedup]
{dedup}

[[aggregates]]                   # an hour is written once, when no click can come for it any more
name = "hourly"
{topic}
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1h"
watermark = "10m"                # how late a click may be
group_by = ["campaign"]
aggregates = {{ events = "count", revenue = "sum:amount" }}
output = {{ kind = "parquet", path = {files} }}
checkpoint = {checkpoint}
"""
_RECORDS = "sink = {sink}", "topic = {sink}"
_VERDICTS = (
    """\
output = "verdicts"              # no clean topic: which offsets of the source to skip
verdicts = {verdicts}""",
    """\
topic = {source}
verdicts = {verdicts}""",
)
_DEDUP: Mapping[Mode, str] = {
    "watermark": """\
mode = "watermark"
scope = "partition"
sequence = { from = "header", name = "seq", format = "int64" }""",
    "verdicts": """\
mode = "watermark"
scope = "partition"
sequence = { from = "header", name = "seq", format = "int64" }""",
    "insert-id": f"""\
mode = "insert-id"
id = [{{ from = "value", pointer = "/{ID_MEMBER}" }}]
window = "1h"                    # what is sent again later than this passes again""",
    "fingerprint": f"""\
mode = "insert-id"
id = [{{ from = "value", pointer = "/{ID_MEMBER}" }}]
window = "12h"                   # longer than the stream: no id of it expires
fingerprint = {{ exclude = ["/sent_at"] }}   # the same id and content: a resend, whenever it was sent
on_collision = "rename"          # the same id, other content: another click, which passes under a new id
rename = {{ to = "/{ID_MEMBER}", keep = "header" }}""",
}
# What a run names its folder: only such ones are removed by the next run.
_RUN = re.compile(r"demo-[0-9]{6}-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One run: how duplicates are found, its files, its settings and the environment of its worker."""

    mode: Mode
    config: Path
    truth: Path
    worker_log: Path
    picture: Path
    report: Path
    files: Path
    state_dir: Path
    settings: Settings
    environ: Mapping[str, str]

    @property
    def pipeline(self) -> Pipeline:
        """The only pipeline."""
        return self.settings.pipelines[0]


def new_run(directory: Path) -> str:
    """Return the name of a new run in ``directory``, and remove the folders of the runs before."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        if _RUN.fullmatch(old.name) and old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
    # The time for people who look at the topics, the rest for runs of the same second.
    return f"demo-{time.strftime('%H%M%S')}-{uuid.uuid4().hex[:6]}"


def make_plan(
    directory: Path, bootstrap_servers: str, mode: Mode = "watermark", environ: Mapping[str, str] = os.environ
) -> DemoPlan:
    """Write the config of a new run into ``directory`` and load it.

    What the run before has left there goes: its files belong to topics that nobody reads any more.

    Raises:
        ConfigError: What the environment says of Kafka is wrong.
    """
    directory = directory.resolve()
    name = new_run(directory)
    state_dir = directory / f"state-{name}"
    files = directory / name / "hourly"
    values = {
        "servers": bootstrap_servers,
        "application": name,
        "state_dir": str(state_dir),
        "source": f"{name}.raw",
        "sink": f"{name}.clean",
        "verdicts": f"{name}.verdicts",
        "duplicates": f"{name}.duplicates",
        "quarantine": f"{name}.quarantine",
        "files": str(files),
        "checkpoint": str(directory / name / "checkpoint"),
    }
    config = directory / "demo.toml"
    # A JSON string is a TOML string.
    quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    parts = _VERDICTS if mode == "verdicts" else _RECORDS
    output, topic = (each.format(**quoted) for each in parts)
    text = _CONFIG.format(dedup=_DEDUP[mode], output=output, topic=topic, **quoted)
    config.write_text(text, encoding="utf-8")
    inherited = {key: value for key, value in environ.items() if not key.upper().startswith(NOT_INHERITED)}
    inherited["SEQMARK_KAFKA__BOOTSTRAP_SERVERS"] = bootstrap_servers
    return DemoPlan(
        mode=mode,
        config=config,
        truth=directory / "truth.jsonl",
        worker_log=directory / "worker.log",
        picture=directory / "clicks.svg",
        report=directory / "report.html",
        files=files,
        state_dir=state_dir,
        settings=load(config, inherited),
        environ=inherited,
    )
