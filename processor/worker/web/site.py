"""Holds the views of a worker together: what it answers, and under which path.

A view that needs what only a program above the worker has (the story of a record, the last receipts) gets it as
a callable in `Answers`: the worker imports nothing of `processor.inspection`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp.web import Response

from processor.config.visible import visible
from processor.errors import ConfigError, SeqmarkError
from processor.pipeline.hops import hops
from processor.worker.web.board import Board
from processor.worker.web.guard import names_of
from processor.worker.web.ids import IdsView
from processor.worker.web.others import OtherWorkers
from processor.worker.web.views import View, Views, fault, json_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from aiohttp.web import Request

    from processor.ops.metrics import Metrics
    from processor.ops.troubles import Troubles
    from processor.worker.worker import Worker
    from schemas.config import Settings

# Its one script and its one style are allowed by their hashes, and may talk to this worker only: what
# anything else put into the page would neither run, nor be loaded, nor be sent anywhere. Strings cannot
# become markup either (Trusted Types).

_FILE = Path(__file__).with_name("page.html")


class Page(NamedTuple):
    """An HTML page and its Content-Security-Policy."""

    body: bytes
    policy: str


@cache
def dashboard() -> Page:
    """Return the dashboard."""
    html = _FILE.read_text(encoding="utf-8")
    script, style = (_hashes(html, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Page(html.encode(), policy)


def _hashes(html: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = (hashlib.sha256(text.encode()).digest() for text in found)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


RECEIPTS = 20
"""So many are shown."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a program above the worker answers for its page; None: that view is not there.

    Attributes:
        explain: Returns the story of a position ``TOPIC:PARTITION:OFFSET``; raises `SeqmarkError` with what is
            wrong with it.
        receipts: Returns the newest receipts of a pipeline, at most so many, the newest first.
    """

    explain: Callable[[str], Awaitable[Mapping[str, Any]]] | None = None
    receipts: Callable[[str, int], Awaitable[Sequence[Mapping[str, Any]]]] | None = None


class Site:
    """The views of one worker; ``troubles`` are its last warnings."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        worker: Worker,
        troubles: Troubles,
        answers: Answers,
        *,
        drain: bool = False,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._worker = worker
        self._answers = answers
        self._hops = hops(settings)
        explains = answers.explain is not None
        self.board = Board(settings, metrics, worker, troubles, drain=drain, explains=explains)
        self._others = OtherWorkers(settings.worker.application_id, self._hops, worker, self.board)

    def views(self) -> Views:
        """Return all of them, behind the guard."""
        views = [
            View("/health", self._health, is_open=True),
            View("/ready", self._ready, is_open=True),
            View("/metrics", self._metrics_text, is_open=True),
            View("/ids", IdsView(self._settings, self._worker, self._others).answer, is_costly=True),
            View("/", self._page, is_page=True),
            View("/status.json", self._status),
            View("/explain", self._explain, is_costly=True),
            View("/receipts.json", self._receipts, is_costly=True),
        ]
        return Views(views, names_of(self._settings.worker))

    async def _health(self, _: Request) -> Response:
        """200 while the process is alive and its event loop turns."""
        return json_response({"status": "ok"})

    async def _ready(self, _: Request) -> Response:
        """200 while everything assigned is restored and works; 503 while it is not."""
        status, why = self._worker.ready, self._worker.reason
        return json_response({"ready": status, **({"reason": why} if why else {})}, 200 if status else 503)

    async def _metrics_text(self, _: Request) -> Response:
        return Response(body=self._metrics.render(), content_type="text/plain")

    async def _page(self, _: Request) -> Response:
        page = dashboard()
        policy = {"Content-Security-Policy": page.policy}
        return Response(body=page.body, content_type="text/html", charset="utf-8", headers=policy)

    async def _status(self, request: Request) -> Response:
        if not request.query:
            return json_response(self.board.fields())
        if list(request.query.items()) != [("workers", "all")]:
            return fault(400, "takes nothing, or workers=all")
        return json_response(await self._others.fields())

    async def _explain(self, request: Request) -> Response:
        if self._answers.explain is None:
            return fault(404, "this worker explains nothing: run seqmark explain")
        position = only(request, "q")
        if position is None:
            return fault(400, "takes q=TOPIC:PARTITION:OFFSET and nothing else")
        try:
            return json_response(await self._answers.explain(position))
        except ConfigError as error:
            return fault(400, visible(str(error)))
        except SeqmarkError as error:
            return fault(503, visible(str(error)))

    async def _receipts(self, request: Request) -> Response:
        if not self._settings.worker.web_receipts:
            return fault(403, "receipts hold ids: only with worker.web_receipts = true")
        if self._answers.receipts is None:
            return fault(404, "this worker shows no receipts: run seqmark read")
        name = only(request, "pipeline")
        if name not in {hop.name for hop in self._hops if hop.duplicates is not None}:
            return fault(400, "takes pipeline=NAME, of one that has a duplicates topic, and nothing else")
        try:
            return json_response({"receipts": await self._answers.receipts(name, RECEIPTS)})
        except SeqmarkError as error:
            return fault(503, visible(str(error)))


def only(request: Request, name: str) -> str | None:
    """Return what a query says, where that is one value under ``name`` and nothing else."""
    said = list(request.query.items())
    return said[0][1] if len(said) == 1 and said[0][0] == name else None
