"""What a changelog says of another source's state says nothing of this one: neither its origin nor its clock.

With answers in place of a broker: a group that stands at offset 0 of a source that was made anew is rare, and
the certificates on a broker are in `tests/broker/worker/test_identity.py`.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from processor.engine.ids.clock import NEVER
from processor.errors import StopError
from processor.judges.factory import mode_of
from processor.kafka import source_identity
from processor.kafka.offsets import Bounds
from processor.state.changelog import ChangelogHead
from processor.state.clock_history import ClockHistory
from processor.verify import span, streams
from processor.verify.unproved import KnownClock
from schemas.changelog.position import Origin, Position
from schemas.changelog.topic_ids import TopicId, TopicIds
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.config import InsertIdDedup, Pipeline
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import TopicPartition

NOW, BEFORE = b"now 16 bytes ...", b"before 16 bytes."
DEDUP = InsertIdDedup.model_validate({"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"})


def found_span(
    monkeypatch: pytest.MonkeyPatch,
    pipeline: Pipeline,
    noted: Any,
    topic_id: bytes = NOW,
    *,
    batch: tuple[int, int] = (-1, 0),
    compacted: bool = False,
) -> span.VerifySpan:
    """Return the span of 9 records of which none is committed.

    Args:
        monkeypatch: Puts the answers in place.
        pipeline: Its changelog is of a state of the source ``topic_id``.
        noted: What its changelog says of the clock; None: there is no changelog.
        topic_id: The source's is `NOW`.
        batch: Offset and CRC of the last one that was read.
        compacted: Whether the source is.
    """
    topics = TopicIds(TopicId.of("raw", topic_id))
    position = Position(0, *batch, mode_of(pipeline).definition(), bytes(16), 4, topics, "a", "p")

    async def said(*_: object) -> tuple[ChangelogHead, Any, list[tuple[bytes, bytes]]]:
        return ChangelogHead() if noted is None else ChangelogHead(position, Origin(0, 0, 0, 0)), noted, []

    async def bounds(_: object, some: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return dict.fromkeys(some, Bounds(0, 9, 9))

    async def committed(_: object, group: str, some: list[TopicPartition]) -> dict[TopicPartition, int]:
        assert group == "a"
        return dict.fromkeys(some, 0 if noted else 9)

    monkeypatch.setattr(span, "_read_changelog", said)
    monkeypatch.setattr(streams, "bounds", bounds)
    monkeypatch.setattr(streams, "committed", committed)
    client: Any = SimpleNamespace(ids={"raw": NOW})
    changelog = "changelog" if noted else None
    partition = streams.PartitionStreams(
        client, [], "a", pipeline, [pipeline], 0, changelog, compacted=compacted
    )
    return asyncio.run(span.find_span(partition))


@pytest.mark.parametrize(("topic_id", "taken"), [(NOW, True), (BEFORE, False)])
def test_a_recording_of_the_state_of_a_source_before_is_not_in_the_certificate(
    topic_id: bytes,
    taken: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = Pipeline(name="p", source="raw", sink="clean", dedup=DEDUP)
    noted: Any = SimpleNamespace(known_from=0, before_ms=0, backfill="")

    found = found_span(monkeypatch, pipeline, noted, topic_id)

    assert (found.history is noted) is taken
    # Nor is the group followed: what comes next would be judged by a clock that nobody knows.
    assert found.committed is taken
    assert found.report.state_id == (bytes(16) if taken else b""), "what is noted of the run that was proved"


@pytest.mark.parametrize("compacted", [False, True], ids=["plain", "compacted"])
def test_a_batch_that_was_written_anew_is_another_source_but_where_the_source_is_compacted(
    compacted: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = Pipeline(name="p", source="raw", sink="clean", dedup=DEDUP)
    noted: Any = SimpleNamespace(known_from=0, before_ms=0, backfill="")

    async def rewritten(*_: object) -> tuple[int, int]:
        return 0, 4_321

    monkeypatch.setattr(source_identity, "_batch_at", rewritten)

    found = found_span(monkeypatch, pipeline, noted, batch=(0, 1_234), compacted=compacted)

    assert (found.history is noted) is compacted


def colliding(**keys: Any) -> Pipeline:
    given = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "1h", "fingerprint": {}}
    dedup = InsertIdDedup.model_validate({**given, **keys})
    return Pipeline(name="p", source="raw", sink="clean", duplicates="dropped", dedup=dedup)


def test_new_ids_cannot_be_proved_where_nothing_says_by_which_secret_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renaming = colliding(on_collision="rename", rename={"to": "header:id"})
    with pytest.raises(StopError, match="raw:0: nothing says by which secret the new ids"):
        found_span(monkeypatch, renaming, None)
    assert found_span(monkeypatch, colliding(on_collision="tag"), None).report.stop == 9


def test_with_a_fingerprint_receipts_are_not_trusted_where_the_clock_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: Any = SimpleNamespace(known_from=5, before_ms=0, secret=bytes(16), backfill="")
    with pytest.raises(StopError, match="receipts do not say with which content"):
        found_span(monkeypatch, colliding(), noted)
    without = colliding(fingerprint=None)
    assert found_span(monkeypatch, without, noted).clock_known == KnownClock(5, 0)


def test_what_a_backfill_brought_is_trusted_by_receipts_that_say_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: Any = SimpleNamespace(known_from=0, before_ms=3, secret=bytes(16), backfill="b")
    with pytest.raises(
        StopError, match="began with backfill b, which the source does not hold; and receipts do"
    ):
        found_span(monkeypatch, colliding(), noted)
    without = colliding(fingerprint=None)
    assert found_span(monkeypatch, without, noted).clock_known == KnownClock(0, 3, "b")
    noted.before_ms = NEVER
    assert found_span(monkeypatch, without, noted).clock_known is None, "of this partition it brought nothing"


def test_a_reset_meanwhile_ends_a_certificate_that_goes_on_by_the_clock() -> None:
    first = [
        (ORIGIN_KEY, Origin(0, 0).encode()),
        (POSITION_KEY, Position(5, -1, 0, bytes(16), bytes(16), 4).encode()),
    ]
    rows = list(first)

    class Log:
        name = "changelog:0"

        async def bounds(self) -> Bounds:
            return Bounds(0, len(rows), len(rows))

        async def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
            yield columns_of(rows[start:stop])[0], stop

    log: Any = Log()

    async def run() -> None:
        recording = ClockHistory(log, 0, arrival=True)
        await recording.read(len(rows))
        assert await recording.reach(5, 0)
        rows.extend(first)
        with pytest.raises(StopError, match="a reset has begun the state anew meanwhile"):
            await recording.reach(6, 0)

    asyncio.run(run())
