"""Stored bytes are what they have always been: today's code writes the golden ones, and reads them.

``tests/golden/bytes.json`` has a list of hex strings for each case. ``python -m
tests.unit.schemas.test_golden_bytes`` adds cases that are not in it yet. Those that are there never change:
somebody's state is written so.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import astuple, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from processor.engine.ids.block import IdRows, decode, decode_pages, encode
from processor.engine.ids.bloom import snapshot
from processor.engine.ids.bloom.filter import Filter
from processor.engine.verdict import Verdict
from processor.judges.exact import ExactIds
from processor.judges.factory import mode_of
from processor.judges.ids import IdJudge
from processor.judges.insert_id import BloomIds
from processor.ops.metrics import Metrics
from processor.pipeline.hop_kinds import FirstHopKind, HopKind
from processor.pipeline.hops import FirstHop, Hop, hops, route_definition
from processor.pipeline.ports import OpenPartition, RouteTopics, Topics, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.encode import Encoder
from schemas.changelog.backfill import BackfillProgress
from schemas.changelog.bloom import BloomSnapshot, KeptFilter, piece_key
from schemas.changelog.clock import NO_LIMIT, ClockTrace
from schemas.changelog.ids import (
    IdState,
    block_number,
    decode_place,
    encode_place,
    id_block_key,
    id_page_key,
    id_place_key,
    page_number,
)
from schemas.changelog.marks import IndexMark, MarkTags
from schemas.changelog.position import NO_TOPIC, LocalMark, Origin, OutputEnds, Position
from schemas.changelog.topic_ids import TopicId, TopicIds
from schemas.changelog.watermark import (
    ScopeValue,
    block_key,
    brought_key,
    decode_blocks,
    decode_watermark,
    encode_block,
    encode_blocks,
    encode_watermark,
    open_block,
    watermark_key,
)
from schemas.config import InsertIdDedup, Settings
from tests.support.judges.id_state import ListedChangelog
from tests.support.judges.ids import read_snapshot
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import RecordingOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.judges.judge import Judge
    from schemas.config.pipeline import Pipeline

FILE = Path(__file__).parents[2] / "golden" / "bytes.json"
Golden = dict[str, list[str]]

# ---------------------------------------------------------------- single values

STATE_ID, MEANING, SECRET = b"state id 16 byte", b"definition 16 by", bytes(range(16))
TOPICS = TopicIds(*(TopicId(bytes([n]) * 16, 0xC0FFEE00 + n) for n in range(5)))
POSITION = Position(
    120,
    100,
    0xDEADBEEF,
    MEANING,
    STATE_ID,
    4,
    TOPICS,
    "clicks",
    "é.route",
    OutputEnds(90, -1, 7),
    1_700_000_000_000,
)
WITH_VERDICTS = replace(POSITION, verdicts=TopicId(b"\x09" * 16, 0xC0FFEE09))
INDEX_MARK = IndexMark(
    1_700_000_001_000, 1_700_000_000_000, 120, OutputEnds(90, -1, 7), MarkTags(1, 2, 0, 2**32 - 1)
)
SCOPE = watermark_key(b"scope")
TRACE = ClockTrace(7, 1_000_000, ((7, 1_000_300), (9, NO_LIMIT), (200, 999)))
STAYING = ClockTrace(0, -1, ((0, 0), (0, -5), (1, -5)))
IDS = IdState(SECRET, -5, 2**40, 17, TRACE)
BACKFILLED_IDS = replace(IDS, backfill="archive-2024")
PROGRESS = BackfillProgress("archive-2024", MEANING, 2**33, 4)
SNAPSHOT = BloomSnapshot(70, 12, (KeptFilter(-1, 0, 5, 3), KeptFilter(4, 2, 6, 8)))


class Value(NamedTuple):
    """One stored value: what it means, its bytes by today's code, and how it is read."""

    meaning: object
    encoded: bytes
    decode: Callable[[bytes], object]


def scope(value: ScopeValue) -> Value:
    return Value(value, value.encode(SCOPE), lambda data: ScopeValue.decode(SCOPE, data))


def origin(*fields: Any) -> Value:
    return Value(Origin(*fields), Origin(*fields).encode(), Origin.decode)


def named(key: bytes, number: object, decode: Callable[[bytes], object]) -> Value:
    return Value(number, key, decode)


VALUES = {
    "mark": Value(INDEX_MARK, INDEX_MARK.encode(), IndexMark.decode),
    "position": Value(POSITION, POSITION.encode(), Position.decode),
    "position, with verdicts": Value(WITH_VERDICTS, WITH_VERDICTS.encode(), Position.decode),
    "topic ids": Value(TOPICS, TOPICS.encode(), TopicIds.decode),
    "origin": origin(7, 6, NO_TOPIC, 5),
    "origin, known before": origin(7, 6, NO_TOPIC, 5, 3),
    "origin, dated": origin(7, 6, 4, 5, 3, 1_700_000_000_000),
    "origin, begun at the end": origin(7, 6, 4, 5, 3, 1_700_000_000_000, (7, 9)),
    "origin, backfilled": origin(7, 6, 4, 5, 3, 0, (), "archive-2024"),
    "watermark": Value(-2, encode_watermark(SCOPE, -2), lambda data: decode_watermark(SCOPE, data)),
    "scope": scope(ScopeValue(12)),
    "scope, epoch": scope(ScopeValue(12, 3)),
    "scope, epoch and run": scope(ScopeValue(12, 3, 5)),
    "scope, epochs without order": scope(ScopeValue(12, run=5, epochs=(b"e" * 16, bytes(16)))),
    "scope, ring": scope(ScopeValue(12, None, None, 65, (2**63 + 1, 5))),
    "local mark": Value(LocalMark(77, STATE_ID), LocalMark(77, STATE_ID).encode(), LocalMark.decode),
    "block of scopes": Value(
        (b"payload", 3),
        encode_block(block_key(5), b"payload", 3),
        lambda data: (bytes(open_block(block_key(5), data)[0]), open_block(block_key(5), data)[1]),
    ),
    "block of scopes, backfilled": Value(
        (b"payload", 3),
        encode_block(brought_key(5), b"payload", 3),
        lambda data: (bytes(open_block(brought_key(5), data)[0]), open_block(brought_key(5), data)[1]),
    ),
    "blocks of scopes": Value((3, 9), encode_blocks(3, 9), decode_blocks),
    "clock trace": Value(TRACE, TRACE.encode(), ClockTrace.decode),
    "clock trace, limits that stay": Value(STAYING, STAYING.encode(), ClockTrace.decode),
    "ids": Value(IDS, IDS.encode(), IdState.decode),
    "ids, backfilled": Value(BACKFILLED_IDS, BACKFILLED_IDS.encode(), IdState.decode),
    "progress of a backfill": Value(PROGRESS, PROGRESS.encode(), BackfillProgress.decode),
    "place of ids": Value(
        66, encode_place(id_place_key(9), 66), lambda data: decode_place(id_place_key(9), data)
    ),
    "snapshot of filters": Value(SNAPSHOT, SNAPSHOT.encode(), BloomSnapshot.decode),
    "key of a scope": named(SCOPE, SCOPE, bytes),
    "key of a block of scopes": named(block_key(5), 5, lambda key: int.from_bytes(key[2:], "big")),
    "key of a block of scopes, backfilled": named(
        brought_key(5), 5, lambda key: int.from_bytes(key[1:], "big")
    ),
    "key of a block of ids": named(id_block_key(2**40), 2**40, block_number),
    "key of a page of ids": named(id_page_key(2**40), 2**40, page_number),
    "key of a place of ids": named(id_place_key(2**40), 2**40, page_number),
    "key of a piece of a filter": named(piece_key(-3, 2, 1), piece_key(-3, 2, 1), bytes),
}

# ---------------------------------------------------------------- blocks and filters

BLOCK_KEY = id_block_key(7)
COUNT = 200
"""Ids: two pages."""
NUMBER = np.arange(COUNT)
HASH = (np.arange(2 * COUNT, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).reshape(COUNT, 2)
ROWS = IdRows(
    7, HASH, 1000 + 3 * NUMBER, 1_735_689_600_000 + 5 * NUMBER, np.where(NUMBER % 9 == 8, 7 + NUMBER - 4, -1)
)
TOLD_APART = replace(
    ROWS,
    fingerprint=np.arange(COUNT, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95),
    collision=NUMBER >= COUNT - 60,
)
"""With fingerprints; the last ones are collisions."""


def columns_of(rows: IdRows) -> list[object]:
    return [rows.first, *(column.tolist() for column in astuple(rows)[1:])]


def block(rows: IdRows = ROWS) -> bytes:
    return encode(rows, 1_735_689_700_000, BLOCK_KEY)[0]


def filled() -> Filter:
    one = Filter.sized(-3, 1, 40, 0.01)
    one.words = np.zeros(-(-one.bits // 64), np.uint64)
    one.put(HASH, 0, 30)
    return one


# ---------------------------------------------------------------- pipelines

_IDS = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "10m"}
_BLOOM = {"bucket": "2m", "expected_per_bucket": 100}
DEDUP: dict[str, dict[str, Any]] = {
    "plain": {"mode": "watermark", "sequence": {"from": "header", "name": "n", "format": "int64"}},
    "keyed": {
        "mode": "watermark",
        "scope": "key",
        "sequence": {"from": "header", "name": "seq", "format": "int64"},
        "epoch": {"from": "header", "name": "epoch", "format": "int32"},
        "reorder_window": 8,
    },
    "exact": _IDS,
    "refreshed": {**_IDS, "refresh": True},
    "unconfirmed": {**_IDS, "backend": "bloom", "bloom": {**_BLOOM, "false_positive_rate": 1e-12}},
    "routed": {**_IDS, "window": "7d", "route": "by-id"},
}
"""``[pipelines.dedup]`` by pipeline."""

START_MS = 1_735_689_600_000
NOW_MS = START_MS + 60_000


def came(offset: int, n: int, key: bytes, seq: int, epoch: int = 1, ahead_ms: int = 0) -> Record:
    """Return a record with all that one of the definitions in `DEDUP` asks for."""
    numbers = (
        (b"n", n.to_bytes(8, "big")),
        (b"seq", seq.to_bytes(8, "big")),
        (b"epoch", epoch.to_bytes(4, "big")),
    )
    headers = (*numbers, (b"id", b"id-%d" % n))
    return Record(offset, START_MS + 1000 * offset + ahead_ms, key, b'{"n": %d}' % n, headers)


SOURCE = [
    came(0, 1, b"a", 1),
    came(1, 2, b"b", 1),
    came(2, 1, b"a", 1),
    Record(3, START_MS, b"a", b"no headers"),
    came(4, 3, b"a", 5),
    came(5, 2, b"b", 1),
    came(6, 4, b"a", 3),
    came(7, 5, b"b", 7, 2, ahead_ms=86_400_000),
    came(8, 5, b"b", 7, 2),
]
CUTS = [0, 4, 6, 9]
"""Commits, a batch each."""


def configured() -> dict[str, Hop]:
    """Return the hops of a config with all definitions; filters small, so that they can be kept."""
    topics = {"source": "raw", "sink": "clean", "duplicates": "duplicates", "quarantine": "quarantine"}
    given = {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "worker": {"application_id": "golden"},
        "pipelines": [
            {"name": name, **{kind: f"{name}.{topic}" for kind, topic in topics.items()}, "dedup": dedup}
            for name, dedup in DEDUP.items()
        ],
    }
    return {hop.name: hop for hop in hops(Settings.model_validate(given))}


HOPS = configured()
JUDGED = [name for name in DEDUP if name != "routed"]


def judge_of(pipeline: Pipeline) -> Judge:
    """Return a judge with nothing random in it."""
    if not isinstance(pipeline.dedup, InsertIdDedup):
        return mode_of(pipeline).judge()
    kind = ExactIds if pipeline.dedup.backend == "exact" else BloomIds
    return kind(pipeline.dedup, lambda: NOW_MS)


def chunks() -> list[Any]:
    return [chunk(by_hand(SOURCE[start:stop]), position=start) for start, stop in pairwise(CUTS)]


def run(hop: Hop) -> tuple[RecordingOutput, MemoryStore]:
    """Judge the source; return what was written to the topics and to the local state."""
    output, store = RecordingOutput([]), MemoryStore()
    output.marker = 0  # as these bytes were made
    shared = output, batches.DECODER, Encoder(), Metrics()
    limit = 1_000_000
    if isinstance(hop, FirstHop):
        to = RouteTopics(
            hop.source,
            hop.pipeline.sink,
            hop.quarantine,
            "changelog",
            limit,
            limit,
            internal="internal",
            internal_limit_bytes=limit,
            internal_partitions=2,
        )
        kind: HopKind = FirstHopKind(hop, to)
        judge = kind.judge()
    else:
        judge = judge_of(hop.pipeline)
        duplicates = {"duplicates": hop.duplicates, "duplicates_limit_bytes": limit}
        sink = hop.pipeline.sink
        to_sink = Topics(hop.source, sink, hop.quarantine, "changelog", limit, limit, **duplicates)  # type: ignore[arg-type]
        kind = HopKind(hop, to_sink)
    pipeline = SlotPipeline(kind, *shared)
    if isinstance(judge, IdJudge):
        judge.log.secret = SECRET
    table = Table(store, judge.log)
    judge.load(table)
    partition = OpenPartition(0, table, judge, new_position(0, MEANING, STATE_ID, 1), origin=Origin(0, 0, 0, 0))
    pipeline.partitions[0] = partition
    for each in chunks():
        asyncio.run(pipeline.take(each))
        asyncio.run(pipeline.commit())
    asyncio.run(pipeline.finish())
    return output, store


def written_by(hop: Hop) -> Golden:
    """Return batches as they are sent, and the state's keys and values: its batches say when they were made."""
    output, store = run(hop)
    found: Golden = {}
    for topic, number, some in output.sent:
        if topic != "changelog":
            case = f"{topic}:{number}"
            found.setdefault(case, []).extend(each.build(7, 1, 0, transactional=True).hex() for each in some)
    pairs = [(each.key or b"", each.value or b"") for each in output.records("changelog")]
    found[f"{hop.name} changelog"] = [f"{key.hex()} {value.hex()}" for key, value in pairs]
    found[f"{hop.name} local"] = [f"{key.hex()} {value.hex()}" for key, value in store.items(b"")]
    return found


@cache
def written() -> Golden:
    """Return all cases by today's code."""
    found: Golden = {name: [value.encoded.hex()] for name, value in VALUES.items()}
    found["block of ids"] = [block().hex()]
    found["block of ids, with fingerprints"] = [block(TOLD_APART).hex()]
    found["pieces of a filter"] = [piece.hex() for piece in snapshot.write(filled())]
    for name, hop in HOPS.items():
        meaning = route_definition(hop, 3) if isinstance(hop, FirstHop) else mode_of(hop.pipeline).definition()
        found[f"{name} definition"] = [meaning.hex()]
        if hop.upstream is None:
            found |= written_by(hop)
    return found


GOLDEN: Golden = json.loads(FILE.read_text()) if FILE.exists() else {}

# ---------------------------------------------------------------- the claims


def test_every_case_is_golden() -> None:
    assert GOLDEN.keys() == written().keys()


@pytest.mark.parametrize("case", GOLDEN)
def test_the_golden_bytes_are_written(case: str) -> None:
    assert written()[case] == GOLDEN[case]


@pytest.mark.parametrize("case", VALUES)
def test_the_golden_bytes_of_a_value_are_read(case: str) -> None:
    (golden,) = GOLDEN[case]
    assert VALUES[case].decode(bytes.fromhex(golden)) == VALUES[case].meaning


def test_the_golden_block_and_its_pages_are_read() -> None:
    data = bytes.fromhex(GOLDEN["block of ids"][0])
    rows, clock_ms, pages = decode(data, BLOCK_KEY)
    assert (columns_of(rows), clock_ms) == (columns_of(ROWS), 1_735_689_700_000)
    starts = [*pages.first.tolist(), ROWS.first + COUNT]
    for (start, stop), (first, after) in zip(pairwise(pages.at.tolist()), pairwise(starts), strict=True):
        page = decode_pages([data[start:stop]], first)[0]
        assert page.owner.tolist() == ROWS.owner[first - ROWS.first : after - ROWS.first].tolist()


def test_the_golden_block_with_fingerprints_is_read_and_its_collisions_have_pages_of_their_own() -> None:
    data = bytes.fromhex(GOLDEN["block of ids, with fingerprints"][0])
    rows, _, pages = decode(data, BLOCK_KEY, fingerprints=True)
    assert columns_of(replace(rows, route=TOLD_APART.route)) == columns_of(TOLD_APART)
    first = pages.first[pages.collision]
    assert first.tolist()[0] == TOLD_APART.first + COUNT - 60


def test_the_golden_filter_knows_its_ids() -> None:
    (read,) = read_snapshot(map(bytes.fromhex, GOLDEN["pieces of a filter"]))
    one = filled()
    assert (read.bucket, read.order, read.ids, read.each, read.bits) == (-3, 1, 30, one.each, one.bits)
    assert read.words.tolist() == one.words.tolist()


@pytest.mark.parametrize("local", [True, False], ids=["local", "changelog"])
@pytest.mark.parametrize("name", JUDGED)
def test_a_judge_that_is_restored_from_golden_state_passes_nothing_again(name: str, *, local: bool) -> None:
    changelog, store, judge = ListedChangelog(), MemoryStore(), judge_of(HOPS[name].pipeline)
    changelog.rows = list(pairs_of(f"{name} changelog"))
    if local:
        store.write(dict(pairs_of(f"{name} local")))
    table = Table(store, judge.log)

    position = asyncio.run(restore(table, changelog, 60, lambda _done, _total: None))
    table.flush()
    judge.load(table)

    assert position is not None
    assert position.next_offset == len(SOURCE)
    again = [each._replace(offset=len(SOURCE) + each.offset) for each in SOURCE]
    pieces = batches.DECODER.pieces(chunk(by_hand(again), position=len(SOURCE)))
    verdicts = [verdict for piece in pieces for verdict in judge.judge(judge.extract(piece.columns)).verdict]
    assert len(verdicts) == len(SOURCE)
    assert Verdict.PASS not in verdicts


@pytest.mark.parametrize("name", JUDGED)
def test_golden_topics_hold_each_record_of_the_source_once(name: str) -> None:
    sink, told, aside = (read(f"{name}.{topic}:0") for topic in ("clean", "duplicates", "quarantine"))
    dropped = [json.loads(each.value or b"")["offset"] for each in told]
    assert [each[1:] for each in sink] == [each[1:] for each in SOURCE if each.offset not in {3, *dropped}]
    assert [(each.key, each.value) for each in aside] == [(b"a", b"no headers")]
    assert dict(aside[0].headers)[b"seqmark.source"] == f"{name}.raw:0:3".encode()
    assert len(dropped) >= 3


def pairs_of(case: str) -> list[tuple[bytes, bytes]]:
    pairs = (each.split(" ") for each in GOLDEN[case])
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in pairs]


def read(case: str) -> list[Record]:
    """Read golden batches with another library."""
    found = batches.parsed(map(bytes.fromhex, GOLDEN[case]))
    assert all(each.crc_is_valid for each in found)
    return [record for each in found for record in each.records]


if __name__ == "__main__":
    FILE.write_text(json.dumps({**written(), **GOLDEN}, indent=1) + "\n")
