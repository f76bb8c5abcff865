"""A slot that observes at times remembers what it would have, and lets pass what it would have kept back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.judges.ids import IdJudge
from processor.ops.metrics import Metrics
from processor.pipeline.hop_kinds import HopKind
from processor.pipeline.hops import only_hop
from processor.pipeline.ports import OpenPartition, Topics, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from processor.wire.encode import Encoder
from schemas.changelog.position import NO_ENDS, Origin, Position
from schemas.changelog.values import POSITION_KEY
from schemas.config import Pipeline
from tests.support.kafka.topics import Record as TopicRecord
from tests.support.suite.examples import examples
from tests.support.verify import compared
from tests.support.verify.observed import observed
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import RecordingOutput
from tests.unit.schemas.test_golden_bytes import MEANING, SECRET, START_MS, STATE_ID, judge_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBER = {"from": "header", "name": "seq", "format": "text"}
IDS: dict[str, Any] = {"mode": "insert-id", "id": [{"from": "value", "pointer": "/id"}], "window": "5s"}
FILTERS = {"backend": "bloom", "bloom": {"bucket": "5s", "expected_per_bucket": 100}}
PRINTED = {**IDS, "fingerprint": {"exclude": ["/more"]}}
DEDUPS: dict[str, dict[str, Any]] = {
    "watermark": {"mode": "watermark", "sequence": NUMBER},
    "scopes": {"mode": "watermark", "sequence": NUMBER, "scope": "key", "epoch": NUMBER | {"name": "epoch"}},
    "window": {"mode": "watermark", "sequence": NUMBER, "scope": "header:id", "reorder_window": 4},
    "exact": IDS,
    "refreshed": {**IDS, "refresh": True, "on_missing": "pass"},
    "filters": {**IDS, **FILTERS},
    "content": {**IDS, "id": [{"from": "content", "exclude": ["/more"]}]},
    "passing": {**PRINTED, "on_collision": "pass"},
    "tagging": {**PRINTED, "on_collision": "tag"},
    "renaming": {**PRINTED, "on_collision": "rename", "rename": {"to": "/id", "keep": "header"}},
    "quarantining": {**PRINTED, "on_collision": "quarantine"},
    "dropping": {**PRINTED, "on_collision": "drop", "refresh": True},
}
LIMIT = 700
"""Bytes that the sink takes: what is ``long`` is above it, what is ``longish`` with a tag or a new id only."""
SIZES = {"short": 0, "longish": LIMIT - 150, "long": LIMIT}


class Sent(NamedTuple):
    """What a test varies of a record; ``bad`` is what is wrong with it."""

    id: str
    content: int
    seq: int
    epoch: int
    second: int
    size: str
    bad: str


SENT = st.builds(
    Sent,
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.integers(0, 9),
    st.integers(0, 1),
    st.integers(0, 12),
    st.sampled_from(["short", "short", "short", "longish", "long"]),
    st.sampled_from(["", "", "", "", "", "no JSON", "no headers", "no id"]),
)
RUNS = st.lists(st.tuples(st.booleans(), st.lists(SENT, max_size=8)), min_size=1, max_size=6)


def record(offset: int, sent: Sent) -> Record:
    """Return a record that has, or lacks, what one of the modes asks for."""
    value = {"id": sent.id, "n": sent.content, "more": "x" * SIZES[sent.size]}
    if sent.bad == "no id":
        del value["id"]
    text = b"{" if sent.bad == "no JSON" else json.dumps(value).encode()
    headers = ((b"seq", b"%d" % sent.seq), (b"epoch", b"%d" % sent.epoch), (b"id", sent.id.encode()))
    at_ms = START_MS + 1000 * sent.second
    return Record(offset, at_ms, sent.id.encode(), text, () if sent.bad == "no headers" else headers)


class Ran(NamedTuple):
    """What a run left behind."""

    topics: compared.Topics
    changelog: list[tuple[bytes, bytes]]
    local: list[tuple[bytes, bytes]]
    refused: set[int]
    """Source offsets of what was too large for the sink as it came."""


def ran(
    dedup: dict[str, Any],
    runs: Sequence[tuple[bool, list[Record]]],
    *,
    quarantine: bool = True,
    quarantine_limit: int = 100_000,
) -> Ran:
    """Judge a source; each run is a worker of its own, which observes or not, and goes on with the state."""
    aside = "bad" if quarantine else None
    names = {"name": "p", "source": "s", "sink": "clean", "duplicates": "receipts", "quarantine": aside}
    output, store = RecordingOutput([]), MemoryStore()
    to = Topics("s", "clean", aside, "changelog", LIMIT, quarantine_limit, 100_000, "receipts", 100_000)
    judge = judge_of(Pipeline.model_validate({**names, "dedup": dedup}))
    if isinstance(judge, IdJudge):
        judge.log.secret = SECRET
    table = Table(store, judge.log)
    judge.load(table)
    partition = OpenPartition(0, table, judge, new_position(0, MEANING, STATE_ID, 1), origin=Origin(0, 0, 0, 0))
    at = 0
    for observe, records in runs:
        if not records:
            continue
        pipeline = Pipeline.model_validate({**names, "observe": observe, "dedup": dedup})
        slot = SlotPipeline(HopKind(only_hop(pipeline), to), output, batches.DECODER, Encoder(), Metrics())
        slot.partitions[0] = partition
        asyncio.run(slot.take(chunk(by_hand(records), position=at)))
        asyncio.run(slot.commit())
        asyncio.run(slot.finish())
        at += len(records)
    source = [each for _, records in runs for each in records]
    refused = {each.offset for each in source if len(each.value or b"") > LIMIT}
    topics = compared.Topics(
        *(list(map(_read, output.records(topic))) for topic in ("clean", "receipts", "bad"))
    )
    made = compared.Topics(list(map(_read, source)), topics.source, topics.sink, topics.duplicates)
    for some in (made.sink, made.duplicates, made.quarantine):
        compared.renumber(some)
    changelog = [_without_ends(each.key or b"", each.value or b"") for each in output.records("changelog")]
    return Ran(made, changelog, [_without_ends(*each) for each in store.items(b"")], refused)


def _without_ends(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a stored value; of a position without where the outputs ended, which is not judged by."""
    if key != POSITION_KEY:
        return key, value
    return key, replace(Position.decode(value), ends=NO_ENDS, since_ms=0).encode()


def _read(record: Record) -> TopicRecord:
    headers = tuple((name.decode(), value) for name, value in record.headers)
    return TopicRecord(0, record.offset, record.key, record.value, headers, record.timestamp, True)


def shown(topics: compared.Topics) -> dict[str, list[Any]]:
    """Return what stands there; receipts by what they say."""
    receipts = [
        (each.key, each.timestamp, each.headers, json.loads(each.value or b"")) for each in topics.duplicates
    ]
    return {
        "sink": [each.content for each in topics.sink],
        "duplicates": receipts,
        "quarantine": [each.content for each in topics.quarantine],
    }


@pytest.mark.core
@given(runs=RUNS, name=st.sampled_from(sorted(DEDUPS)))
@examples(300)
def test_it_remembers_what_it_would_have_and_what_it_keeps_back_passes_as_it_came(
    runs: list[tuple[bool, list[Sent]]], name: str
) -> None:
    offset = 0
    came: list[tuple[bool, list[Record]]] = []
    for observe, some in runs:
        came.append((observe, [record(offset + place, each) for place, each in enumerate(some)]))
        offset += len(some)
    dropping = ran(DEDUPS[name], [(False, records) for _, records in came])
    observing = ran(DEDUPS[name], came)

    assert observing.changelog == dropping.changelog
    assert observing.local == dropping.local
    seen = {each.offset for observe, records in came for each in records if observe}
    foreseen = observed(dropping.topics, seen, dropping.refused)
    assert shown(observing.topics) == shown(foreseen)
