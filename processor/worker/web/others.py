"""Finds the other workers of the group, and asks each what the dashboard shows of all: its status, and for ids.

The group says who is in it, what each works on, and where its web server listens. So that a member which says
what it likes makes this worker ask nobody else, an address is asked only if it is the one under which the
broker sees that member, or a loopback address of a member that the broker sees where it sees this worker, and
that says it is on this machine; only `/status.json` and `/ids`,
without a redirect, for a second, up to a bound of bytes. Who is asked asks nobody: only ``workers=all`` fans
out.

All of it happens when somebody looks, for statuses once a second at most.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import orjson

from processor.errors import SeqmarkError
from processor.kafka.client import KafkaError
from processor.ops.web_port import machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.kafka.group.description import DescribedMember, GroupDescription
    from processor.pipeline.hops import Hop
    from processor.worker.web.board import Board
    from processor.worker.worker import Worker

ANSWER_S = 1.0
"""For the coordinator, and again for each worker; they are asked side by side."""
FRESH_S = 1.0
MOST_BYTES = 4 * 1024 * 1024
"""A status takes about 80 bytes per partition and 10 kB beside that."""
MOST_WORKERS = 100
AT_ONCE = 16
PATH = "/status.json"


def session_to_workers(seconds: float) -> aiohttp.ClientSession:
    """Return what workers are asked with, each for so many seconds at most; a context manager."""
    # No proxy and no cookies; what is compressed could be a thousand times as large.
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=seconds),
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class Heard(NamedTuple):
    """What a member of the group has said, an object of this application; None: nothing, and why."""

    member: DescribedMember
    where: str
    said: dict[str, Any] | None
    why: str


class OtherWorkers:
    """All workers of the application as far as they can be reached."""

    def __init__(self, application_id: str, hops: Sequence[Hop], worker: Worker, board: Board) -> None:
        self._application_id = application_id
        self._hops = hops
        self._worker = worker
        self._board = board
        self._said: dict[str, Any] = {}
        self._said_s = -math.inf
        self._turn = asyncio.Lock()

    async def fields(self) -> dict[str, Any]:
        """Return the group and a status for each of its workers, this one first."""
        async with self._turn:  # who comes meanwhile hears what the first one does
            if time.monotonic() - self._said_s >= FRESH_S:
                self._said = await self._look()
                self._said_s = time.monotonic()
        return self._said

    async def _look(self) -> dict[str, Any]:
        group, note = await self._group()
        own = self._board.fields()
        workers: list[dict[str, Any]] = []
        me = own["worker"]["name"]
        if group is not None:
            mine = [
                self._row(member, "", own, "", is_this=True) for member in group.members if member.name == me
            ]
            workers = mine + await self._others(group.members, me)
        if not any(row["this"] for row in workers):  # it has not joined yet, or nobody says who has
            row = {"name": me, "host": own["worker"]["host"], "address": None, "slots": {}, "partitions": {}}
            workers.insert(0, {**row, "this": True, "why": "", "status": own})
        return {
            "form": own["form"],
            "at_ms": own["at_ms"],
            "application": self._application_id,
            "group": {"state": None if group is None else group.state, "note": note},
            "workers": workers,
        }

    async def _group(self) -> tuple[GroupDescription | None, str]:
        membership = self._worker.membership
        if membership is None or not membership.name:
            return None, "this worker has not joined the group yet: others are not known"
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                return await membership.describe(ANSWER_S), ""
        except TimeoutError:
            return None, "the brokers do not say who is in the group: they do not answer"
        except (SeqmarkError, KafkaError) as error:
            return None, f"the brokers do not say who is in the group: {error}"

    async def ask(self, path: str) -> tuple[list[Heard], str]:
        """Ask each of the others for ``path``; returns what they say, and why not all are known."""
        group, note = await self._group()
        membership = self._worker.membership
        me = "" if membership is None else membership.name
        members = () if group is None else group.members
        return await self._hear(members, me, path), note

    async def _others(self, members: Sequence[DescribedMember], me: str) -> list[dict[str, Any]]:
        return [self._row(*each) for each in await self._hear(members, me, PATH)]

    async def _hear(self, group: Sequence[DescribedMember], me: str, path: str) -> list[Heard]:
        seen_at = next((member.host for member in group if member.name == me), "")
        members = [member for member in group if member.name != me]
        return await hear(members, path, self._application_id, seen_at)

    def _row(
        self,
        member: DescribedMember,
        where: str,
        status: dict[str, Any] | None,
        why: str,
        *,
        is_this: bool = False,
    ) -> dict[str, Any]:
        return {
            "name": member.name,
            "host": member.host,
            "address": where or None,
            "this": is_this,
            "slots": {hop.name: member.slots_of(hop.source) for hop in self._hops},
            "partitions": {
                hop.name: [tp.partition for tp in member.assigned if tp.topic == hop.source]
                for hop in self._hops
            },
            "why": why,
            "status": status,
        }


async def hear(
    members: Sequence[DescribedMember], path: str, application_id: str, own_host: str | None = None
) -> list[Heard]:
    """Ask members of a group for ``path``, side by side.

    Args:
        members: Those to ask.
        path: With its query.
        application_id: Whose workers are believed.
        own_host: Where the broker sees who asks; None: not known.
    """
    bound, own = asyncio.Semaphore(AT_ONCE), machine()
    async with session_to_workers(ANSWER_S) as session:

        async def heard(index: int, member: DescribedMember) -> Heard:
            if index >= MOST_WORKERS:
                return Heard(member, "", None, f"only {MOST_WORKERS} workers are asked")
            where, why = web_address(member, own, own_host)
            if not where:
                return Heard(member, "", None, why)
            async with bound:
                said, why = await _said_at(session, where, path, application_id)
            return Heard(member, where, said, why)

        return list(await asyncio.gather(*(heard(*each) for each in enumerate(members))))


async def _said_at(
    session: aiohttp.ClientSession, where: str, path: str, application_id: str
) -> tuple[dict[str, Any] | None, str]:
    """Return what the worker at ``where`` says, or why it says nothing that can be used."""
    try:
        async with session.get(f"http://{where}{path}", allow_redirects=False) as answer:
            if answer.status != 200:
                return None, f"{where} answers with {answer.status}: it is still starting, or too busy"
            said = orjson.loads(await bounded(answer.content))
    except TimeoutError:
        return None, f"{where} has not answered within {ANSWER_S:g} s: it is halted, busy, or unreachable"
    except orjson.JSONDecodeError:
        return None, f"{where} answers with something else than a status"
    except (aiohttp.ClientError, OSError, ValueError):
        return None, f"{where} cannot be reached: it is gone, or a network policy forbids it"
    if not isinstance(said, dict) or said.get("application") != application_id:
        return None, f"{where} is a worker of another application, or none"
    return said, ""


def web_address(member: DescribedMember, own_machine: str, own_host: str | None = None) -> tuple[str, str]:
    """Return ``HOST:PORT`` of a member's web server, or nothing and why it is not asked.

    Args:
        member: As the group describes it.
        own_machine: Of `processor.ops.web_port.machine`: members on it may listen on a loopback address. Each
            says for itself where it is, and may say what it likes.
        own_host: Where the broker sees who asks: a member on its machine is seen there, too; None: not known.
    """
    web = member.web
    if web is None:
        return "", "it says no address: it has no web server (web_port = 0), or is of an older version"
    seen = _number(member.host)
    said = seen if not web.host else _number(web.host)
    if said is not None and said.is_loopback:
        if web.machine != own_machine:
            return "", (
                "its web server listens on its own machine only: set worker.web_host to an address that "
                "other workers reach"
            )
        if own_host is not None and (seen is None or seen != _number(own_host)):
            return (
                "",
                f"it says that it is on this machine, where the brokers do not see it: they see {member.host}",
            )
    elif said is None or said != seen:
        # One that is bound to another of its addresses is not asked either.
        return "", f"it says an address at which the brokers do not see it: they see {member.host}"
    return f"{f'[{said}]' if said.version == 6 else said}:{web.port}", ""


async def bounded(content: aiohttp.StreamReader) -> bytes:
    """Return a body; one that is larger than any status is cut, and so no JSON any more."""
    body = bytearray()
    while len(body) <= MOST_BYTES and (more := await content.readany()):
        body += more
    return bytes(body[:MOST_BYTES])


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return None
    # As Java writes an IPv4 address on a socket of IPv6.
    return getattr(number, "ipv4_mapped", None) or number
