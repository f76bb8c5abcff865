"""One verdict record: a range of source offsets, and which of them are not in the clean stream.

A record of the verdicts topic, in the partition of the source partition's number, has no key and this value;
all integers are big-endian::

     0        1        2       3       4            8           24      32     40
     | magic  | version| flags | form  | partition  | topic id  | base  | end  |
     | 0x56   | u8 = 1 | u8    | u8    | u32        | 16 bytes  | i64  | i64  |
     40       44           52        56           60        64            68           72
     | records| timestamps | batches | batches    | skipped | quarantined | collisions | lists … | crc |
     | u32    | u64        | u32     | crc u32    | u32     | u32         | u32        |         | u32 |

    flags        bit 0, begins: see below; the others are 0
    form         of the list of skipped offsets, see `schemas.verdicts.offsets`
    topic id     of the source (KIP-516); zeros where brokers give none
    base, end    the range, base included, end not
    records      of the source, read_committed, in the range
    timestamps   of these records, all XORed, as u64
    batches      of the source with at least one of these records, whose last offset lies in the range
    batches crc  CRC-32C over the CRC fields of those batches, u32 each, in order
    skipped      offsets that are not in the clean stream
    quarantined  of those: offsets in quarantine
    collisions   offsets whose id came with other content
    lists        the skipped offsets in their form; those of quarantine as gaps, then a code, u8, for each
                 (`FAULTS`); those of collisions as gaps, then an action, u8, for each (`Action`)
    crc          CRC-32C over all before it

Invariant: `base` is the `end` of the record before it in the partition, or the record `begins`: the first of a
state, or the first after a reset or after the pipeline had written none. Then what a reader takes from the
source goes on at its `base`, wherever that is.

Versions: a reader refuses one that it does not know. A bit of ``flags``, a fault or an action that is not known
is of a later version too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from schemas.verdicts.offsets import (
    MOST_OFFSETS,
    CorruptOffsetsError,
    decode,
    encode,
    gaps_of,
    read_gaps,
    varints,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = 0x56
VERSION = 1
BEGINS = 1
UNKNOWN_TOPIC = bytes(16)
MOST_RECORDS = MOST_OFFSETS

FAULTS = (
    "",
    "too_large",
    "header_missing",
    "header_malformed",
    "key_missing",
    "value_missing",
    "value_not_json",
    "field_missing",
    "field_type",
    "out_of_range",
    "scope_too_large",
    "id_collision",
    "value_malformed",
)
"""By number, the code in quarantine's header ``seqmark.error``."""

_HEAD = struct.Struct(">BBBBI16sqqIQIIIII")
_CRC = struct.Struct(">I")
_LEAST_BYTES = _HEAD.size + _CRC.size


class CorruptVerdictError(ValueError):
    """The bytes are no verdict record, or not a whole one, or of a version that is not known."""


class Action(IntEnum):
    """What has become of a record whose id came with other content."""

    DROP = 1
    QUARANTINE = 2
    PASS = 3


def _none() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


def _no_codes() -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8)


def xored(timestamps: NDArray[np.int64]) -> int:
    """Return timestamps XORed, as 64 bits without a sign."""
    return int(np.bitwise_xor.reduce(timestamps)) & (2**64 - 1) if timestamps.size else 0


@dataclass(frozen=True, slots=True)
class SourceSums:
    """What identifies the records of a range, so that a reader notices another topic.

    Attributes:
        records: Their number.
        timestamps: Their timestamps, XORed.
        batches: The number of batches that end in the range.
        batches_crc: CRC-32C over the CRCs of those.
    """

    records: int = 0
    timestamps: int = 0
    batches: int = 0
    batches_crc: int = 0

    def more(self, records: int, timestamps: int, crcs: NDArray[np.int64]) -> SourceSums:
        """Return these with more records, their `xored` timestamps, and the CRCs of batches that end there."""
        crc = google_crc32c.extend(self.batches_crc, crcs.astype(">u4").tobytes())
        return SourceSums(
            self.records + records, self.timestamps ^ timestamps, self.batches + crcs.size, int(crc)
        )


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """One record; lists of offsets are int64[n] and rise.

    Attributes:
        partition: Of the source.
        topic_id: Of the source.
        base: The first offset of the range.
        end: The offset after the last.
        begins: Whether this is not where the record before ends.
        sums: Of the source's records in the range.
        skipped: Offsets that are not in the clean stream.
        quarantined: Those of them that are in quarantine.
        faults: uint8[n], why: numbers of `FAULTS`.
        collided: Offsets whose id came with other content.
        actions: uint8[n], what has become of them: `Action`.
    """

    partition: int
    base: int
    end: int
    sums: SourceSums = SourceSums()
    topic_id: bytes = UNKNOWN_TOPIC
    begins: bool = False
    skipped: NDArray[np.int64] = field(default_factory=_none)
    quarantined: NDArray[np.int64] = field(default_factory=_none)
    faults: NDArray[np.uint8] = field(default_factory=_no_codes)
    collided: NDArray[np.int64] = field(default_factory=_none)
    actions: NDArray[np.uint8] = field(default_factory=_no_codes)

    @property
    def passed(self) -> int:
        """How many of the source's records in the range are in the clean stream."""
        return self.sums.records - self.skipped.size

    def encode(self) -> bytes:
        """Return the value."""
        form, skipped = encode(self.skipped, self.base, self.end)
        head = _HEAD.pack(
            MAGIC,
            VERSION,
            BEGINS if self.begins else 0,
            form,
            self.partition,
            self.topic_id,
            self.base,
            self.end,
            self.sums.records,
            self.sums.timestamps,
            self.sums.batches,
            self.sums.batches_crc,
            self.skipped.size,
            self.quarantined.size,
            self.collided.size,
        )
        body = (
            head
            + skipped
            + self._coded(self.quarantined, self.faults)
            + self._coded(self.collided, self.actions)
        )
        return body + _CRC.pack(google_crc32c.value(body))

    def _coded(self, offsets: NDArray[np.int64], codes: NDArray[np.uint8]) -> bytes:
        return varints(gaps_of(offsets, self.base)) + codes.tobytes()

    @classmethod
    def decode(cls, value: bytes | None) -> VerdictRecord:
        """Read a value; makes room for no more than its bytes can hold, and `MOST_RECORDS`.

        Raises:
            CorruptVerdictError: It is none, or not whole, or says what cannot be.
        """
        value = value or b""
        if len(value) < _LEAST_BYTES:
            raise CorruptVerdictError(f"{len(value)} bytes are no verdict record")
        magic, version, flags, form, partition, topic_id, base, end, *numbers = _HEAD.unpack_from(value)
        if magic != MAGIC:
            raise CorruptVerdictError(f"it begins with byte {magic:#04x}, and not with {MAGIC:#04x}")
        if version != VERSION or flags & ~BEGINS:
            raise CorruptVerdictError(
                f"it has version {version} and flags {flags:#04x}, this Seqmark reads version {VERSION}: a "
                "newer one has written it, and has to read it"
            )
        if google_crc32c.value(value[: -_CRC.size]) != _CRC.unpack(value[-_CRC.size :])[0]:
            raise CorruptVerdictError("it fails its checksum")
        records, timestamps, batches, crc, *counts = numbers
        if not 0 <= base <= end or records > min(end - base, MOST_RECORDS) or batches > records:
            raise CorruptVerdictError(f"a range from {base} to {end} cannot have {records:,} records")
        if counts[0] > records or counts[1] > counts[0] or counts[2] > records:
            raise CorruptVerdictError(f"of {records:,} records it lists {', '.join(map(str, counts))}")
        try:
            lists = _read_lists(
                np.frombuffer(value, np.uint8)[_HEAD.size : -_CRC.size], form, counts, base, end
            )
        except CorruptOffsetsError as error:
            raise CorruptVerdictError(str(error)) from error
        sums = SourceSums(records, timestamps, batches, crc)
        found = cls(partition, base, end, sums, topic_id, bool(flags & BEGINS), *lists)
        found.require_sound()
        return found

    def require_sound(self) -> None:
        """Look whether the lists agree with each other.

        Raises:
            CorruptVerdictError: They do not.
        """
        if not np.isin(self.quarantined, self.skipped, assume_unique=True).all():
            raise CorruptVerdictError("an offset in quarantine is not skipped")
        if self.faults.size and not (self.faults.min() > 0 and self.faults.max() < len(FAULTS)):
            raise CorruptVerdictError("it has a fault that this Seqmark does not know")
        if self.actions.size and not (self.actions.min() >= Action.DROP and self.actions.max() <= Action.PASS):
            raise CorruptVerdictError("it has an action that this Seqmark does not know")
        aside = np.isin(self.collided, self.quarantined, assume_unique=True)
        stays = np.isin(self.collided, self.skipped, assume_unique=True)
        right = np.where(aside, Action.QUARANTINE, np.where(stays, Action.DROP, Action.PASS))
        if (self.actions != right).any():
            raise CorruptVerdictError("what it says of a collision is not what has become of its offset")

    def passes(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return bool[n], which of some source offsets are in the clean stream by this record."""
        inside = np.logical_and(offsets >= self.base, offsets < self.end)
        if not self.skipped.size:
            return inside
        at = np.minimum(np.searchsorted(self.skipped, offsets), self.skipped.size - 1)
        passes: NDArray[np.bool_] = inside & (self.skipped[at] != offsets)
        return passes


def begun_at(value: bytes) -> int | None:
    """Return the base of a record that begins, without reading its lists; None: it goes on, or is none."""
    if len(value) < _LEAST_BYTES or value[:2] != bytes([MAGIC, VERSION]):
        return None
    flags, base = value[2], _HEAD.unpack_from(value)[6]
    whole = google_crc32c.value(value[: -_CRC.size]) == _CRC.unpack(value[-_CRC.size :])[0]
    return int(base) if flags & BEGINS and whole else None


def base_of(value: bytes) -> int | None:
    """Return the base of a record by its head alone, which is not checked; None: it is none."""
    if len(value) < _LEAST_BYTES or value[:2] != bytes([MAGIC, VERSION]):
        return None
    return int(_HEAD.unpack_from(value)[6])


def _read_lists(
    data: NDArray[np.uint8], form: int, counts: list[int], base: int, end: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8]]:
    skipped, at = decode(form, data, counts[0], base, end)
    coded: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
    for count in counts[1:]:
        offsets, used = read_gaps(data[at:], count, base, end)
        at += used
        codes = data[at : at + count]
        if codes.size < count:
            raise CorruptOffsetsError("the codes are cut")
        coded.append((offsets, codes.copy()))
        at += count
    if at != data.size:
        raise CorruptOffsetsError(f"{data.size - at} bytes are left over")
    return skipped, *coded[0], *coded[1]
