"""Compiles the kernels before a worker takes anything in, and says so where that takes long.

Once per machine and version it takes a minute or two, which looks like a worker that hangs; afterwards kernels
are loaded, within a second or two. It is done in a thread: the event loop answers `/health` meanwhile. Of
several first workers on a machine one compiles, and the others wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from processor.ops.metrics import Doing, State
from processor.ops.status_text import COMPILING, duration
from processor.pipeline.warm import compiled, compiling_alone, warm

if TYPE_CHECKING:
    from collections.abc import Collection

    from processor.ops.metrics import Metrics

log = logging.getLogger(__name__)

LOOK_S = 0.5
SAY_S = 10.0
WAITING = "waiting for another process, which compiles kernels for this machine"


async def compile_kernels(modes: Collection[str], metrics: Metrics) -> None:
    """Compile or load the kernels of these modes; ``metrics.doing`` and the log say how far it is."""
    with compiling_alone(modes) as is_turn:
        while not is_turn():
            if metrics.doing.text != WAITING:
                metrics.doing = Doing(WAITING, state=State.COMPILING)
                log.info(WAITING)
            await asyncio.sleep(LOOK_S)
        await _compile(modes, metrics)


async def _compile(modes: Collection[str], metrics: Metrics) -> None:
    before, began_s, said_s = compiled(), time.monotonic(), -SAY_S
    parts = [(0, 0)]
    metrics.doing = Doing("loading kernels", state=State.COMPILING)
    work = asyncio.ensure_future(asyncio.to_thread(warm, modes, lambda *part: parts.append(part)))
    while not (await asyncio.wait([work], timeout=LOOK_S))[0]:
        done, total = parts[-1]
        if not (kernels := compiled() - before):
            continue
        metrics.doing = Doing(COMPILING, done, total, State.COMPILING)
        if (now_s := time.monotonic() - began_s) - said_s >= SAY_S:
            said_s = now_s
            log.info(
                "%s, which takes a minute or two: %s%s compiled in %s",
                COMPILING,
                f"part {done} of {total}, " if total else "",
                kernels,
                duration(now_s),
            )
    work.result()
    if kernels := compiled() - before:
        took = duration(time.monotonic() - began_s)
        log.info("%s kernels compiled in %s; the next start loads them", kernels, took)
