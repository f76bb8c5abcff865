"""Takes the port of the web server before anything else is begun.

Who asks before the server runs is answered when it does: the system keeps connections waiting. Invariant: a
port that the config names is the port that is served; one that is only the default gives way to the next free
one, so that a second worker on a machine starts without being told.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.config import WorkerOptions

log = logging.getLogger(__name__)

_TRIED = 100
_NAMESPACE = Path("/proc/self/ns/net")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Ports from the default on."""


def listen(worker: WorkerOptions) -> list[socket.socket]:
    """Return listening sockets, one per address of ``web_host`` and all of one port; none where that is 0.

    Raises:
        StopError: The port is taken or may not be used, or the host is none of this machine's.
    """
    if worker.web_port == 0:
        return []
    named = "web_port" in worker.model_fields_set
    for port in range(worker.web_port, min(worker.web_port + (1 if named else _TRIED), 65_536)):
        try:
            sockets = _listen(worker.web_host, port)
        except OSError as error:
            if named or error.errno != errno.EADDRINUSE:
                raise _refused(worker.web_host, port, error) from error
            continue
        if port != worker.web_port:
            log.info(
                "port %s is taken, by another worker perhaps: /health, /ready and /metrics are at "
                "http://%s:%s; worker.web_port names a port, 0 is none",
                worker.web_port,
                worker.web_host,
                port,
            )
        return sockets
    raise StopError(
        f"web server at {worker.web_host}: all ports from {worker.web_port} to {port} are taken; set "
        "worker.web_port to a free port, or to 0 for none"
    )


def _refused(host: str, port: int, error: OSError) -> StopError:
    # Python's own words repeat the address.
    known = not isinstance(error, socket.gaierror) and error.errno in errno.errorcode
    what = os.strerror(error.errno or 0) if known else error.strerror or str(error)
    return StopError(
        f"web server at {host}:{port}: {what[0].lower()}{what[1:]}; nothing was started. Set worker.web_port "
        "to a free port, or to 0 for none; without it the next free port from 6066 on is taken"
    )


def _listen(host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sockets.append(socket.create_server(address, family=family, backlog=128))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def address_of(sockets: Sequence[socket.socket]) -> tuple[str, int] | None:
    """Return the address in numbers that sockets listen on, empty for all of this machine's, and their port."""
    if not sockets:
        return None
    host, port = sockets[0].getsockname()[:2]
    return ("" if host in {"0.0.0.0", "::"} else host), port  # noqa: S104 - it is no bind


def machine() -> str:
    """Return what is the same for all processes that reach each other by loopback addresses, and for no others.

    Containers of one host have the host's name for its boot, but a network of their own.
    """
    try:
        network = f"{_BOOT.read_text(encoding='ascii').strip()} {_NAMESPACE.stat().st_ino}"
    except OSError:  # no Linux
        network = f"{socket.gethostname()} {uuid.getnode()}"
    return hashlib.blake2b(network.encode(), digest_size=8, person=b"seqmark web").hexdigest()
