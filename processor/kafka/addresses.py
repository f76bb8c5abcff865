"""Tells which of the brokers' names nobody knows, before a time-out tells nothing."""

from __future__ import annotations

import asyncio
import socket

_LOOK_S = 5.0
"""A name server that does not answer says nothing about a name."""


def host_of(address: str) -> str:
    """Return the host of ``HOST:PORT``, without the brackets of an IPv6 address."""
    return address.strip().rpartition(":")[0].strip("[]")


async def unresolved(bootstrap_servers: str) -> list[str]:
    """Return the hosts among the bootstrap servers that have no address here."""
    hosts = list(dict.fromkeys(map(host_of, bootstrap_servers.split(","))))
    known = await asyncio.gather(*map(_is_known, hosts))
    return [host for host, is_known in zip(hosts, known, strict=True) if not is_known]


async def _is_known(host: str) -> bool:
    try:
        async with asyncio.timeout(_LOOK_S):
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):  # a label of more than 63 characters is no name, either
        return False
    except (TimeoutError, OSError):
        return True
    return True


def cannot_resolve(hosts: list[str], bootstrap_servers: str) -> str:
    """Say that hosts have no address, and where to look."""
    one = len(hosts) == 1
    return (
        f"cannot resolve {'host' if one else 'hosts'} {', '.join(hosts)} of kafka.bootstrap_servers "
        f"({bootstrap_servers}): is {'it' if one else 'one of them'} misspelt, or a name that only another "
        "network knows, such as that of a container or a pod?"
    )
