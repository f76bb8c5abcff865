"""Decides which requests are answered: none that a foreign page makes a browser send, none that is oversized.

The worker's endpoints know no password: who reaches the port may read. What must not happen is that a page of
another origin reads them through the browser of somebody who reaches the port. Two ways lead there, and each is
closed by itself:

- a request of a foreign page: `Origin` and `Sec-Fetch-Site` name it, and no answer allows another origin;
- DNS rebinding, a foreign name that suddenly stands for this address: then `Host` holds the foreign name. An
  address written as a number cannot be rebound, and names are those that the config and this machine have.

Views that are ``open`` answer whoever asks: Prometheus and the probes of Kubernetes name pods as they like.
Sizes are bounded below those at which aiohttp itself hangs up.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp.web import BaseRequest

    from schemas.config.worker import WorkerOptions

TARGET_BYTES = 4096
"""Of path and query: an id of several parts has place in it."""
HEADERS_BYTES = 16_384
"""Of all headers: a browser sends the cookies of everything else on localhost along."""
PARSED_BYTES = 2 * HEADERS_BYTES
SERVER: Final[Mapping[str, Any]] = {
    "max_line_size": PARSED_BYTES,
    "max_field_size": PARSED_BYTES,
    "lingering_time": 0.0,
    "keepalive_timeout": 30.0,
}
"""Of aiohttp's runner: what it reads of a line or a header before it hangs up is more than the guard allows, so
that the guard says why; a body is not waited for, and an idle connection not kept for an hour."""
METHODS = ("GET", "HEAD")
_OWN_PAGE = ("same-origin", "none")
"""What a browser says of requests by a page of ours, and by a person who has typed the address."""


class Refusal(NamedTuple):
    """Why a request is not answered: a status of HTTP and a sentence."""

    status: int
    text: str


def names_of(worker: WorkerOptions) -> frozenset[str]:
    """Return the names, in lower case, under which this machine may be asked; numbers always may."""
    given = ("localhost", socket.gethostname(), worker.web_host, *worker.web_names)
    return frozenset(name.lower() for name in given)


def refusal(
    request: BaseRequest, names: Iterable[str], *, is_open: bool, is_page: bool = False
) -> Refusal | None:
    """Return why a request is not answered; None: it is.

    Args:
        request: As aiohttp has read it; its body is not.
        names: Of `names_of`.
        is_open: Whether any host and any origin may ask.
        is_page: Whether a link on a foreign page may lead there: the answer holds no data, and is no frame.
    """
    if request.method not in METHODS:
        return Refusal(405, f"{' and '.join(METHODS)} only")
    if is_open:
        return None
    return _oversized(request) or _misnamed(request, names) or _foreign(request, is_page=is_page)


def _oversized(request: BaseRequest) -> Refusal | None:
    if len(request.raw_path.encode(errors="surrogateescape")) > TARGET_BYTES:
        return Refusal(414, f"path and query take up to {TARGET_BYTES:,} bytes")
    if sum(len(name) + len(value) for name, value in request.raw_headers) > HEADERS_BYTES:
        return Refusal(431, f"headers take up to {HEADERS_BYTES:,} bytes")
    if request.body_exists:
        return Refusal(413, "no body is taken")
    return None


def _misnamed(request: BaseRequest, names: Iterable[str]) -> Refusal | None:
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1:
        return Refusal(400, "one Host, please")
    host = _hostname(hosts[0])
    if host is None or not (_is_number(host) or host in names):
        return Refusal(
            403, "this worker is not known by that name: open it by its address, or name it in worker.web_names"
        )
    return None


def _foreign(request: BaseRequest, *, is_page: bool) -> Refusal | None:
    text = "pages of other origins may not read this"
    origins = request.headers.getall("Origin", [])
    # Of another scheme only behind a proxy that takes TLS off: the name and the port are what counts.
    if any(urlsplit(origin).netloc.lower() != request.headers["Host"].lower() for origin in origins):
        return Refusal(403, text)
    sites = request.headers.getall("Sec-Fetch-Site", [])
    if all(site in _OWN_PAGE for site in sites):
        return None
    follows_link = (
        request.headers.get("Sec-Fetch-Mode") == "navigate"
        and request.headers.get("Sec-Fetch-Dest") == "document"
    )
    return None if is_page and follows_link else Refusal(403, text)


def _hostname(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
