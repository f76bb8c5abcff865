"""Verdict records by a naive model: what is written is read, and what is cut, flipped or forged is refused."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.verdicts import offsets as codec
from schemas.verdicts.offsets import CorruptOffsetsError, OffsetForm
from schemas.verdicts.ranges import VerdictRanges
from schemas.verdicts.record import FAULTS, Action, CorruptVerdictError, SourceSums, VerdictRecord, xored

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 2**63 - 1


def naive_varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number % 128 + 128)
        number //= 128
    return bytes([*found, number])


def naive_forms(offsets: Sequence[int], base: int, end: int) -> list[bytes]:
    """Write each form as the page says it, an offset at a time."""
    gaps, last = b"", base - 1
    runs: list[list[int]] = []
    for offset in offsets:
        gaps += naive_varint(offset - last - 1)
        if runs and offset == last + 1:
            runs[-1][1] += 1
        else:
            runs.append([offset - last - 1, 0])
        last = offset
    forms = [gaps, naive_varint(len(runs)) + b"".join(naive_varint(n) for run in runs for n in run)]
    if end - base <= 1 << 16:
        bits = bytearray((end - base + 7) // 8)
        for offset in offsets:
            bits[(offset - base) // 8] |= 1 << (offset - base) % 8
        forms.append(bytes(bits))
    return forms


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """Draw a range and offsets of it: dense and sparse ones, runs, near both ends of what there is."""
    base = draw(st.sampled_from([0, 1, 5, 1_000_000, 2**40, MOST - 5_000]))
    size = draw(st.one_of(st.integers(0, 300), st.sampled_from([4_000, MOST - base])))
    end = min(base + size, MOST)
    near = st.integers(base, max(base, min(end - 1, base + 300)))
    anywhere = st.integers(base, max(base, end - 1))
    found = draw(st.sets(st.one_of(near, anywhere), max_size=60)) if end > base else set()
    if end > base and draw(st.booleans()):
        start = draw(near)
        found |= set(range(start, min(end, start + draw(st.integers(1, 200)))))
    return base, end, sorted(found)


@given(ranges())
def test_offsets_are_written_in_the_smallest_form_as_drawn_and_read_again(
    drawn: tuple[int, int, list[int]],
) -> None:
    base, end, some = drawn
    form, data = codec.encode(np.array(some, np.int64), base, end)
    every = naive_forms(some, base, end)
    assert len(data) == (min(map(len, every)) if some else 0)
    for each, written in enumerate(every):
        padded = np.frombuffer(written + b"\x07", np.uint8)
        found, used = codec.decode(each, padded, len(some), base, end)
        assert (found.tolist(), used) == (some, len(written))
    assert not some or data == every[form]


@given(st.lists(st.integers(0, MOST), max_size=50), st.binary(max_size=4))
def test_varints_are_those_of_the_naive_way(numbers: list[int], rest: bytes) -> None:
    data = codec.varints(np.array(numbers, np.int64))
    assert data == b"".join(map(naive_varint, numbers))
    found, used = codec.read_varints(np.frombuffer(data + rest, np.uint8), len(numbers))
    assert (found.tolist(), used) == (numbers, len(data))


@given(
    st.sampled_from([*OffsetForm, 3]),
    st.binary(max_size=40),
    st.integers(0, 2**31),
    st.integers(0, MOST),
    st.integers(0, 99),
)
def test_what_is_read_lies_in_the_range_and_rises_whatever_the_bytes_are(
    form: int, data: bytes, count: int, base: int, size: int
) -> None:
    end = min(base + size, MOST)
    try:
        found, used = codec.decode(form, np.frombuffer(data, np.uint8), count, base, end)
    except CorruptOffsetsError:
        return
    assert found.size == count
    assert used <= len(data)
    assert sorted(set(found.tolist())) == found.tolist()
    assert not count or (found[0] >= base and found[-1] < end)


@st.composite
def verdicts(draw: st.DrawFn) -> VerdictRecord:
    base, end, skipped = draw(ranges())
    aside = sorted(draw(st.sets(st.sampled_from(skipped)))) if skipped else []
    faults = [draw(st.integers(1, len(FAULTS) - 1)) for _ in aside]
    inside = st.integers(base, max(base, end - 1))
    among = st.sampled_from(skipped) if skipped else inside
    collided = sorted(draw(st.sets(st.one_of(among, inside), max_size=10))) if end > base else []
    actions = [
        Action.QUARANTINE if each in aside else Action.DROP if each in skipped else Action.PASS
        for each in collided
    ]
    records = min(end - base, len(skipped) + len(collided) + draw(st.integers(0, 1_000)))
    number = st.integers(0, 2**32 - 1)
    sums = SourceSums(records, draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, records)), draw(number))
    return VerdictRecord(
        draw(number),
        base,
        end,
        sums,
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.booleans()),
        np.array(skipped, np.int64),
        np.array(aside, np.int64),
        np.array(faults, np.uint8),
        np.array(collided, np.int64),
        np.array(actions, np.uint8),
    )


def said(record: VerdictRecord) -> dict[str, Any]:
    """Return what a record says, as the vectors do."""
    return {
        "partition": record.partition,
        "base": record.base,
        "end": record.end,
        "begins": record.begins,
        "topic_id": record.topic_id.hex(),
        "records": record.sums.records,
        "timestamps": record.sums.timestamps,
        "batches": record.sums.batches,
        "batches_crc": record.sums.batches_crc,
        "skipped": record.skipped.tolist(),
        "quarantined": {
            str(each): FAULTS[code]
            for each, code in zip(record.quarantined.tolist(), record.faults.tolist(), strict=True)
        },
        "collisions": {
            str(each): Action(code).name.lower()
            for each, code in zip(record.collided.tolist(), record.actions.tolist(), strict=True)
        },
    }


@given(verdicts())
def test_a_record_is_read_as_it_was_written_and_says_what_passes(record: VerdictRecord) -> None:
    found = VerdictRecord.decode(record.encode())
    assert said(found) == said(record)
    assert json.loads(json.dumps(said(found))) == said(record)
    near = np.arange(max(0, record.base - 3), min(record.base + 400, MOST))
    skipped = set(record.skipped.tolist())
    passes = [record.base <= each < record.end and each not in skipped for each in near.tolist()]
    assert found.passes(near).tolist() == passes


@given(verdicts(), st.data())
def test_a_record_that_is_cut_or_flipped_is_refused(record: VerdictRecord, data: st.DataObject) -> None:
    value = record.encode()
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(CorruptVerdictError):
        VerdictRecord.decode(value[:cut])
    flipped = bytearray(value)
    flipped[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptVerdictError):
        VerdictRecord.decode(bytes(flipped))
    with pytest.raises(CorruptVerdictError):
        VerdictRecord.decode(value + b"\x00")


@given(verdicts(), st.data())
def test_bytes_that_are_forged_under_a_right_checksum_say_something_sound_or_are_refused(
    record: VerdictRecord, data: st.DataObject
) -> None:
    forged = bytearray(record.encode()[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        forged[data.draw(st.integers(0, len(forged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = VerdictRecord.decode(bytes(forged) + struct.pack(">I", google_crc32c.value(bytes(forged))))
    except CorruptVerdictError:
        return
    found.require_sound()
    assert found.skipped.size <= found.sums.records <= found.end - found.base


@given(st.lists(st.integers(0, 30), min_size=3, max_size=10), st.data())
def test_a_record_that_is_left_out_doubled_or_in_another_place_is_refused(
    sizes: list[int], data: st.DataObject
) -> None:
    ends = np.cumsum(sizes).tolist()
    values = [
        VerdictRecord(3, base, end, SourceSums(end - base)).encode()
        for base, end in zip([0, *ends[:-1]], ends, strict=True)
        if end > base
    ]

    def read(some: list[bytes]) -> None:
        follow = VerdictRanges(3)
        for value in some:
            follow.take(value)

    read(values)
    if len(values) < 3:
        return
    at = data.draw(st.integers(1, len(values) - 2))
    for wrong in (
        values[:at] + values[at + 1 :],
        [*values[:at], values[at], *values[at:]],
        [*values[: at - 1], values[at], values[at - 1], *values[at + 1 :]],
    ):
        with pytest.raises(CorruptVerdictError, match=r"overlaps with|leaves a gap behind"):
            read(wrong)


def test_a_record_that_begins_goes_on_wherever_it_says() -> None:
    follow = VerdictRanges(3)
    follow.take(VerdictRecord(3, 10, 20, SourceSums(10)).encode())
    for base in (5, 20, 90):
        assert follow.take(VerdictRecord(3, base, base + 1, SourceSums(1), begins=True).encode()).begins
    with pytest.raises(CorruptVerdictError, match="source partition 4"):
        follow.take(VerdictRecord(4, 91, 92, SourceSums(1)).encode())
    with pytest.raises(CorruptVerdictError, match="made anew"):
        VerdictRanges(3, b"\x01" * 16).take(VerdictRecord(3, 0, 1, topic_id=b"\x02" * 16).encode())


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.lists(st.integers(0, 2**32 - 1), max_size=20)
)
def test_sums_are_the_same_however_the_records_are_cut(times: list[int], crcs: list[int]) -> None:
    at, whole = np.array(times, np.int64), np.array(crcs, np.int64)
    once = SourceSums().more(at.size, xored(at), whole)
    parts = SourceSums()
    for start in range(0, 20, 7):
        some = at[start : start + 7]
        parts = parts.more(some.size, xored(some), whole[start : start + 7])
    assert parts == once
    assert once.batches_crc == google_crc32c.value(b"".join(struct.pack(">I", each) for each in crcs))
    expected = 0
    for each in times:
        expected ^= each % 2**64
    assert (once.records, once.timestamps, once.batches) == (len(times), expected, len(crcs))
