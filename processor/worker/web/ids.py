"""Answers what the committed state of a worker holds of one id, or of one scope (`GET /ids`).

    /ids?pipeline=NAME&id=WORD&id=WORD    a word per part of the id, as `processor.judges.asked_id` reads them
    /ids?pipeline=NAME&id64=BYTES&...     likewise, the bytes of each word in base64: they may be no UTF-8
    /ids?pipeline=NAME&scope=TEXT         mode watermark; TEXT may be ``base64:...``; empty: scope ``partition``
    /ids?workers=all&...                  likewise, and of the other workers of the group

Answered are the partitions that a worker works on: positions and times, never a key, value or id; of what
others say only that is passed on. A look-up has a turn between two pieces, as `processor.pipeline.turns` hands
them out, and changes nothing.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlencode

from processor.engine.ids.page import BACKFILLED
from processor.engine.repartition import partition_and_offset
from processor.judges.asked_id import KINDS, asked_ids, words_of
from processor.judges.ids import parts_of
from processor.worker.web.views import fault, json_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp.web import Request, Response
    from multidict import MultiMapping

    from processor.judges.asked_id import AskedId
    from processor.judges.committed import RememberedRecord
    from processor.judges.judge import Judge
    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.worker.web.others import OtherWorkers
    from processor.worker.worker import Worker
    from schemas.config import InsertIdDedup, Pipeline, Settings

    Named = Callable[[int], dict[str, Any]]

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
