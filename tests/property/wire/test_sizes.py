"""Nothing that a source takes stops a pipeline with a quarantine: records of any size, in all modes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from processor.kafka.topics.plan import CHANGELOG_BYTES, MORE_BYTES
from processor.ops.metrics import Metrics
from processor.pipeline.hop_kinds import FirstHopKind, HopKind
from processor.pipeline.hops import FirstHop, only_hop
from processor.pipeline.ports import OpenPartition, RouteTopics, Topics, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from processor.wire.encode import Encoder
from schemas.config import Pipeline
from tests.support.wire import batches
from tests.support.wire.batches import CODECS, Record, by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import RecordingOutput

if TYPE_CHECKING:
    from processor.wire.decode import Chunk

SOURCE_BYTES = 1_048_588
"""The broker's default."""
RANDOM = np.random.default_rng(17).integers(0, 256, 1_300_000, np.uint8).tobytes()
NUMBERED = [{"from": "header", "name": str(n)} for n in range(40)]
DEDUPS: dict[str, dict[str, Any]] = {
    "partition": {},
    "key": {"scope": "key"},
    "header": {"scope": "header:h", "reorder_window": 65_536},
    "ids by header": {"id": [{"from": "header", "name": "h"}]},
    "ids by key": {"id": [{"from": "key"}, {"from": "header", "name": "h"}]},
    "ids by value": {"id": [{"from": "value", "pointer": "/a"}]},
    "ids by many": {"id": NUMBERED},
    "routed": {"id": [{"from": "key"}], "route": "by-id"},
}
# Both sides of each bound, and anything up to what makes a batch of 64 MiB from 1 MiB.
size = st.one_of(
    st.sampled_from([0, 1, 4_096, 4_097, 65_536, 65_537, 262_144, 700_000, 1_047_000, 1_048_400, 1_200_000]),
    st.integers(0, 1_300_000),
)
content = st.one_of(
    size.map(lambda count: RANDOM[:count]),
    size.map(lambda count: RANDOM[count:]),
    st.sampled_from([300_000, 5_000_000]).map(lambda count: b"\x01" * count),
)
record = st.tuples(st.one_of(st.none(), content), st.one_of(st.none(), content), content)


def pipeline_of(name: str, output: RecordingOutput) -> SlotPipeline:
    dedup = dict(DEDUPS[name])
    if "id" in dedup:
        dedup |= {"mode": "insert-id", "window": "1h"}
    else:
        dedup |= {"mode": "watermark", "sequence": {"from": "header", "name": "seq", "format": "text"}}
    config = Pipeline.model_validate({"name": "p", "source": "s", "sink": "sink", "dedup": dedup})
    limits: dict[str, Any] = {
        "quarantine_limit_bytes": SOURCE_BYTES + MORE_BYTES,
        "changelog_limit_bytes": CHANGELOG_BYTES,
    }
    shared = output, batches.DECODER, Encoder(), Metrics()
    if name == "routed":
        internal: dict[str, Any] = {"internal": "internal", "internal_limit_bytes": SOURCE_BYTES + MORE_BYTES}
        routed = RouteTopics("s", "sink", "quarantine", "changelog", SOURCE_BYTES, **limits, **internal)
        kind: HopKind = FirstHopKind(FirstHop(config, "p.route", "s", None, None, "internal"), routed)
    else:
        topics = Topics(
            "s",
            "sink",
            "quarantine",
            "changelog",
            SOURCE_BYTES,
            **limits,
            duplicates="duplicates",
            duplicates_limit_bytes=SOURCE_BYTES + MORE_BYTES,
        )
        kind = HopKind(only_hop(config), topics)
    judge = kind.judge()
    table = Table(MemoryStore(), judge.log)
    judge.load(table)
    made = SlotPipeline(kind, *shared)
    made.partitions[0] = OpenPartition(0, table, judge, new_position(0, bytes(16), bytes(16), 1))
    return made


def came(offset: int, some: tuple[bytes | None, bytes | None, bytes], codec: int) -> Chunk:
    key, value, header = some
    if value is not None and len(value) % 2:
        value = json.dumps({"a": value.decode("latin1")}).encode()
    many = tuple((b"%d" % n, header[n * 4_096 : (n + 1) * 4_096]) for n in range(40 if len(header) % 2 else 1))
    each = Record(offset, 1_000, key, value, ((b"seq", b"1"), (b"h", header), *many))
    batch = by_hand([each], codec)
    assume(len(batch) <= SOURCE_BYTES)
    return chunk(batch, position=offset)


@pytest.mark.parametrize("name", DEDUPS)
@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
@given(st.lists(record, min_size=1, max_size=2), st.sampled_from(CODECS))
def test_whatever_its_size_a_record_passes_or_is_dropped_or_goes_to_quarantine(
    name: str, some: list[tuple[bytes | None, bytes | None, bytes]], codec: int
) -> None:
    output = RecordingOutput([])
    pipeline = pipeline_of(name, output)
    chunks = [came(offset, each, codec) for offset, each in enumerate([*some, *some])]

    for each in chunks:
        asyncio.run(pipeline.take(each))
    asyncio.run(pipeline.commit())

    limits = {
        "sink": SOURCE_BYTES,
        "internal": SOURCE_BYTES + MORE_BYTES,
        "quarantine": SOURCE_BYTES + MORE_BYTES,
        "duplicates": SOURCE_BYTES + MORE_BYTES,
        "changelog": CHANGELOG_BYTES,
    }
    for topic, _, sent in output.sent:
        assert all(batch.size <= limits[topic] for batch in sent), topic
    counted = sum(batch.count for topic, _, sent in output.sent if topic != "changelog" for batch in sent)
    assert counted == len(chunks)
