"""What a slot says in verdict records: ranges without gap or overlap, whatever a commit takes in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.batch.columns import CRC
from processor.errors import StopError
from processor.pipeline.hop_kinds import HopKind
from processor.pipeline.hops import only_hop
from processor.pipeline.piece import before
from processor.pipeline.ports import Topics
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.pipeline.verdicts import VerdictDraft, VerdictPart
from processor.wire.decode import Chunk, Piece
from processor.wire.encode import Encoder
from schemas.verdicts.ranges import VerdictRanges
from schemas.verdicts.record import SourceSums, VerdictRecord, xored
from tests.support.suite.examples import examples
from tests.support.wire import batches
from tests.support.wire.batches import CODECS, Record, by_hand, chunk, decoded, marker, run, transaction
from tests.unit.pipeline.test_slot_pipeline import CONFIG, SINK, Slot, came, record

LIMIT = 1_048_588
NONE, NO_CODES = np.zeros(0, np.int64), np.zeros(0, np.uint8)


def part(start: int, rows: int, *, dropped_each: int = 2) -> VerdictPart:
    """Return that of a piece of which each second record or so is dropped, in batches of ten."""
    offsets = np.arange(start, start + rows, dtype=np.int64)
    crcs = offsets[9::10] % 97
    aside = offsets[::dropped_each]
    faults = np.full(aside.size, 3, np.uint8)
    sums = rows, xored(offsets**3), crcs
    return VerdictPart(start + rows, *sums, aside, aside, faults, NONE, NO_CODES)


def read(draft: VerdictDraft, end: int) -> list[VerdictRecord]:
    follow = VerdictRanges(3)
    found = []
    for batch in draft.batches(end):
        raw = batch.build(-1, -1, -1, transactional=True)
        assert len(raw) <= draft._limit_bytes
        found += [follow.take(each.value) for each in batches.decoded(chunk(raw))[0]]
    return found


def drafted(parts: list[VerdictPart], limit: int, *, begins: bool = False) -> VerdictDraft:
    draft = VerdictDraft("v", limit, 3, b"\x01" * 16, 0, begins=begins)
    for each in parts:
        draft.add(each)
    return draft


@pytest.mark.parametrize(("limit", "records"), [(LIMIT, 1), (3_000, 2), (1_700, 4)])
def test_what_one_record_cannot_say_several_do_without_gap_or_overlap(limit: int, records: int) -> None:
    parts = [part(start, 500) for start in range(0, 4_000, 500)]
    found = read(drafted(parts, limit), 4_100)
    assert len(found) == records
    assert [found[0].base, found[-1].end] == [0, 4_100]
    whole = np.concatenate([each.skipped for each in found])
    assert whole.tolist() == list(range(0, 4_000, 2))
    assert sum(each.sums.records for each in found) == 4_000
    (once,) = read(drafted(parts, LIMIT), 4_100)
    assert once.sums == SourceSums().more(4_000, xored(np.arange(4_000) ** 3), np.arange(9, 4_000, 10) % 97)


def test_however_a_piece_is_cut_the_checksum_of_each_batch_is_in_one_part() -> None:
    both = [by_hand(run(start, start + 3), batches.NONE) for start in (0, 3)]

    def crcs(piece: Piece) -> list[int]:
        passes = np.zeros(len(piece.columns), np.uint8)
        return [int(each) for each in VerdictPart.of(piece, passes, passes, passes).crcs]

    def piece(position: int = 0) -> Piece:
        (found,) = batches.DECODER.pieces(chunk(*both, position=position))
        return found

    whole = piece().batches[:, CRC].tolist()
    for cut in range(1, 6):
        assert crcs(before(piece(), cut)) + crcs(piece(cut)) == whole


def test_a_record_of_one_piece_that_does_not_fit_stops_with_what_the_topic_needs() -> None:
    with pytest.raises(StopError, match=r"v:3: a verdict record of \d+ bytes .* \(it has 500"):
        drafted([part(0, 5_000)], 500).batches(5_000)


def test_a_commit_that_moves_nothing_says_nothing_but_where_it_begins() -> None:
    draft = drafted([], LIMIT, begins=True)
    (found,) = read(draft, 0)
    assert (found.base, found.end, found.begins) == (0, 0, True)
    draft.committed(0)
    assert not draft.batches(0)
    (after,) = read(draft, 7)
    assert (after.base, after.end, after.begins, after.sums.records) == (0, 7, False, 0)


def test_what_retention_has_removed_lies_in_the_next_range() -> None:
    slot = Slot()
    opened = slot.pipeline.partitions[0]
    opened.verdicts = VerdictDraft("verdicts", LIMIT, 0, bytes(16), 0, begins=True)
    slot.take(came(1, 2))
    slot.pipeline.skip(0, 10)
    slot.take(came(3, start=10))
    slot.commit()
    slot.take(came(4, start=11))
    slot.commit()
    found = [VerdictRecord.decode(each.value) for each in slot.output.records("verdicts")]
    assert [(each.base, each.end, each.begins) for each in found] == [(0, 11, True), (11, 12, False)]


def test_the_record_is_acknowledged_with_the_output_before_the_changelog_is_written() -> None:
    slot = Slot()
    slot.pipeline.partitions[0].verdicts = VerdictDraft("verdicts", LIMIT, 0, bytes(16), 0, begins=True)
    slot.take(came(1))
    slot.commit()
    said = slot.said
    first_flush = said.index("flush")
    assert said.index("send verdicts:0") < first_flush < said.index("send clicks-changelog:0")


def both() -> Slot:
    """Return a slot that writes records, and verdicts beside them."""
    slot = Slot()
    topics = Topics(
        "source", SINK, "bad", "changelog", LIMIT, LIMIT, verdicts="verdicts", verdicts_limit_bytes=LIMIT
    )
    slot.pipeline = SlotPipeline(
        HopKind(only_hop(CONFIG), topics), slot.output, batches.DECODER, Encoder(), slot.metrics
    )
    slot.add(0, slot.stores[0]).verdicts = VerdictDraft("verdicts", LIMIT, 0, bytes(16), 0, begins=True)
    return slot


@st.composite
def sources(draw: st.DrawFn) -> list[Chunk]:
    """Draw chunks of batches in any codec: with gaps, resends, records that cannot be judged, transactions."""
    at, found = 0, list[Chunk]()
    for _ in range(draw(st.integers(1, 4))):
        parts, aborted, position = list[bytes](), list[tuple[int, int]](), at
        for _ in range(draw(st.integers(1, 4))):
            gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
            offsets = (at + np.cumsum(gaps) - 1).tolist()
            sequence = st.one_of(st.integers(0, 30), st.none())
            some: list[Record] = [record(offset, draw(sequence)) for offset in offsets]
            at = offsets[-1] + 1
            kind = draw(st.sampled_from(["plain", "committed", "aborted"]))
            if kind == "plain":
                parts.append(by_hand(some, draw(st.sampled_from(CODECS))))
                continue
            producer = 100 + at
            parts += [transaction(some, producer), marker(at, producer, commit=kind == "committed")]
            aborted += [(producer, offsets[0])] if kind == "aborted" else []
            at += 1
        found.append(chunk(*parts, position=position, aborted=aborted))
    return found


@examples(60)
@given(sources(), st.data())
def test_the_sink_is_the_source_without_what_is_skipped_whatever_the_batches(
    chunks: list[Chunk], data: st.DataObject
) -> None:
    slot = both()
    for some in chunks:
        slot.take(some)
        if data.draw(st.booleans()):
            slot.commit()
    slot.commit()
    came_in = [each for one in chunks for each in decoded(one)[0]]
    follow, verdicts = VerdictRanges(0), slot.output.records("verdicts")
    taken: list[Record] = []
    for each in verdicts:
        found = follow.take(each.value)
        inside = [one for one in came_in if found.base <= one.offset < found.end]
        assert found.sums.records == len(inside)
        assert found.sums.timestamps == xored(np.array([one.timestamp for one in inside], np.int64))
        passes = found.passes(np.array([one.offset for one in inside], np.int64))
        taken += [one for one, goes in zip(inside, passes, strict=True) if goes]
    assert follow.end == slot.pipeline.partitions[0].position.next_offset
    sink = slot.output.records(SINK)
    assert [each._replace(offset=0) for each in taken] == [each._replace(offset=0) for each in sink]
