"""Looks at what this machine has: the folder of the local state, memory, checkpoints of aggregates.

Only warnings come of it: a config may be checked on another machine, and by another user, than the worker's.
Checkpoints elsewhere need Spark's file systems: it compares them when it starts.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from processor.errors import StopError
from processor.judges.factory import mode_of
from processor.paths import OTHERS
from processor.pipeline.hop_kinds import how_to_reset
from processor.state.home import sizes
from processor.state.kv.rocks import peek
from processor.state.kv.store import StoreError
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY, CorruptStateError
from schemas.event import EventModel
from schemas.near import listed
from spark_sink.query.definition import differences, meaning, read_definition

if TYPE_CHECKING:
    from processor.inspection.findings import Findings
    from processor.kafka.topics.plan import ClusterPlan
    from schemas.config import Pipeline, Settings, Sink

PART, KEY = "machine", "worker.state_dir"
LITTLE_BYTES = 1_000_000_000
"""Free room that is said to be little: RocksDB writes a file of up to 256 MB while it merges others."""
MOST_STORES = 4
"""Stores that are looked into, per pipeline: all partitions are judged by one definition."""
BASE_BYTES = 300_000_000
"""A worker without state, see docs/sizing.md."""
INDEX_SHARE = 25 / 22
"""Bytes of memory per byte of local state: an id takes up to 25 in the index, and 20 to 24 on the disk."""


def check_state_folder(settings: Settings, found: Findings) -> None:
    """Look at ``worker.state_dir`` of a config with pipelines."""
    folder, application = settings.worker.state_dir, str(settings.worker.application_id)
    try:
        usable = _usable(folder, found)
        if usable and folder.is_dir():
            _belongs(folder, application, settings, found)
            for index, pipeline in enumerate(settings.pipelines):
                _definition(folder / application, f"pipelines.{index}.dedup", pipeline, found)
    except OSError as error:
        found.warn_once(PART, KEY, f"{folder} cannot be looked at: {error.strerror} ({error.filename})")


def _usable(folder: Path, found: Findings) -> bool:
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        found.warn_once(PART, KEY, f"{there} is no folder: name another one")
        return False
    user = f"user {os.geteuid()}"
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        made = "is not writable" if there == folder.absolute() else f"cannot be made: {there} is not writable"
        owner = there.stat().st_uid
        found.warn_once(
            PART,
            KEY,
            f"{folder} {made} for {user} (it is of user {owner}): a worker that runs as this user stops. Give "
            "the folder to the worker's user, or name another one",
        )
        return False
    free = shutil.disk_usage(there).free
    size = sum(each.stat().st_size for each in folder.rglob("*.sst")) if folder.is_dir() else 0
    if free < max(LITTLE_BYTES, size):
        found.warn_once(
            PART,
            KEY,
            f"{free / 1e6:,.0f} MB are free in {folder}, where {size / 1e6:,.0f} MB of state are: rewriting it "
            "can take as much again. Make room, or name a folder on a larger disk",
        )
    there_is = "is there" if folder.is_dir() else "will be made"
    found.ok(PART, KEY, f"{folder} {there_is}, writable, {free / 1e9:,.1f} GB free")
    return True


def _belongs(folder: Path, application: str, settings: Settings, found: Findings) -> None:
    """Compare what lies in the folder with what the config has."""
    homes = [home for home in folder.glob("*/home-*") if home.is_dir()]
    others = sorted({home.parent.name for home in homes} - {application})
    if others and not (folder / application).is_dir():
        found.warn_once(
            PART,
            "worker.application_id",
            f"{folder} holds no state of application {application}, but of {listed(others)}: under another "
            "application_id a worker begins with an empty state. Set it back if that is not meant",
        )
    own = folder / application
    if not own.is_dir():
        return
    stat, me = own.stat(), os.geteuid()
    if stat.st_uid not in {me, 0}:
        found.warn_once(
            PART, KEY, f"{own} is of user {stat.st_uid}, and this is user {me}: run as the worker's user"
        )
    elif stat.st_mode & OTHERS:
        found.note(PART, KEY, f"{own} can be read by other users; the worker closes it when it starts")
    known = {pipeline.name for pipeline in settings.pipelines}
    unknown = {each.name for home in own.glob("home-*") if home.is_dir() for each in home.iterdir()} - known
    if unknown:
        found.note(
            PART,
            KEY,
            f"{own} holds state of {listed(sorted(unknown))}, which is no pipeline of this config: was one "
            "renamed, it begins with an empty state. It can be deleted where nobody uses it",
        )


def _definition(own: Path, key: str, pipeline: Pipeline, found: Findings) -> None:
    """Compare the pipeline's rules with those that its local state was made by."""
    stores = sorted(each for each in own.glob(f"home-*/{pipeline.name}/*") if (each / "CURRENT").exists())
    mode = mode_of(pipeline)
    for store in stores[:MOST_STORES]:
        try:
            value = peek(store, POSITION_KEY)
            position = None if value is None else Position.decode(value)
        except (StoreError, CorruptStateError):
            continue  # the worker rebuilds it
        if position is None:
            continue
        if position.definition != mode.definition():
            found.warn_once(
                PART,
                key,
                f"differs from what the local state {store} was made with ({', '.join(mode.judged_by())}): a "
                "worker refuses that state. Set it back; or, to judge by the new rules, take another "
                "worker.application_id, or have the state rebuilt: "
                f"{how_to_reset(pipeline, '--to-earliest')}; see 'Reprocessing' and 'Beginning anew' in "
                "docs/operations.md",
            )
            return
    if stores:
        found.ok(PART, key, f"the local state of {pipeline.name} was made by these rules")


def check_memory(settings: Settings, plan: ClusterPlan | None, found: Findings) -> None:
    """Say what memory Bloom filters take, even without ids; warn where a worker needs more than its limit.

    Known are filters, by the config, of all partitions; and ids by what a worker's state folder holds of them.
    """
    worker, limit = settings.worker, settings.worker.memory_limit
    needs = {pipeline.name: mode_of(pipeline).memory() for pipeline in settings.pipelines}
    for index, need in enumerate(needs.values()):
        if need.note is not None:
            key, note = need.note
            found.note(PART, f"pipelines.{index}.dedup.{key}", note)
    if limit is None:
        return
    partitions = {each.pipeline: each.partitions for each in plan.topics} if plan else {}
    filters = sum(partitions.get(name, 0) * need.filter_bytes for name, need in needs.items())
    exact = [name for name, need in needs.items() if need.follows_state]
    ids = int(max(sizes(worker.state_dir, str(worker.application_id), exact), default=0) * INDEX_SHARE)
    beside = f"MB, and a worker about {BASE_BYTES / 1e6:.0f} MB beside them"
    within = f"within {limit / 1e6:,.0f} MB"
    notes = []
    if filters and BASE_BYTES + filters > limit:
        notes.append(
            f"the filters of all partitions take {filters / 1e6:,.0f} {beside}: one that has all partitions "
            f"cannot start {within}. Raise it, or start so many workers that none has to have them all"
        )
    if ids and BASE_BYTES + ids > limit:
        notes.append(
            f"the state in {worker.state_dir} is of ids that take up to {ids / 1e6:,.0f} {beside}: it may "
            f"not be able to start {within}"
        )
    for note in notes:
        found.warning(PART, "worker.memory_limit", note)


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
        found.note(PART, key, f"{url.scheme} is not looked at here: Spark compares it when it starts")
        return
    try:
        written = read_definition(_LocalFolder(Path(url.path if url.scheme else sink.checkpoint)))
    except (StopError, OSError, UnicodeDecodeError) as error:
        found.warn_once(PART, key, str(error))
        return
    if written is None:
        return
    changed = differences(written.means, meaning(sink, EventModel.load(sink.event)))
    if changed:
        found.warn_once(
            PART,
            key,
            f"has counted something else than the config says now: {'; '.join(changed)}. Spark refuses to go "
            "on: set it back; or, to count anew from the topic's first record, name a new checkpoint and a new "
            "output",
        )
    else:
        found.ok(PART, key, f"{sink.checkpoint} has counted what {sink.name} says")
