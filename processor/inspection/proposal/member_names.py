"""Tells by the name of a header or a member what it may hold."""

from __future__ import annotations

import re

# Names as `snake` writes them, pointers with their slashes.
_SENDING = re.compile(
    r"(^|[^a-z])(re)?(sent|sending|send|publish(ed)?|produced|emitted|deliver(y|ed)|receiv(ed?)|ingest(ed|ion)?"
    r"|attempts?|retry|retries|trace|traceparent|tracestate|span|b3)([^a-z]|$)"
)
_EVENT_ID = re.compile(
    r"(^|[_/])((insert|event|message|msg|record|dedup(lication)?|idempotency|request|transaction|txn?|evt|ce)"
    r"_?(id|key|uuid|guid)|uuid|guid|ulid|nonce)$|^/?(id|ce_id)$"
)
_SOME_ID = re.compile(r"(^|[_/])(id|uuid|guid|key|ref|reference|no|nr|number|code|hash|digest)$")
_WHOSE = re.compile(
    r"(^|[_/])(user|customer|client|account|acct|session|sess|visitor|device|tenant|org|organi[sz]ation|company"
    r"|member|person|profile|campaign|product|item|sku|store|shop|site|page|host|node|sensor|vehicle|driver"
    r"|category|parent|correlation|causation|trace|span|thread|group|zip|postal|country|currency|status|error"
    r"|schema|type|anonymous)_?(id|uuid|guid|key|ref|no|number|code)?$"
)
_TIME = re.compile(r"(^|[_/])(at|ts(_[a-z]+)*|time|timestamp|date|datetime|[a-z]+_(at|on|time|date|ts|ms))$")
_TRANSACTION = re.compile(r"(^|[_/])((tx|txn|transaction)[_/]?id|xid)$")
_CHANGE = re.compile(
    r"(/payload)?/source/(connector|(change_|commit_)?lsn|(commit_)?scn|pos|gtid|txId)"
    r"|/?__(op|deleted|lsn|pos|file|gtid|scn|table|db|txId|ts_.+|source[._].+)"
)
"""Of Debezium: its envelope, and what its transform for flat records adds as members or headers."""
_SEQUENCE = re.compile(
    r"(^|[_/])(seq(uence)?(_?(no|nr|num|number|id))?|offset|position|pos|lsn|scn|counter|ordinal|index)$"
)


def snake(name: str) -> str:
    """Return ``eventId`` and ``Event-Id`` as ``event_id``."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9/]+", "_", parted.lower())


def names_sending(name: str) -> bool:
    """Whether it says something of the sending, and nothing of the event."""
    return _SENDING.search(snake(name)) is not None


def names_event_id(name: str) -> bool:
    """Whether it is called as the id of an event."""
    return _EVENT_ID.search(snake(name)) is not None


def names_subject(name: str) -> bool:
    """Whether it is called as what an event is about, such as a user, which many events share."""
    return _WHOSE.search(snake(name)) is not None and not names_event_id(name)


def names_id(name: str) -> bool:
    """Whether it is called as an id of something that may be the event."""
    return names_event_id(name) or (_SOME_ID.search(snake(name)) is not None and not names_subject(name))


def names_time(name: str) -> bool:
    """Whether it is called as a time."""
    return _TIME.search(snake(name)) is not None


def names_transaction(name: str) -> bool:
    """Whether it is called as a transaction, whose events share it."""
    return _TRANSACTION.search(snake(name)) is not None


def names_change(name: str) -> bool:
    """Whether it is called as what Debezium says of a change that it has read from a database."""
    return _CHANGE.fullmatch(name) is not None


def names_sequence(name: str) -> bool:
    """Whether it is called as a number that is counted up."""
    return _SEQUENCE.search(snake(name)) is not None
