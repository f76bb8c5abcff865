"""Tells which of the brokers' names nobody knows, and where nothing listens: a time-out tells neither."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

_LOOK_S = 5.0
"""A name server that does not answer says nothing about a name."""
_KNOCK_S = 2
"""A host that is up takes a connection, or refuses it, in milliseconds."""


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


async def nobody_at(bootstrap_servers: str) -> str | None:
    """Say that nothing listens at any of the addresses, and why; None: something does."""
    addresses = bootstrap_servers.split(",")
    found = await asyncio.gather(*map(_knock, addresses))
    if not all(found):
        return None
    why = "; ".join(f"{address} {each}" for address, each in zip(addresses, found, strict=True))
    return f"no broker at {bootstrap_servers}: is it running, and is kafka.bootstrap_servers right? ({why})"


async def _knock(address: str) -> str | None:
    """Say why nobody can be reached at an address; None: somebody listens."""
    try:
        async with asyncio.timeout(_KNOCK_S):
            _, writer = await asyncio.open_connection(host_of(address), int(address.rpartition(":")[2]))
    except socket.gaierror:
        return "does not resolve: no host of this name is known here"
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        return f"cannot be connected to: {os.strerror(error.errno) if error.errno else error}"
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_KNOCK_S):
            await writer.wait_closed()
    return None
