"""Looks at the folder of the local state: whether a worker can use it, whose it is, and what it was made by.

Only warnings come of it: a config may be checked on another machine, and by another user, than the worker's.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from processor.config.near import listed
from processor.judges.factory import mode_of
from processor.paths import OTHERS
from processor.pipeline.hop_kinds import how_to_reset
from processor.state.kv.rocks import peek
from processor.state.kv.store import StoreError
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY, CorruptStateError

if TYPE_CHECKING:
    from pathlib import Path

    from processor.inspection.check.findings import Findings
    from schemas.config import Pipeline, Settings

KEY = "worker.state_dir"
LITTLE_BYTES = 1_000_000_000
"""Free room that is said to be little: RocksDB writes a file of up to 256 MB while it merges others."""
MOST_STORES = 4
"""Stores that are looked into, per pipeline: all partitions are judged by one definition."""


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
        found.warn(KEY, f"{folder} cannot be looked at: {error.strerror} ({error.filename})")


def _usable(folder: Path, found: Findings) -> bool:
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        found.warn(KEY, f"{there} is no folder: name another one")
        return False
    user = f"user {os.geteuid()}"
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        made = "is not writable" if there == folder.absolute() else f"cannot be made: {there} is not writable"
        owner = there.stat().st_uid
        found.warn(
            KEY,
            f"{folder} {made} for {user} (it is of user {owner}): a worker that runs as this user stops. Give "
            "the folder to the worker's user, or name another one",
        )
        return False
    free = shutil.disk_usage(there).free
    size = sum(each.stat().st_size for each in folder.rglob("*.sst")) if folder.is_dir() else 0
    if free < max(LITTLE_BYTES, size):
        found.warn(
            KEY,
            f"{free / 1e6:,.0f} MB are free in {folder}, where {size / 1e6:,.0f} MB of state are: rewriting it "
            "can take as much again. Make room, or name a folder on a larger disk",
        )
    there_is = "is there" if folder.is_dir() else "will be made"
    found.fine(KEY, f"{folder} {there_is}, writable, {free / 1e9:,.1f} GB free")
    return True


def _belongs(folder: Path, application: str, settings: Settings, found: Findings) -> None:
    """Compare what lies in the folder with what the config has."""
    homes = [home for home in folder.glob("*/home-*") if home.is_dir()]
    others = sorted({home.parent.name for home in homes} - {application})
    if others and not (folder / application).is_dir():
        found.warn(
            "worker.application_id",
            f"{folder} holds no state of application {application}, but of {listed(others)}: under another "
            "application_id a worker begins with an empty state. Set it back if that is not meant",
        )
    own = folder / application
    if not own.is_dir():
        return
    stat, me = own.stat(), os.geteuid()
    if stat.st_uid not in {me, 0}:
        found.warn(KEY, f"{own} is of user {stat.st_uid}, and this is user {me}: run as the worker's user")
    elif stat.st_mode & OTHERS:
        found.note(KEY, f"{own} can be read by other users; the worker closes it when it starts")
    known = {pipeline.name for pipeline in settings.pipelines}
    unknown = {each.name for home in own.glob("home-*") if home.is_dir() for each in home.iterdir()} - known
    if unknown:
        found.note(
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
            found.warn(
                key,
                f"differs from what the local state {store} was made with ({', '.join(mode.judged_by())}): a "
                "worker refuses that state. Set it back; or, to judge by the new rules, take another "
                "worker.application_id, or have the state rebuilt: "
                f"{how_to_reset(pipeline, '--to-earliest')}; see 'Reprocessing' and 'Beginning anew' in "
                "docs/operations.md",
            )
            return
    if stores:
        found.fine(key, f"the local state of {pipeline.name} was made by these rules")
