"""What an audit counts is what a dictionary of all records counts, and what made it is what made it here."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from processor.generator import StreamOptions, make_stream
from processor.inspection.audit.read import ReadExtent, stretches
from processor.inspection.audit.rows import RecordRows, RowKeeper
from processor.inspection.audit.show import PricePer, fields, page, sentences, verdict
from processor.kafka.client import TopicPartition
from schemas.config.dedup import Dedup
from tests.unit.inspection.audit.audited import audited
from tests.unit.inspection.audit.cases import START_MS, Sent, again, uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


WATERMARK: dict[str, Any] = {
    "mode": "watermark",
    "sequence": {"from": "header", "name": "seq", "format": "int64"},
}
IDS: dict[str, Any] = {
    "mode": "insert-id",
    "id": [{"from": "value", "pointer": "/insert_id"}],
    "window": "1d",
}


def rows(
    near: Sequence[int], reading_ms: Sequence[int] | None = None, partition: Sequence[int] | None = None
) -> RecordRows:
    """Return records that say these, each at the next offset."""
    many = len(near)
    at = np.arange(many)
    columns = near, near, partition or [0] * many, at, reading_ms or at, [10] * many
    return RecordRows(*(np.array(each, np.int64) for each in columns))


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2), st.integers(0, 50)), max_size=60))
def test_copies_and_windows_are_those_of_a_dictionary(said: list[tuple[int, int, int]]) -> None:
    clocks: dict[int, int] = {}
    reading = [_tick(clocks, partition, gap) for _, partition, gap in said]
    keeper = RowKeeper()
    keeper.add(rows([each for each, _, _ in said], reading, [p for _, p, _ in said]))
    copies = keeper.copies()

    assert copies.count == len(said) - len({each for each, _, _ in said}) == copies.places.size
    assert keeper.distinct == len({each for each, _, _ in said})
    for window in (1, 20, 10_000):
        dropped, passed = 0, dict[tuple[int, int], int]()
        for (what, partition, _), now in zip(said, reading, strict=True):
            since = passed.get((what, partition))
            if since is not None and now < since + window:
                dropped += 1
            else:
                passed[what, partition] = now
        assert copies.caught([window], route=False) == [dropped]


def _tick(clocks: dict[int, int], partition: int, gap: int) -> int:
    clocks[partition] = clocks.get(partition, 0) + gap
    return clocks[partition]


def test_beyond_the_bound_a_share_of_the_contents_stands_for_all() -> None:
    dice = Random(1)
    near = [dice.getrandbits(64) - 2**63 for _ in range(20_000)]
    keeper = RowKeeper(most_rows=4_000)
    for begin in range(0, len(near), 1_000):
        keeper.add(rows(near[begin : begin + 1_000] * 2))

    copies = keeper.copies()

    assert copies.rate == keeper.kept.rate <= 1 / 16
    assert abs(copies.count - 20_000) < 3_000
    assert abs(keeper.distinct - 20_000) < 3_000


@given(st.lists(st.integers(0, 500), min_size=1, max_size=5), st.integers(1, 800), st.booleans())
def test_stretches_lie_apart_and_at_both_ends(sizes: list[int], most: int, timed: object) -> None:
    spans = {TopicPartition("t", n): (7, 7 + size) for n, size in enumerate(sizes) if size}
    there = sum(stop - start for start, stop in spans.values())
    if not spans:
        return
    found = stretches(spans, ReadExtent(None, most, 1.0 if timed else None))

    for tp, (start, stop) in spans.items():
        mine = [each for each in found if each.tp == tp]
        assert (mine[0].start, mine[-1].stop) == (start, stop)
        assert all(one.stop <= other.start for one, other in pairwise(mine))
    read = sum(each.stop - each.start for each in found)
    assert read == there if most >= there else read <= most + 3 * len(sizes)


def events(count: int) -> list[Sent]:
    return [Sent({"event_id": uuid_of(f"{n}"), "n": n}, f"k{n % 9}", n * 1_000) for n in range(count)]


CAUSES: dict[str, Callable[[list[Sent]], list[Sent]]] = {
    "replay": lambda sent: again(sent, range(200, 260), 60_000),
    "whole": lambda sent: [*sent, *(each._replace(partition=1, copies=n) for n, each in enumerate(sent))],
    "partition": lambda sent: [*sent, *(sent[n]._replace(partition=1, copies=n) for n in (3, 90, 41))],
    "retry": lambda sent: [*sent[:-1], sent[-1], sent[-1]._replace(at_ms=sent[-1].at_ms + 40, copies=299)],
    "later": lambda sent: again(sent, (250, 17, 99), 600_000),
}  # fmt: skip


@pytest.mark.parametrize("kind", CAUSES)
def test_where_copies_lie_tells_what_made_them(kind: str) -> None:
    sent = CAUSES[kind](events(300))
    copies = sum(each.copies is not None for each in sent)

    found = audited(sent)

    assert [(each.kind, each.copies) for each in found.causes] == [(kind, copies)]
    (partition, offset), (of_partition, of_offset) = (
        map(int, place.split(":")) for place in (found.causes[0].example, found.causes[0].original)
    )
    assert (partition, offset) != (of_partition, of_offset)
    assert any("300 records" not in line and f"{copies:,}" in line for line in sentences(found))


def test_all_of_it_is_told_to_people_and_programs() -> None:
    sent = again(events(300), range(200, 230))
    found = audited(sent)

    told = fields(found, PricePer(0.1, "GB", 10**9))

    assert json.loads(json.dumps(told))["copies_by_partition"] == {"0": 30}
    assert (told["copies"], told["exact"], told["near"], told["whole"]) == (30, 30, 0, True)
    assert told["copies_bytes"] == sum(len(each.raw) + len(each.key or "") for each in sent[300:])
    assert told["cost"] == pytest.approx(told["copies_bytes"] / 10**10)
    assert told["windows"][0] == {"window": "1m", "caught": 0, "caught_with_route": 0}
    assert told["windows"][1]["caught"] == 30
    by_id = [{"from": "value", "pointer": "/event_id"}]
    assert told["recommended"] == {"mode": "insert-id", "id": by_id, "window": "1d"}
    assert verdict(found) == "the rule that loses nothing: id /event_id"
    assert "/event_id" in page([found])
    none = audited(events(300))
    assert sentences(none)[-1] == "no record came twice"
    assert "no copies were seen" in verdict(none)
    assert none.chosen is not None
    assert "no copies were seen" in none.chosen.proposal.notes[0]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_counted_in_generated_streams_is_their_truth(seed: int) -> None:
    dedup = (
        WATERMARK if seed % 2 else IDS | ({"fingerprint": {"exclude": ["/sent_at"]}} if seed % 4 == 2 else {})
    )
    collisions = 0.02 if "fingerprint" in dedup else 0.0
    options = StreamOptions(3_000, 0.02 * (seed + 1), seed, 1 + seed % 3, START_MS, collisions=collisions)
    parts = make_stream(TypeAdapter(Dedup).validate_python(dedup), options)
    sent = [
        Sent(
            each.value,
            None if each.key is None else each.key.decode(),
            each.timestamp_ms - START_MS,
            number,
            each.headers,
        )
        for number, part in enumerate(parts)
        for each in part.records(0, len(part))
    ]

    found = audited(sent)

    assert found.copies.count == sum(len(part) - np.unique(part.layout.original).size for part in parts)
    assert found.chosen is not None
    assert (found.chosen.lost, found.chosen.missed) == (0, 0)
