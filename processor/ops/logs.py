"""Logs one line per event to stderr, as text or as JSON."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET = ("aiokafka", "faust", "mode", "numba", "asyncio", "aiohttp.access")
"""Libraries that talk at info level about what operators cannot use; their warnings are kept."""

ANSWERED = ("aiokafka", "aiokafka.conn", "aiokafka.cluster")
"""What they say of a connection that failed comes before a message of ours that says it better."""

FRESH = ("GroupCoordinatorNotAvailableError", "Marking the coordinator dead")
"""A fresh broker makes its offsets topic, and aiokafka asks again; the worker says it if that goes on."""

UNANSWERED = ("NodeNotReadyError", "KafkaConnectionError", "RequestTimedOutError", "session expired")
"""What aiokafka says where no broker answers: ours say which does not, and the worker for how long."""

SILENT_S = 2.0
"""So long without an answer the first lines have said what there is to say."""

SPARING_S = 10.0
"""A client retries ten times per second; one line in ten seconds says the same."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339), level, logger, message, fields, traceback if there is one.

    Fields are what is logged with ``extra={"fields": {...}}``: the numbers of a message, for programs.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


class Sparing(logging.Filter):
    """Lets a message of Kafka's clients through once in so many seconds: a broker that is away is one event.

    What ours say as well (`ANSWERED`) passes with ``debug`` only; other messages always pass. Messages are told
    apart by their template, so that "Unable connect to node %s" counts as one whatever the node.

    ``meanwhile`` says whether a broker has owed an answer for some time: then they pass with ``debug`` only.
    """

    meanwhile: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, every_s: float, *, debug: bool = False) -> None:
        super().__init__()
        self._every_s = every_s
        self._debug = debug
        self._last: dict[tuple[str, str], float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(
            (*QUIET, "processor.kafka.fetch", "processor.kafka.protocol.connections")
        ):
            return True
        if not self._debug and (record.name in ANSWERED or self.meanwhile() or _unanswered(record)):
            return False
        if any(text in record.getMessage() for text in FRESH):
            return False
        key = (record.name, str(record.msg))
        last = self._last.get(key)
        if last is not None and record.created - last < self._every_s:
            return False
        self._last[key] = record.created
        return True


def _unanswered(record: logging.LogRecord) -> bool:
    return record.name.startswith("aiokafka") and any(text in record.getMessage() for text in UNANSWERED)


def spare_while(silent: Callable[[], bool]) -> None:
    """Tell all `Sparing` filters what says whether brokers are silent."""
    for handler in logging.getLogger().handlers:
        for each in handler.filters:
            if isinstance(each, Sparing):
                each.meanwhile = silent


def set_up(form: Literal["text", "json"], level: str) -> None:
    """Send all logging to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(Sparing(SPARING_S, debug=level == "debug"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def write_to(stream: Any) -> Any:
    """Send logging to another stream from now on; returns the one before."""
    before = None
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            before = handler.setStream(stream) or before
    return before
