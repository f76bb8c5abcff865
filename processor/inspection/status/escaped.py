"""Asks the live workers what has escaped: only they know, and only since their start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from processor.config.visible import visible
from processor.ops.web_port import machine
from processor.worker.web.others import MOST_WORKERS, PATH, bounded, session_to_workers, web_address

if TYPE_CHECKING:
    from processor.kafka.group.description import DescribedMember, GroupDescription

ASK_S = 1.0
MOST_SENTENCES = 2
"""Of one pipeline and worker: one per reason."""


async def escaped(group: GroupDescription, application_id: str) -> dict[str, list[str]]:
    """Return by pipeline what its workers say has escaped; of those that do not answer, nothing."""
    own = machine()
    async with session_to_workers(ASK_S) as session:
        asked = [
            _said(session, member, where, application_id)
            for member in group.members[:MOST_WORKERS]
            if (where := web_address(member, own)[0])
        ]
        found: dict[str, list[str]] = {}
        for answer in await asyncio.gather(*asked):
            for pipeline, sentence in answer:
                found.setdefault(pipeline, []).append(sentence)
    return found


async def _said(
    session: aiohttp.ClientSession, member: DescribedMember, where: str, application_id: str
) -> list[tuple[str, str]]:
    try:
        async with session.get(f"http://{where}{PATH}", allow_redirects=False) as answer:
            said: dict[str, Any] = orjson.loads(await bounded(answer.content))
        if said["application"] != application_id:
            return []
        return [
            (str(each["pipeline"]), f"worker {member.short}: {visible(str(sentence))}")
            for each in said["pipelines"]
            if each["escaped"] is not None
            for sentence in each["escaped"]["says"][:MOST_SENTENCES]
        ]
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return []  # it is gone, or an older one, or somebody else
