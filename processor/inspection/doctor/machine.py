"""Looks at this machine: room and rights in the state folder, Java, and what else is installed."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from processor.broker.java import find_java
from processor.errors import BrokerError
from processor.ops.extras import MODULES, install, missing
from processor.ops.status_text import size

if TYPE_CHECKING:
    from pathlib import Path

    from processor.inspection.doctor.rows import Trials
    from schemas.config import Settings

PART = "machine"
LEAST_FREE_BYTES = 1_000_000_000
"""About 40 million ids; a state folder that is full stops the worker."""


def try_machine(settings: Settings, trials: Trials) -> None:
    """Note what is there and what is missing."""
    _try_folder(settings.worker.state_dir, trials)
    _try_java(settings, trials)
    _try_extras(settings, trials)


def _try_folder(folder: Path, trials: Trials) -> None:
    tried = f"worker.state_dir {folder}"
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = f"{there} is no folder" if not there.is_dir() else f"this user cannot write to {there}"
        trials.problem(PART, tried, why, "set worker.state_dir to a folder that this user can write to")
        return
    free = shutil.disk_usage(there).free
    says = f"{size(free)} free" + ("" if there == folder.absolute() else ", not made yet")
    if free < LEAST_FREE_BYTES:
        trials.warning(PART, tried, says, "make room: a worker stops where the disk is full")
    else:
        trials.ok(PART, tried, says)


def _try_java(settings: Settings, trials: Trials) -> None:
    tried = "Java, for Spark and the embedded broker"
    try:
        java = find_java()
    except BrokerError as error:
        if settings.aggregates:
            trials.problem(PART, tried, str(error), "install a JDK 17 or 21, or set JAVA_HOME")
        else:
            trials.ok(PART, tried, f"{error} A worker needs none")
    else:
        trials.ok(PART, tried, f"Java {java.major}: {java.path}")


def _try_extras(settings: Settings, trials: Trials) -> None:
    lacking = missing(*MODULES)
    installed = [extra for extra in MODULES if extra not in lacking]
    tried, says = "optional extras", f"installed: {', '.join(installed) or 'none'}"
    if "spark" in lacking and settings.aggregates:
        trials.problem(PART, tried, says, f"`seqmark aggregate` {install(['spark'])}")
    else:
        trials.ok(PART, tried, says + (f"; not installed: {', '.join(lacking)}" if lacking else ""))
