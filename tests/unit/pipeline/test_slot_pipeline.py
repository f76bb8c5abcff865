"""What becomes of a chunk, and how it is made to last: the numbered steps, over a recording output."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.extract.sequence import HeaderSequence, SequenceFormat
from processor.errors import RebuildError, StopError
from processor.judges.watermark import PartitionWatermark
from processor.kafka.transactions.pace import LEAST_BYTES
from processor.ops.metrics import Metrics
from processor.pipeline import slot_pipeline as pipelines
from processor.pipeline.complaints import MOST_AT_ONCE
from processor.pipeline.hop_kinds import HopKind
from processor.pipeline.hops import only_hop
from processor.pipeline.ports import OpenPartition, Topics, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import CorruptStoreError, MemoryStore, StoreError
from processor.state.table import Table
from processor.wire.encode import Encoder
from schemas.changelog.position import NO_TOPIC, Origin, OutputEnds, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.changelog.watermark import decode_watermark, watermark_key
from schemas.config import Pipeline
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk, marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from processor.ops.fault_points import CommitStep
    from processor.wire.decode import Chunk
    from processor.wire.encode import EncodedBatch

SINK, QUARANTINE, CHANGELOG = "clicks.clean", "clicks.quarantine", "clicks-changelog"
DUPLICATES, INDEX = "clicks.duplicates", "app-clicks-index"
STATE, DEFINITION = b"state id 16 byte", b"definition 16 by"
KEY = watermark_key()
SEQUENCE = {"from": "header", "name": "seq", "format": "text"}
CONFIG = Pipeline.model_validate(
    {"name": "clicks", "source": "source", "sink": SINK, "dedup": {"mode": "watermark", "sequence": SEQUENCE}}
)


class RecordingOutput:
    """Notes what is asked of it; fails where it is told to."""

    marker = 1

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.fail_at: str | None = None
        self.while_flushing: Callable[[], None] = lambda: None
        self.sent: list[tuple[str, int, list[EncodedBatch]]] = []
        self._next: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def _say(self, what: str) -> None:
        self.said.append(what)
        if what == self.fail_at:
            raise RebuildError("test", f"{what} failed")

    def begin(self) -> None:
        self._say("begin")

    def expect(self, topic: str, partition: int) -> None:
        """Nobody to tell: what is written is what counts."""

    async def send(self, topic: str, partition: int, some: Iterable[EncodedBatch]) -> None:
        self._say(f"send {topic}:{partition}")
        self.sent.append((topic, partition, list(some)))
        done = sum(batch.count for batch in self.sent[-1][2])
        self._next[topic, partition] = self._ends.get((topic, partition), 0) + done
        self._ends[topic, partition] = self._next[topic, partition]

    async def flush(self) -> None:
        self._say("flush")
        self.while_flushing()

    def next_offset(self, topic: str, partition: int) -> int:
        return self._next[topic, partition]

    async def commit(self, offsets: Mapping[int, int], between: Callable[[], None]) -> None:
        self._say(f"offsets {dict(offsets)}")
        between()
        self._say("end")
        self._ends = {tp: offset + self.marker for tp, offset in self._next.items()}

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Return what was sent to a topic's partition."""
        found = []
        for to, number, some in self.sent:
            for batch in some if (to, number) == (topic, partition) else ():
                raw = batch.build(-1, -1, -1, transactional=True)
                found += batches.decoded(chunk(raw))[0]
        return found


class RecordingStore(MemoryStore):
    """A store that notes when it is written."""

    def __init__(self, said: list[str], name: str) -> None:
        super().__init__()
        self._said, self._name = said, name

    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        self._said.append(f"local {self._name}")
        super().write(changes, erased)


class FailingStore(MemoryStore):
    """A store whose disk fails at a write, once it holds something."""

    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self._error = error

    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        if self.get(POSITION_KEY) is not None:
            raise self._error
        super().write(changes, erased)


class Slot:
    """A slot pipeline over partitions in memory, all at offset 0."""

    def __init__(
        self,
        *,
        quarantine: bool = True,
        sink_limit: int = 1_000_000,
        quarantine_limit: int = 1_000_000,
        partitions: int = 1,
        duplicates_limit: int | None = None,
        marked: int = 0,
        clock: Callable[[], float] = lambda: 0.0,
        before: Slot | None = None,
    ) -> None:
        self.said: list[str] = []
        self.stops_before: dict[int, int] = {} if before is None else before.stops_before
        self.stores: list[RecordingStore]
        self.output = RecordingOutput(self.said)
        self.metrics = Metrics()
        topics = Topics(
            "source",
            SINK,
            QUARANTINE if quarantine else None,
            CHANGELOG,
            sink_limit,
            quarantine_limit,
            duplicates=None if duplicates_limit is None else DUPLICATES,
            duplicates_limit_bytes=duplicates_limit or 0,
            index=INDEX if marked else None,
            index_partitions=marked,
        )
        kind = HopKind(only_hop(CONFIG), topics)
        shared = self.output, batches.DECODER, Encoder(), self.metrics
        self.pipeline = SlotPipeline(kind, *shared, clock=clock)
        self.pipeline.stops_before = self.stops_before
        stores = [RecordingStore(self.said, str(number)) for number in range(partitions)]
        self.stores = stores if before is None else before.stores
        for number, store in enumerate(self.stores):
            self.add(number, store)

    def again(self, *, duplicates_limit: int = 100) -> Slot:
        """Return the slot's next try, over what the last one has committed."""
        return Slot(duplicates_limit=duplicates_limit, partitions=len(self.stores), before=self)

    def add(self, number: int, store: MemoryStore) -> OpenPartition:
        """Take a partition in as a worker that has just restored its table."""
        table = Table(store)
        judge = PartitionWatermark(HeaderSequence(b"seq", SequenceFormat.TEXT))
        judge.load(table)
        position = table.position() or new_position(0, DEFINITION, STATE, 4)
        self.pipeline.partitions[number] = OpenPartition(number, table, judge, position)
        return self.pipeline.partitions[number]

    def take(self, *chunks: Chunk) -> None:
        for each in chunks:
            asyncio.run(self.pipeline.take(each))

    def commit(self) -> None:
        asyncio.run(self.pipeline.commit())

    def stops(self, what: Chunk) -> str:
        """Take a chunk that must stop the worker; return what it says."""
        with pytest.raises(StopError) as caught:
            self.take(what)
        return str(caught.value)

    def committed(self, number: int = 0) -> tuple[int, int | None]:
        """Return position and watermark as the local state has them."""
        table = Table(self.stores[number])
        position, mark = table.position(), self.stores[number].get(KEY)
        return position.next_offset if position else 0, decode_watermark(KEY, mark) if mark else None

    def counted(self, verdict: str) -> float:
        return (
            self.metrics.registry.get_sample_value(
                "seqmark_records_total", {"pipeline": "clicks", "verdict": verdict}
            )
            or 0.0
        )


def record(offset: int, sequence: object, value: bytes | None = b"v") -> Record:
    """Return a record with a sequence in its header, or without one."""
    headers = () if sequence is None else ((b"seq", str(sequence).encode()),)
    return Record(offset, 1_000 + offset, b"key", value, headers)


def came(*sequences: object, start: int = 0, position: int | None = None) -> Chunk:
    """Return a chunk of one batch with these sequences."""
    some = [record(start + index, sequence) for index, sequence in enumerate(sequences)]
    return chunk(by_hand(some), position=start if position is None else position)


def offsets(records: list[Record]) -> list[int]:
    """Return the source offsets of records made by `record`."""
    return [each.timestamp - 1_000 for each in records]


# ---------------------------------------------------------------- the numbered steps


def test_a_commit_is_exactly_the_numbered_steps_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = Slot()

    def reached(step: CommitStep, pipeline: str) -> None:
        assert pipeline == slot.pipeline.name
        slot.said.append(f"{step} done")

    monkeypatch.setattr(pipelines, "reached", reached)
    slot.take(came(1, 2, 2))
    slot.commit()
    assert slot.said == [
        "begin",
        "begun done",  # 1
        f"send {SINK}:0",
        "flush",
        "output done",  # 2
        f"send {CHANGELOG}:0",
        "flush",
        "changelog done",  # 3
        "offsets {0: 3}",
        "offsets done",  # 4
        "end",
        "ended done",  # 5
        "local 0",
        "local done",  # 6
    ]


@pytest.mark.parametrize("moved", [-4, -1, 1, 1_000])
def test_a_changelog_that_ends_elsewhere_is_noticed_before_the_transaction_ends(moved: int) -> None:
    slot = Slot()
    slot.take(came(1, 2))
    slot.commit()
    slot.take(came(3, start=2))
    slot.commit()
    known = slot.output._ends[CHANGELOG, 0]
    slot.output._ends[CHANGELOG, 0] += moved

    slot.take(came(4, start=3))
    with pytest.raises(RebuildError, match=rf"at offset {known + moved}, but was known to end at {known}: "):
        slot.commit()

    assert slot.said[-3:] == ["flush", f"send {CHANGELOG}:0", "flush"]
    assert slot.committed() == (3, 3)


def test_the_partitions_of_a_slot_are_in_one_transaction() -> None:
    slot = Slot(partitions=2)
    one = came(1, 2)
    slot.take(one, type(one)("source", 1, 0, one.data))
    slot.commit()
    assert slot.said == [
        "begin", f"send {SINK}:0", f"send {SINK}:1", "flush", f"send {CHANGELOG}:0", f"send {CHANGELOG}:1",
        "flush", "offsets {0: 2, 1: 2}", "end", "local 0", "local 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("commit_s", "due_s"),
    [
        (0.02, 1.100),  # an interval after the commit before began, not after it ended
        (0.08, 1.130),  # but half an interval is left, so that slow commits gather more than a chunk
        (5.00, 6.050),
    ],
)
def test_a_commit_is_due_an_interval_after_the_one_before_began(commit_s: float, due_s: float) -> None:
    now = [1.0]
    slot = Slot(clock=lambda: now[0])
    slot.take(came(1))
    slot.commit()
    assert slot.pipeline.due_at(0.1) is None
    now[0] += commit_s
    slot.take(came(2, start=1))
    assert slot.pipeline.due_at(0.1) == pytest.approx(due_s)


@pytest.mark.parametrize(("kind", "raised"), [(CorruptStoreError, RebuildError), (StoreError, StoreError)])
@pytest.mark.parametrize("last", [False, True], ids=["commit", "finish"])
def test_a_local_state_that_turns_out_corrupt_is_thrown_away_and_one_on_a_full_disk_is_not(
    kind: type[StoreError],
    raised: type[Exception],
    last: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    slot = Slot()
    store = FailingStore(kind("in the middle of a compaction"))
    slot.add(0, store)
    slot.take(came(1))
    slot.commit()
    slot.take(came(2, start=1))
    with pytest.raises(raised, match="in the middle of a compaction"):
        asyncio.run(slot.pipeline.finish() if last else slot.pipeline.commit())
    assert slot.said[-1] == "end", "it has committed all the same"
    assert (store.get(POSITION_KEY) is None) == (kind is CorruptStoreError)


def test_a_partition_that_did_not_move_writes_nothing() -> None:
    slot = Slot(partitions=2)
    slot.take(came(1))
    slot.commit()
    assert "offsets {0: 1}" in slot.said
    assert not [said for said in slot.said if said.endswith((":1", "local 1"))]


def test_without_work_there_is_no_commit() -> None:
    slot = Slot()
    slot.commit()
    slot.take(came(1))
    slot.commit()
    said = list(slot.said)
    slot.commit()
    assert slot.said == said
    assert said[0] == "begin"


def test_a_watermark_that_did_not_rise_is_not_written_again() -> None:
    slot = Slot()
    slot.take(came(5))
    slot.commit()
    slot.take(came(5, 4, start=1))
    slot.commit()
    assert [each.key for each in slot.output.records(CHANGELOG)] == [KEY, POSITION_KEY, POSITION_KEY]


FAILURES = ["flush", f"send {CHANGELOG}:0", "offsets {0: 3}", "end"]


@pytest.mark.parametrize("failure", FAILURES)
def test_where_a_step_fails_nothing_is_written_locally_and_a_new_start_judges_the_same(failure: str) -> None:
    slot = Slot()
    slot.take(came(1, 2, 2))
    slot.output.fail_at = failure
    with pytest.raises(RebuildError):
        slot.commit()
    assert list(slot.stores[0].items(b"")) == []
    assert slot.counted("pass") == 0

    again = Slot()
    again.add(0, slot.stores[0])
    again.take(came(1, 2, 2))
    assert offsets(again.output.records(SINK)) == offsets(slot.output.records(SINK)) == [0, 1]


# ---------------------------------------------------------------- what brokers take


def test_where_brokers_take_little_a_transaction_has_a_part_of_a_batch_and_all_of_it_passes_in_order() -> None:
    slot = Slot()
    slot.pipeline.pace.most_bytes = LEAST_BYTES
    some = [record(offset, offset, bytes(500)) for offset in range(50)]
    large = record(50, 50, bytes(2 * LEAST_BYTES))
    slot.take(chunk(by_hand([*some, large, record(51, 51)])))
    slot.commit()
    assert offsets(slot.output.records(SINK)) == list(range(52))
    commits = [int(each.split()[-1][:-1]) for each in slot.said if each.startswith("offsets")]
    # Seven records make 4 kB, and each went without a wait, so the next may have more.
    assert commits[:2] == [7, 17]
    assert len(commits) < 10
    assert commits[-1] == 52


def test_the_first_transaction_holds_no_more_than_it_may_however_its_pieces_are_cut() -> None:
    slot = Slot()
    half = [record(offset, offset, bytes(100_000)) for offset in range(8)]
    more = [record(offset, offset, bytes(100_000)) for offset in range(8, 16)]
    slot.take(chunk(by_hand(half)), chunk(by_hand(more), position=8))
    slot.commit()
    assert [each for each in slot.said if each.startswith("offsets")] == ["offsets {0: 10}", "offsets {0: 16}"]
    assert offsets(slot.output.records(SINK)) == list(range(16))


def test_a_commit_that_takes_long_makes_the_next_one_smaller() -> None:
    seconds = 0.0
    slot = Slot(clock=lambda: seconds)

    def passes() -> None:
        nonlocal seconds
        seconds += 20

    slot.output.while_flushing = passes
    before = slot.pipeline.pace.most_bytes
    slot.take(came(1, 2))
    slot.commit()
    assert slot.pipeline.pace.most_bytes < before


# ---------------------------------------------------------------- receipts and the origin


def test_where_nothing_is_dropped_nothing_goes_to_the_duplicates_topic() -> None:
    slot = Slot(duplicates_limit=1_000_000)
    slot.take(came(1, 2, 3))
    slot.commit()
    assert f"send {DUPLICATES}:0" not in slot.said


@pytest.mark.parametrize("rows", [(1, 5, 5, 6), (5, 5, 6), (5, 6, 6, 7)])
def test_before_a_receipt_that_its_topic_does_not_take_all_is_committed_by_the_next_try(
    rows: tuple[int, ...],
) -> None:
    slot = Slot(duplicates_limit=100, partitions=2)
    slot.take(replace(came(9), partition=1))
    dropped = next(at for at in range(1, len(rows)) if rows[at] == rows[at - 1])
    with pytest.raises(RebuildError, match=f"before offset {dropped} of partition 0"):
        slot.take(came(*rows))
    assert not any(each.startswith("offsets") for each in slot.said)

    again = slot.again()
    again.take(replace(came(9), partition=1))
    said = again.stops(came(*rows))
    assert said.startswith(f"source:0:{dropped}: the receipt of this dropped record")
    assert f"topic {DUPLICATES} needs max.message.bytes of at least" in said
    assert again.committed() == (dropped, rows[dropped])
    assert again.committed(1) == (1, 9)
    assert offsets(again.output.records(SINK)) == list(range(dropped))

    # Whoever begins there commits nothing more, and has nothing to begin again for.
    assert again.again().stops(came(*rows[dropped:], start=dropped)) == said


def test_where_a_record_goes_on_after_all_nothing_is_held_up_behind_it() -> None:
    slot = Slot(duplicates_limit=100)
    with pytest.raises(RebuildError):
        slot.take(came(5, 5, 6))
    again = slot.again(duplicates_limit=1_000_000)
    again.take(came(5, 5, 6), came(7, 8, start=3))
    again.commit()
    assert offsets(again.output.records(SINK)) == [0, 2, 3, 4]
    assert len([each for each in again.said if each == "end"]) == 2


def test_an_origin_is_the_first_thing_of_the_first_commit_and_is_written_once() -> None:
    slot = Slot()
    origin = Origin(7, 3, NO_TOPIC, 1)
    slot.pipeline.partitions[0].origin = origin
    slot.take(came(1))
    slot.commit()
    slot.take(came(2, start=1))
    slot.commit()
    written = slot.output.records(CHANGELOG)
    assert [each.key for each in written] == [ORIGIN_KEY, KEY, POSITION_KEY, KEY, POSITION_KEY]
    assert Origin.decode(written[0].value or b"") == origin


# ---------------------------------------------------------------- what is judged by what


def test_records_are_counted_by_verdict_once_they_are_committed() -> None:
    slot = Slot()
    slot.take(came(5, 5, 3, None, 6))
    assert slot.counted("pass") == 0
    slot.commit()
    counted = {word: slot.counted(word) for word in ("pass", "duplicate", "late", "quarantine")}
    assert counted == {"pass": 2, "duplicate": 1, "late": 1, "quarantine": 1}


def test_a_chunk_of_control_records_moves_the_committed_position() -> None:
    slot = Slot()
    slot.take(chunk(marker(0, 1, commit=True), marker(1, 2, commit=False)))
    slot.commit()
    assert slot.committed() == (2, None)
    assert "offsets {0: 2}" in slot.said


def test_the_position_remembers_the_last_batch_that_held_records() -> None:
    first, last = by_hand([record(0, 1)]), by_hand([record(1, 2)])
    slot = Slot()
    slot.take(chunk(first, last, marker(2, 1, commit=True)))
    slot.commit()
    crc = struct.unpack(">I", last[17:21])[0]
    expected = Position(3, 1, crc, DEFINITION, STATE, 4, ends=OutputEnds(sink=2))
    assert Table(slot.stores[0]).position() == expected


def test_a_chunk_from_another_position_than_expected_is_a_rebuild_and_takes_nothing_in() -> None:
    slot = Slot()
    slot.take(came(1, 2))
    for wrong in (came(1, 2), came(3, start=5)):
        with pytest.raises(RebuildError, match=r"source:0: fetched from \d, expected 2") as caught:
            slot.take(wrong)
        assert caught.value.reason == "position"
    assert offsets(slot.output.records(SINK)) == [0, 1]


# ---------------------------------------------------------------- quarantine, and stopping without it


def test_a_record_that_cannot_be_judged_goes_to_quarantine_and_changes_no_state() -> None:
    slot = Slot()
    slot.take(came(5, "x9", None, 6))
    slot.commit()
    assert offsets(slot.output.records(SINK)) == [0, 3]
    found = slot.output.records(QUARANTINE)
    assert [each.headers[-3:] for each in found] == [
        (
            (b"seqmark.error", code),
            (b"seqmark.detail", detail),
            (b"seqmark.source", b"source:0:%d" % offset),
        )
        for offset, code, detail in [
            (1, b"header_malformed", b"header seq has 2 bytes; decimal digits are wanted"),
            (2, b"header_missing", b"header seq is missing; decimal digits are wanted"),
        ]
    ]
    assert found[0].headers[:-3] == ((b"seq", b"x9"),)
    assert slot.committed() == (4, 6)


def test_of_very_many_bad_records_each_says_what_it_may_be() -> None:
    slot = Slot()
    slot.take(came(*["x"] * (MOST_AT_ONCE + 1)))
    slot.commit()
    details = [dict(each.headers)[b"seqmark.detail"] for each in slot.output.records(QUARANTINE)]
    assert details[:-1] == [b"header seq has 1 byte; decimal digits are wanted"] * MOST_AT_ONCE
    assert b" no value, or not of its form: header seq (decimal digits are wanted)" in (details[-1] or b"")


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_without_quarantine_what_comes_before_is_committed_and_the_record_is_named(bad: int) -> None:
    sequences: list[object] = [5, 6, 7, 8]
    sequences[bad] = None
    slot = Slot(quarantine=False)
    said = slot.stops(came(*sequences))
    assert said.startswith(f"source:0:{bad}: ")
    assert "header_missing" in said
    assert f"--to-offset 0:{bad + 1}" in said
    assert offsets(slot.output.records(SINK)) == list(range(bad))
    assert slot.committed() == (bad, 4 + bad if bad else None)
    assert slot.said[-1] == "local 0"


def test_a_record_too_large_for_the_sink_is_quarantined_before_it_is_judged() -> None:
    slot = Slot(sink_limit=2_000)
    large = bytes(3_000)
    some = [record(0, 1), record(1, 90, large), record(2, None, large), record(3, 2)]
    slot.take(chunk(by_hand(some)))
    slot.commit()
    assert offsets(slot.output.records(SINK)) == [0, 3]
    errors = [each.headers[-3] for each in slot.output.records(QUARANTINE)]
    assert errors == [(b"seqmark.error", b"too_large")] * 2
    assert slot.committed() == (4, 2)


def test_a_large_record_that_its_codec_makes_small_enough_passes() -> None:
    slot = Slot(sink_limit=2_000)
    slot.take(chunk(by_hand([record(0, 1, bytes(3_000))], batches.ZSTD)))
    assert offsets(slot.output.records(SINK)) == [0]


@pytest.mark.parametrize("codec", batches.CODECS)
def test_at_the_sinks_limit_a_record_passes_or_is_quarantined_and_nothing_else_happens(codec: int) -> None:
    noise = np.random.default_rng(codec)
    for size in range(1_880, 2_010):
        slot = Slot(sink_limit=2_000)
        slot.take(chunk(by_hand([record(0, 1, noise.bytes(size))], codec)))
        sink, quarantine = slot.output.records(SINK), slot.output.records(QUARANTINE)
        assert len(sink) + len(quarantine) == 1
        assert all(
            batch.size <= 2_000 for topic, _, some in slot.output.sent for batch in some if topic == SINK
        )


def test_a_record_too_large_without_quarantine_stops_and_says_what_the_sink_needs() -> None:
    some = [record(0, 1), record(1, 2, bytes(3_000))]
    slot = Slot(quarantine=False, sink_limit=2_000)
    said = slot.stops(chunk(by_hand(some)))
    assert said.startswith("source:0:1: too_large: topic clicks.clean needs max.message.bytes of at least ")
    need = int(said.split("at least ")[1].split()[0])
    assert "(it has 2000)" in said
    assert slot.committed() == (1, 1)
    enough = Slot(quarantine=False, sink_limit=need)
    enough.take(chunk(by_hand(some)))
    assert offsets(enough.output.records(SINK)) == [0, 1]


def test_a_record_too_large_for_quarantine_too_stops_before_it_and_says_what_quarantine_needs() -> None:
    some = [record(0, 1), record(1, None), record(2, 2), record(3, 3, bytes(3_000)), record(4, None)]
    slot = Slot(sink_limit=2_000, quarantine_limit=2_500)
    said = slot.stops(chunk(by_hand(some)))
    assert said.startswith("source:0:3: ")
    assert "topic clicks.quarantine needs max.message.bytes of at least" in said
    assert offsets(slot.output.records(SINK)) == [0, 2]
    assert offsets(slot.output.records(QUARANTINE)) == [1]
    assert slot.committed() == (3, 2)


def test_an_undecodable_batch_stops_after_the_batches_before_it_are_committed() -> None:
    bad = bytearray(by_hand([record(2, 3), record(3, 4)]))
    bad[-1] ^= 1
    slot = Slot()
    said = slot.stops(chunk(by_hand([record(0, 1), record(1, 2)]), bytes(bad)))
    assert said.startswith("source:0: the batch at offset 2 cannot be decoded: its CRC-32C")
    assert "seqmark reset -c FILE --pipeline clicks --to-offset 0:" in said
    assert offsets(slot.output.records(SINK)) == [0, 1]
    assert slot.committed() == (2, 2)


# ---------------------------------------------------------------- moving without reading


def test_offsets_that_retention_removed_are_skipped_counted_and_committed() -> None:
    slot = Slot()
    slot.take(came(1, 2))
    slot.pipeline.skip(0, 10)
    slot.take(came(2, 3, start=10))
    slot.commit()
    assert offsets(slot.output.records(SINK)) == [0, 1, 11]
    assert slot.committed() == (12, 3)
    lost = slot.metrics.registry.get_sample_value("seqmark_records_expired_total", {"pipeline": "clicks"})
    assert lost == 8


def test_a_new_partition_commits_its_first_position_before_any_record() -> None:
    slot = Slot()
    slot.pipeline.begin_at(slot.pipeline.partitions[0])
    slot.commit()
    assert slot.committed() == (0, None)
    assert [each.key for each in slot.output.records(CHANGELOG)] == [POSITION_KEY]
