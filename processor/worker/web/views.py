"""Answers requests by views, each behind the guard, with headers that let a page load nothing from elsewhere.

Invariant: a view cannot be reached but through `Views.answer`, and whatever fails in one is logged and said as
500 without its words: it never reaches the worker.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp.web import Response

from processor.worker.web.guard import METHODS, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from aiohttp.web import Application, Request, StreamResponse

log = logging.getLogger(__name__)

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer; a view may say another policy of its own."""
AT_ONCE = 2
"""Costly views that are answered side by side; more are told to come again."""
WAIT_S = 20.0
"""For a costly view: what takes longer is given up, and its Kafka clients are closed."""


@dataclass(frozen=True, slots=True)
class View:
    """A page of the worker.

    Attributes:
        path: All of it; there are no patterns.
        answer: Called with a request that the guard lets pass.
        is_open: Whether any host and any origin may ask, as Prometheus and probes do.
        is_page: Whether links on foreign pages may lead there.
        is_costly: Whether it reads Kafka or an index: then only few are answered at once.
    """

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    is_open: bool = False
    is_page: bool = False
    is_costly: bool = False


def json_response(said: Any, status: int = 200) -> Response:
    """Return an answer of JSON."""
    return Response(body=orjson.dumps(said), status=status, content_type="application/json", charset="utf-8")


def fault(status: int, text: str) -> Response:
    """Return an answer that says in a sentence why there is no other."""
    return json_response({"error": text}, status)


class Views:
    """The views of one worker, which may be asked under ``names``."""

    def __init__(self, views: Iterable[View], names: frozenset[str]) -> None:
        self._views = {view.path: view for view in views}
        self._names = names
        self._costly = 0

    def add_to(self, application: Application) -> None:
        """Have an application of aiohttp answer by these views, before it is started."""
        application.router.add_route("*", "/{path:.*}", self.answer)
        application.on_response_prepare.append(_harden)

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        view = self._views.get(request.path)
        is_open = view is not None and view.is_open
        is_page = view is not None and view.is_page
        refused = refusal(request, self._names, is_open=is_open, is_page=is_page)
        if refused is not None:
            response = fault(*refused)
            if refused.status == 405:
                response.headers["Allow"] = ", ".join(METHODS)
            return response
        if view is None:
            return fault(404, f"there are {', '.join(sorted(self._views))}")
        try:
            return await (self._bounded(view, request) if view.is_costly else view.answer(request))
        except Exception:
            log.exception("%s cannot be answered", view.path)
            return fault(500, "this cannot be answered; the worker's log says why")

    async def _bounded(self, view: View, request: Request) -> Response:
        if self._costly >= AT_ONCE:
            response = fault(429, "others are being answered: try again in a second")
            response.headers["Retry-After"] = "1"
            return response
        self._costly += 1
        try:
            async with asyncio.timeout(WAIT_S):
                return await view.answer(request)
        except TimeoutError:
            return fault(504, f"no answer in {WAIT_S:g} s: are the brokers busy?")
        finally:
            self._costly -= 1


async def _harden(request: Request, response: StreamResponse) -> None:
    del request
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
