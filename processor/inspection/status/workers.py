"""Asks the live workers what they do, and what has escaped since their start: only they know."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import orjson

from processor.config.visible import visible
from processor.ops.metrics import WORKS
from processor.ops.web_port import machine
from processor.worker.web.others import MOST_WORKERS, PATH, bounded, session_to_workers, web_address

if TYPE_CHECKING:
    from processor.kafka.group.description import DescribedMember, GroupDescription

ASK_S = 1.0
MOST_CHARACTERS = 300
MOST_SENTENCES = 2
"""Of one pipeline and worker: one per reason."""


class WorkerWords(NamedTuple):
    """What workers say of a pipeline, in sentences."""

    states: list[str]
    """Of those that do not work on it, what they do instead."""
    escaped: list[str]


async def heard(group: GroupDescription, application_id: str) -> dict[str, WorkerWords]:
    """Return by pipeline what its workers say; of those that do not answer, nothing."""
    own = machine()
    async with session_to_workers(ASK_S) as session:
        asked = [
            _said(session, member, where, application_id)
            for member in group.members[:MOST_WORKERS]
            if (where := web_address(member, own)[0])
        ]
        found: dict[str, WorkerWords] = defaultdict(lambda: WorkerWords([], []))
        for answer in await asyncio.gather(*asked):
            for pipeline, said in answer:
                found[pipeline].states.extend(said.states)
                found[pipeline].escaped.extend(said.escaped)
    return found


async def _said(
    session: aiohttp.ClientSession, member: DescribedMember, where: str, application_id: str
) -> list[tuple[str, WorkerWords]]:
    try:
        async with session.get(f"http://{where}{PATH}", allow_redirects=False) as answer:
            said: dict[str, Any] = orjson.loads(await bounded(answer.content))
        if said["application"] != application_id:
            return []
        who, why = f"worker {member.short}", str(said["worker"]["reason"])[:MOST_CHARACTERS]
        return [
            (
                str(each["pipeline"]),
                WorkerWords(
                    [] if each["state"] in WORKS else [visible(f"{who}: {each['state']}: {why}".rstrip(": "))],
                    [
                        visible(f"{who}: {sentence}")
                        for sentence in (each["escaped"] or {"says": ()})["says"][:MOST_SENTENCES]
                    ],
                ),
            )
            for each in said["pipelines"]
        ]
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return []  # it is gone, or an older one, or somebody else
