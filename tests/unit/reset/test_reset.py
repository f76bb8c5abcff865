"""What a reset decides, reads and replays, with no broker; the options that say where to; who reads a topic."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from processor.commands.cli import main
from processor.commands.run.reset import read_place, read_time
from processor.engine.extract.sequence import HeaderSequence, SequenceFormat
from processor.errors import ConfigError, StopError
from processor.judges.watermark import PartitionWatermark
from processor.kafka.client import TopicPartition
from processor.kafka.group.assignor import SlotAssignor
from processor.kafka.group.readers import GroupReader, readers_of
from processor.kafka.offsets import Bounds
from processor.kafka.protocol.internals import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from processor.reset.decide import (
    PartitionFacts,
    PartitionStep,
    ResetState,
    ToEarliest,
    ToOffsets,
    decide,
    touched,
    wanted,
)
from processor.reset.facts import window_end_ms
from processor.reset.state import Replay, Replayed, replayed_source, too_large
from schemas.changelog.position import Origin, Position
from tests.support.kafka.log import LogClient
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TP = TopicPartition("t", 0)
MINE, OTHER = b"definition 16 by", b"another definiti"
POSITION = Position(100, 90, 7, MINE, b"state id 16 byte", 4)
KNOWN = PartitionFacts("t:0", Bounds(0, 200, 200), POSITION, Origin(20, 0))


def decided(to: int, known: PartitionFacts = KNOWN, *, forget: bool = False) -> PartitionStep:
    return decide(0, known, to, MINE, forget=forget)


def limits(start: int, stable: int = 200, end: int = 200) -> PartitionFacts:
    return replace(KNOWN, limits=Bounds(start, stable, end))


# ---------------------------------------------------------------- decide


@pytest.mark.parametrize(
    ("to", "known", "step"),
    [
        (150, KNOWN, PartitionStep(0, ResetState.KEPT, 100, 150, 100, 20)),
        (100, KNOWN, PartitionStep(0, ResetState.KEPT, 100, 100, 100, 20)),
        (150, limits(120), PartitionStep(0, ResetState.KEPT, 100, 150, 120, 20)),
        (99, KNOWN, PartitionStep(0, ResetState.RECOMPUTED, 100, 99, 20, 20)),
        (99, limits(20), PartitionStep(0, ResetState.RECOMPUTED, 100, 99, 20, 20)),
        (21, KNOWN, PartitionStep(0, ResetState.RECOMPUTED, 100, 21, 20, 20)),
        (20, KNOWN, PartitionStep(0, ResetState.EMPTY, 100, 20, 20, 20)),
        (5, KNOWN, PartitionStep(0, ResetState.EMPTY, 100, 5, 5, 5)),
        (
            60,
            replace(KNOWN, origin=Origin(50, 0, known_before=45)),
            PartitionStep(0, ResetState.RECOMPUTED, 100, 60, 5, 5),
        ),
        (60, replace(KNOWN, origin=None), PartitionStep(0, ResetState.RECOMPUTED, 100, 60, 0, 0)),
        (
            60,
            replace(limits(9), position=None, origin=None),
            PartitionStep(0, ResetState.RECOMPUTED, None, 60, 9, 9),
        ),
        (9, replace(limits(9), position=None, origin=None), PartitionStep(0, ResetState.EMPTY, None, 9, 9, 9)),
        (
            100,
            replace(KNOWN, position=replace(POSITION, definition=OTHER)),
            PartitionStep(0, ResetState.RECOMPUTED, 100, 100, 20, 20),
        ),
    ],
)
def test_what_becomes_of_a_state_follows_from_where_it_goes(
    to: int, known: PartitionFacts, step: PartitionStep
) -> None:
    assert decided(to, known) == step


def test_ids_of_a_whole_window_are_enough_to_recompute_them() -> None:
    assert decided(90, replace(limits(40), window_end_ms=1)) == PartitionStep(
        0, ResetState.RECOMPUTED, 100, 90, 40, 40
    )
    with pytest.raises(StopError, match="holds none before 40"):
        decided(90, limits(40))


def test_renewals_that_are_not_said_do_not_matter_where_nothing_is_written_or_all_is_recomputed() -> None:
    known = replace(KNOWN, renewals_said=False)
    assert [decided(to, known) for to in (99, 100)] == [decided(to) for to in (99, 100)]
    assert decided(150, known, forget=True).state is ResetState.EMPTY


def test_what_a_backfill_brought_is_kept_or_given_up() -> None:
    known = replace(KNOWN, backfill="b")
    assert [decided(to, known).state for to in (100, 150)] == [ResetState.KEPT, ResetState.KEPT]
    assert decided(20, known, forget=True).state is ResetState.EMPTY


def test_only_who_is_there_already_stays() -> None:
    assert [to for to in (0, 20, 99, 100, 101, 200) if decided(to).stays] == [100]
    assert not decided(100, forget=True).stays
    assert not decided(100, replace(KNOWN, position=replace(POSITION, definition=OTHER))).stays


@pytest.mark.parametrize(
    ("to", "known", "said"),
    [
        (4, limits(5), "the first one there is is 5"),
        (201, KNOWN, "lies beyond the end, which is 200"),
        (160, limits(0, 150), "lies behind offset 150, where a transaction is still open"),
        (99, limits(21), "on the records from offset 20 on, and the source holds none before 21"),
        (60, replace(limits(1), origin=None), "on the records from offset 0 on"),
        (60, replace(limits(9), position=None, origin=None, lost=True), "on the records from offset 0 on"),
        (101, replace(KNOWN, position=replace(POSITION, definition=OTHER)), "Go to 100 or before"),
        (101, replace(KNOWN, renewals_said=False), "when an id was last renewed.*Go to 100 or before"),
        (99, replace(KNOWN, backfill="b"), "began with backfill b.*the state at offset 99 cannot be made"),
        (20, replace(KNOWN, backfill="b"), "began with backfill b.*the state at offset 20 cannot be made"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(to: int, known: PartitionFacts, said: str) -> None:
    with pytest.raises(StopError, match=said):
        decided(to, known)


@given(st.integers(0, 200), st.integers(0, 200), st.booleans())
def test_who_may_forget_is_refused_nothing_that_is_there(start: int, to: int, changed: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    position = replace(POSITION, definition=OTHER if changed else MINE)
    known = replace(limits(start), position=position)
    if to < start:
        with pytest.raises(StopError, match="no longer retained"):
            decided(to, known, forget=True)
    else:
        assert decided(to, known, forget=True) == PartitionStep(0, ResetState.EMPTY, 100, to, to, to)


def test_earliest_is_of_all_partitions_and_offsets_are_of_those_that_are_named() -> None:
    starts = {0: 5, 1: 0}
    assert wanted(ToEarliest(), starts, "t") == starts
    assert wanted(ToOffsets({1: 7}), starts, "t") == {1: 7}
    with pytest.raises(ConfigError, match="there is no partition 2: t has the partitions 0 to 1"):
        wanted(ToOffsets({1: 7, 2: 0}), starts, "t")


def test_partitions_of_one_slot_are_reset_together() -> None:
    steps = [PartitionStep(number, ResetState.EMPTY, 0, 0, 0, 0) for number in (5, 0, 2, 4)]
    by_slot = touched(steps, 4)
    assert {slot: [step.partition for step in some] for slot, some in by_slot.items()} == {
        0: [0, 4],
        1: [5],
        2: [2],
    }


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.000001Z", 1_700_000_000_001),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_a_time_is_rounded_up_to_the_ms(value: str, ms: int) -> None:
    assert read_time(value) == ms


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("2023-11-14T22:13:20", "has no zone"),
        ("2023-11-14", "has no zone"),
        ("yesterday", "is not a time"),
        ("-5", "is not a time"),
        ("1969-12-31T23:59:59Z", "is before 1970"),
    ],
)
def test_what_is_no_time_is_refused(value: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        read_time(value)


@pytest.mark.parametrize("value", ["", "5", ":", "1:", ":1", "-1:5", "0:-5", "0:1:2", "a:1", "0:²"])
def test_what_is_no_place_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter, match="PARTITION:OFFSET"):
        read_place(value)


def test_a_place_is_a_partition_and_an_offset() -> None:
    assert read_place("3:1200") == (3, 1200)


@pytest.mark.parametrize(
    "where",
    [
        (),
        ("--to-earliest", "--to-time", "0"),
        ("--to-earliest", "--to-offset", "0:0"),
        ("--to-offset", "0:0", "--to-offset", "0:1"),
    ],
)
def test_where_to_is_said_exactly_once(where: tuple[str, ...]) -> None:
    # It is refused before the file is looked at.
    result = CliRunner().invoke(main, ["reset", "-c", "no such file", "--pipeline", "p", *where])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give" in result.stderr


# ---------------------------------------------------------------- who reads a topic


def described(
    name: str, topics: list[str], assigned: list[tuple[str, list[int]]]
) -> tuple[str, str, bytes, bytes]:
    metadata = SlotAssignor(dict.fromkeys(topics, 4)).metadata(topics)
    assignment = ConsumerProtocolMemberAssignment(0, assigned, b"")
    return name, "/10.0.0.1", metadata.encode(), assignment.encode()


def test_a_reader_is_who_is_subscribed_whether_it_works_or_stands_by() -> None:
    members = [
        described("a", ["t", "u"], [("t", [2, 0]), ("u", [1])]),
        described("b", ["u"], [("u", [0])]),
        described("c", ["t"], []),
    ]
    assert readers_of("t", members) == [
        GroupReader("a", "/10.0.0.1", (0, 2)),
        GroupReader("c", "/10.0.0.1", ()),
    ]
    assert list(map(str, readers_of("t", members))) == [
        "a at /10.0.0.1 (partitions 0, 2)",
        "c at /10.0.0.1 (standing by)",
    ]


def test_a_newer_form_with_more_behind_is_understood() -> None:
    metadata = ConsumerProtocolMemberMetadata(3, ["u"], b"").encode() + b"owned partitions, generation, rack"
    assert readers_of("t", [("a", "h", metadata, b"")]) == []
    assert readers_of("u", [("a", "h", metadata, b"")]) == [GroupReader("a", "h", ())]


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_who_cannot_be_understood_counts_as_a_reader_and_breaks_nothing(
    metadata: bytes, assignment: bytes
) -> None:
    found = readers_of("t", [("a", "h", metadata, assignment)])
    try:
        understood = ConsumerProtocolMemberMetadata.decode(metadata).subscription
    except ValueError:
        understood = None
    assert len(found) == int(understood is None or "t" in understood)


# ---------------------------------------------------------------- replay


def numbered(*sequences: int, base: int) -> bytes:
    """Return a batch of records with a header ``seq``, format text."""
    return by_hand(
        [Record(base + i, 1000, None, b"v", ((b"seq", b"%d" % number),)) for i, number in enumerate(sequences)]
    )


def spoiled(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def replayed(
    data: Sequence[bytes], stop: int, *, start: int = 0, kept: bool = False
) -> tuple[int | None, int, Replayed]:
    """Replay a log; return the watermark, how many offsets were reported as done, and what was counted."""
    judge: Any = PartitionWatermark(HeaderSequence(b"seq", SequenceFormat.TEXT))
    client: Any = LogClient(data)
    done: list[int] = []
    source = replayed_source(client, batches.DECODER, TP, kept=kept)
    counted = asyncio.run(Replay(source, "s", 1_000_000, done.append).run(start, stop, judge))
    return judge._staged, sum(done), counted


def test_records_from_the_end_on_change_nothing_wherever_in_a_batch_it_lies() -> None:
    data = [numbered(1, 2, 3, base=0), numbered(4, 5, 6, base=3), numbered(7, base=6)]
    for stop, watermark in ((1, 1), (3, 3), (5, 5), (6, 6)):
        found, done, counted = replayed(data, stop)
        assert (done, found, counted.records) == (stop, watermark, stop)
        assert counted.batch_offset == (0 if stop <= 3 else 3)


def test_records_that_cannot_be_judged_are_counted_and_change_nothing() -> None:
    wrong = by_hand(
        [Record(0, 1000, None, b"v", ((b"seq", b"x"),)), Record(1, 1000, None, b"v", ((b"seq", b"3"),))]
    )
    watermark, done, counted = replayed([wrong], 2)
    assert (done, watermark, counted.records, counted.unjudged) == (2, 3, 2, 1)


@pytest.mark.parametrize("kept", [False, True])
def test_a_spoiled_batch_is_stepped_over_and_what_follows_is_judged(*, kept: bool) -> None:
    data = [numbered(1, 2, base=0), spoiled(numbered(30, 31, 32, base=2)), numbered(4, base=5)]
    assert replayed(data, 6, kept=kept)[:2] == (4, 6)
    assert replayed(data, 4, kept=kept)[:2] == (2, 4)
    # A fetch that begins inside it.
    assert replayed(data[1:], 6, start=3, kept=kept)[:2] == (4, 3)


def test_a_spoiled_batch_behind_the_end_is_none_of_our_business() -> None:
    data = [numbered(1, 2, base=0), spoiled(numbered(30, base=2))]
    assert replayed(data, 2)[:2] == (2, 2)


def test_where_nobody_can_tell_where_the_next_batch_begins_only_a_reset_forward_goes_on() -> None:
    lost = bytearray(numbered(3, base=2))
    lost[16] = 7  # a magic byte that Kafka does not know
    data = [numbered(1, 2, base=0), bytes(lost), numbered(9, base=9)]
    with pytest.raises(StopError, match=r"the state cannot be recomputed\. With --forget"):
        replayed(data, 9)
    assert replayed(data, 9, kept=True)[:2] == (2, 9)


# ---------------------------------------------------------------- damage and loss


def a_window(client: LogClient) -> None:
    connections: Any = client
    asyncio.run(window_end_ms(connections, batches.DECODER, TP, (0, 3), 1000))


def the_quarantine(client: LogClient) -> None:
    connections: Any = client
    asyncio.run(too_large(connections, batches.DECODER, TopicPartition("bad", 1), "t"))


@pytest.mark.parametrize(
    ("reads", "damage"),
    [
        (a_window, "^t:0: .* lasts for a window. With --forget the state begins empty$"),
        (the_quarantine, "^bad:1: .* too large for the sink .* With --forget it begins empty$"),
    ],
)
def test_what_a_reset_says_of_source_and_quarantine_names_them_and_what_can_be_done(
    reads: Callable[[LogClient], None], damage: str
) -> None:
    lost = bytearray(numbered(3, base=0))
    lost[16] = 7
    with pytest.raises(StopError, match=damage):
        reads(LogClient([bytes(lost)], end=3))
    # Retention takes what has just been there.
    gone = LogClient([numbered(1, base=9)])
    gone.trimmed_to = 9
    with pytest.raises(StopError, match=r"is gone: .* removed it meanwhile\. Run the same reset again$"):
        reads(gone)
