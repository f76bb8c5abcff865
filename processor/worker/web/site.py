"""Holds the views of a worker together: what it answers, and under which path.

A view that needs what only a program above the worker has (the story of a record, the last receipts) gets it as
a callable in `Answers`: the worker imports nothing of `processor.inspection`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlencode

from aiohttp.web import Response

from processor.config.visible import visible
from processor.engine.ids.page import BACKFILLED
from processor.engine.repartition import partition_and_offset
from processor.errors import ConfigError, SeqmarkError
from processor.judges.asked_id import KINDS, asked_ids, words_of
from processor.judges.ids import parts_of
from processor.pipeline.hops import hops
from processor.worker.web.board import Board
from processor.worker.web.guard import names_of
from processor.worker.web.others import OtherWorkers
from processor.worker.web.views import View, Views, fault, json_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from aiohttp.web import Request
    from multidict import MultiMapping

    from processor.judges.asked_id import AskedId
    from processor.judges.committed import RememberedRecord
    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.ops.troubles import Troubles
    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.worker.worker import Worker
    from schemas.config import InsertIdDedup, Pipeline, Settings

    Named = Callable[[int], dict[str, Any]]

#     /ids?pipeline=NAME&id=WORD&id=WORD    a word per part of the id, as `processor.judges.asked_id` reads them
#     /ids?pipeline=NAME&id64=BYTES&...     likewise, the bytes of each word in base64: they may be no UTF-8
#     /ids?pipeline=NAME&scope=TEXT         mode watermark; TEXT or ``base64:...``; empty: scope ``partition``
#     /ids?workers=all&...                  likewise, and of the other workers of the group
#
# Answered are the partitions that a worker works on: positions and times, never a key, value or id; of what
# others say only that is passed on. A look-up has a turn between two pieces, as `processor.pipeline.turns`
# hands them out, and changes nothing.

MOST_PARTS = 16
MOST_SCOPE_BYTES = 2_048
_KEYS = {"pipeline", "id", "id64", "scope"}
_EVERYBODY = {"workers"}


class _Question(NamedTuple):
    """What is asked of each judge: a function that answers for one partition, and which ids were meant."""

    answer: Callable[[Judge, Named], dict[str, Any]]
    meant: list[list[str]] | None = None


class IdsView:
    """The view of one worker."""

    def __init__(self, settings: Settings, worker: Worker, others: OtherWorkers) -> None:
        self._pipelines = {each.name: each for each in settings.pipelines}
        self._worker = worker
        self._others = others
        self._application = settings.worker.application_id

    async def answer(self, request: Request) -> Response:
        """Answer one question."""
        try:
            _require_utf8(request.rel_url.raw_query_string)
            pipeline = self._pipeline(request.query)
            question = _question(pipeline, request.query)
        except ValueError as error:
            return fault(400, str(error))
        found = await self._worker.look_up(
            pipeline.name, lambda slots: list(_partitions(pipeline, slots, question))
        )
        if found is None:
            return fault(503, "the worker has not joined its group yet")
        said: dict[str, Any] = {
            "application": self._application,
            "pipeline": pipeline.name,
            "mode": pipeline.dedup.mode,
            "committed": True,
        }
        if question.meant is not None:
            said["meant"] = question.meant
        if "workers" in request.query:
            told, note, silent = await self._of_others(pipeline, request.query)
            # While a slot moves two may say something of a partition: the own word counts.
            found = list(({each["partition"]: each for each in [*told, *found]}).values())
            said |= {"silent": silent, "note": note}
        return json_response({**said, "partitions": sorted(found, key=lambda each: int(each["partition"]))})

    async def _of_others(
        self, pipeline: Pipeline, query: MultiMapping[str]
    ) -> tuple[list[dict[str, Any]], str, list[dict[str, Any]]]:
        """Return what others say of their partitions, why not all are known, and who says nothing."""
        told, silent = list[dict[str, Any]](), list[dict[str, Any]]()
        heard, note = await self._others.ask(f"/ids?{_without_workers(query)}")
        for member, where, answer, why in heard:
            partitions = None if answer is None else _passed_on(answer, pipeline)
            if partitions is None:
                said_why = why or "it is of another version"
                silent.append({"name": member.name, "address": where or None, "why": said_why})
            else:
                told += partitions
        return told, note, silent

    def _pipeline(self, query: MultiMapping[str]) -> Pipeline:
        unknown = set(query) - _KEYS - _EVERYBODY
        if unknown:
            raise ValueError(f"there are {', '.join(sorted(_KEYS | _EVERYBODY))}")
        if query.getall("workers", ["all"]) != ["all"]:
            raise ValueError("workers is all, or left out")
        names = query.getall("pipeline", [])
        if not names and len(self._pipelines) == 1:
            return next(iter(self._pipelines.values()))
        if len(names) != 1 or names[0] not in self._pipelines:
            raise ValueError(f"name one pipeline: {', '.join(sorted(self._pipelines))}")
        return self._pipelines[names[0]]


def _question(pipeline: Pipeline, query: MultiMapping[str]) -> _Question:
    words, scopes = query.getall("id", []), query.getall("scope", [])
    dedup = pipeline.id_dedup
    if "id64" in query:
        if words:
            raise ValueError("ask for id=WORD or id64=BYTES, not for both")
        words = words_of(query.getall("id64"))
    if dedup is None:
        if words or len(scopes) != 1:
            raise ValueError("this pipeline judges by sequences: ask for scope=TEXT")
        scope = _scope(scopes[0])
        return _Question(lambda judge, _: _mark(judge, scope))
    if scopes or not 0 < len(words) <= MOST_PARTS:
        raise ValueError("this pipeline judges by ids: ask for id=WORD, one per part")
    asked = asked_ids(parts_of(dedup), words)
    meant = [[part.kind for part in each] for each in asked]
    return _Question(lambda judge, named: _remembered(judge, asked, dedup, named), meant)


def _require_utf8(query: str) -> None:
    """Refuse a query whose bytes would be read as something else."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError as error:
        raise ValueError("a query is UTF-8: ask for other bytes by id64, or scope=base64:BYTES") from error


def _scope(text: str) -> bytes:
    if text.startswith("base64:"):
        try:
            scope = base64.b64decode(text.removeprefix("base64:"), validate=True)
        except binascii.Error as error:
            raise ValueError("scope is no base64") from error
    else:
        scope = text.removeprefix("text:").encode(errors="surrogateescape")
    if len(scope) > MOST_SCOPE_BYTES:
        raise ValueError(f"a scope that is asked for takes up to {MOST_SCOPE_BYTES:,} bytes")
    return scope


def _partitions(
    pipeline: Pipeline, slots: Iterable[SlotPipeline], question: _Question
) -> Iterable[dict[str, Any]]:
    """Ask each partition; awaits nothing."""

    def named(number: int) -> Named:
        def position(owner: int) -> dict[str, Any]:
            partition, offset = partition_and_offset(owner) if pipeline.routed else (number, owner)
            return {"topic": pipeline.source, "partition": partition, "offset": offset}

        return position

    for slot in slots:
        for number, partition in slot.partitions.items():
            yield {"partition": number, **question.answer(partition.judge, named(number))}


def _remembered(judge: Judge, asked: list[AskedId], dedup: InsertIdDedup, named: Named) -> dict[str, Any]:
    found = judge.remembered(asked) or []
    return {
        "clock": judge.clock_ms,
        "remembered": [
            {"as": [part.kind for part in each], **_told(record, dedup.window, named)}
            for each, records in zip(asked, found, strict=True)
            for record in records
        ],
    }


def _told(record: RememberedRecord, window_ms: int, named: Named) -> dict[str, Any]:
    if record.owner is None or record.reading_ms is None:
        # Of Bloom filters.
        return {"owner": None, "reading": None, "expires_at": None}
    expires_ms = record.reading_ms + window_ms
    # What a backfill has brought stands in no source.
    owner = None if record.owner == BACKFILLED else named(record.owner)
    return {"owner": owner, "reading": record.reading_ms, "expires_at": expires_ms}


def _mark(judge: Judge, scope: bytes) -> dict[str, Any]:
    mark = judge.scope_mark(scope)
    if mark is None:
        return {"watermark": None}
    return {"watermark": mark.sequence, "epoch": mark.epoch, "in_flight": not mark.committed}


def _without_workers(query: MultiMapping[str]) -> str:
    """Return a query as one that is asked of one worker: it asks nobody."""
    pairs = [(name, value) for name, value in query.items() if name not in _EVERYBODY]
    return urlencode(pairs)


def _passed_on(answer: Mapping[str, Any], pipeline: Pipeline) -> list[dict[str, Any]] | None:
    """Return the partitions of another worker's answer, what each should have; None: it is none."""
    try:
        if answer["pipeline"] != pipeline.name:
            return None
        known = _passed_mark if pipeline.id_dedup is None else _passed_remembered
        return [{"partition": int(each["partition"]), **known(each, pipeline)} for each in answer["partitions"]]
    except (KeyError, TypeError, ValueError):
        return None


def _passed_mark(said: Mapping[str, Any], _: Pipeline) -> dict[str, Any]:
    if said["watermark"] is None:
        return {"watermark": None}
    return {
        "watermark": int(said["watermark"]),
        "epoch": _number(said["epoch"]),
        "in_flight": bool(said["in_flight"]),
    }


def _passed_remembered(said: Mapping[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    return {
        "clock": _number(said["clock"]),
        "remembered": [
            {
                "as": [kind for kind in each["as"] if kind in KINDS],
                "owner": None
                if each["owner"] is None
                else {
                    "topic": pipeline.source,
                    "partition": int(each["owner"]["partition"]),
                    "offset": int(each["owner"]["offset"]),
                },
                "reading": _number(each["reading"]),
                "expires_at": _number(each["expires_at"]),
            }
            for each in said["remembered"]
        ],
    }


def _number(said: Any) -> int | None:
    return None if said is None else int(said)


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
