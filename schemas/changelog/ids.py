r"""State of mode insert-id in the changelog and the local state, byte for byte.

Beside the position and the origin (`schemas.changelog.position`), and by the same rules: big-endian, a version
first and a CRC-32C last::

    key       b"I"            the state of the ids, one per partition, written with every commit
              b"B" u64        changelog only: a block of ids, by the number of its first
              b"o"            the origin once more, as it stands under its own key
              b"H"            changelog only: how much of a backfill is there, until it is whole
              b"\xffP" u64    local state only: a page of ids, by the number of its first
              b"\x00J" u64    local state only: from which changelog offset on ids from that number on lie

    ids       | version u8 = 1 | secret 16 B | clock i64 | next number u64 | floor u64 | size u8, backfill
              | trace ... | crc u32 |

    place     | version u8 = 1 | changelog offset i64 | crc u32 |

Blocks and pages are drawn in `processor.engine.ids.page`: some have fingerprints beside the ids,
and some hold records of ids that collided. ``secret`` keys the hashes that identify ids, fingerprints
and new ids; it is made with a partition's first commit and never changes, not by a reset either. ``clock`` is
the partition's, ms, after the commit's last record, and the lowest i64 before the first; ``next number`` is
that of the next id to be remembered. All ids below ``floor`` are expired: a changelog that begins at or below
it is whole. The trace says how the clock came to what it says (`schemas.changelog.clock`); in the
local state it has no limits. The state that began with a backfill (`schemas.changelog.backfill`) says its name,
of which others have none; what it has brought has no source record for an owner.

Of one commit the blocks come first, this record after them, the position last. Nothing is ever written again
under the key of a block: such a changelog is not compacted, and never deleted by time. What all ids of are
expired is deleted from the front; before that the origin is written once more, behind it, and readers do not
forget anything there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from schemas.changelog.clock import ClockTrace
from schemas.changelog.values import CRC, CorruptStateError, name_at, named, opened, sealed

IDS_KEY = b"I"
ID_BLOCK_KIND = b"B"
ORIGIN_COPY_KEY = b"o"
ID_PAGE_KIND = b"\xffP"
ID_PLACE_KIND = b"\x00J"
SECRET_BYTES = 16
_IDS = struct.Struct(">B16sqQQ")
_PLACE = struct.Struct(">Bq")
_NUMBER = struct.Struct(">Q")
_VERSION = 1
_NOTHING_SAID = ClockTrace()


@dataclass(frozen=True, slots=True)
class IdState:
    """What there is to know of a partition's ids beside the ids.

    Attributes:
        secret: 16 bytes, the key of the hash; not shown.
        clock_ms: The partition's clock.
        next_number: Number of the next id that is remembered.
        floor: All ids below this number are expired.
        trace: How the clock came to that.
        backfill: The name of the backfill that the state began with; empty where there was none.
    """

    secret: bytes
    clock_ms: int
    next_number: int
    floor: int
    trace: ClockTrace = _NOTHING_SAID
    backfill: str = ""

    def __repr__(self) -> str:
        return f"IdState(clock_ms={self.clock_ms}, next_number={self.next_number}, floor={self.floor})"

    def encode(self) -> bytes:
        """Return the value under `IDS_KEY`."""
        head = _IDS.pack(_VERSION, self.secret, self.clock_ms, self.next_number, self.floor)
        return sealed(IDS_KEY, head + named(self.backfill) + self.trace.encode())

    @classmethod
    def decode(cls, value: bytes) -> IdState:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        body = opened(IDS_KEY, value, max(_IDS.size, len(value) - CRC.size))
        try:
            backfill, at = name_at(body, _IDS.size)
            trace = ClockTrace.decode(body[at:])
        except (ValueError, IndexError) as error:
            raise CorruptStateError(f"the value under {IDS_KEY!r}: {error}") from error
        _, secret, clock_ms, next_number, floor = _IDS.unpack_from(body)
        return cls(secret, clock_ms, next_number, floor, trace, backfill)


def id_block_key(first: int) -> bytes:
    """Return the key of a block in the changelog."""
    return ID_BLOCK_KIND + _NUMBER.pack(first)


def id_page_key(first: int) -> bytes:
    """Return the key of a page in the local state; keys sort as their numbers do."""
    return ID_PAGE_KIND + _NUMBER.pack(first)


def id_place_key(first: int) -> bytes:
    """Return the key of a place in the local state."""
    return ID_PLACE_KIND + _NUMBER.pack(first)


def encode_place(key: bytes, changelog_offset: int) -> bytes:
    """Return the value of a place under ``key``."""
    return sealed(key, _PLACE.pack(_VERSION, changelog_offset))


def decode_place(key: bytes, value: bytes) -> int:
    """Return the changelog offset of a place.

    Raises:
        CorruptStateError: It is not one, or not whole.
    """
    _, offset = _PLACE.unpack(opened(key, value, _PLACE.size))
    return int(offset)


def block_number(key: bytes) -> int:
    """Return the number in the key of a block."""
    return int.from_bytes(key[len(ID_BLOCK_KIND) :], "big")


def page_number(key: bytes) -> int:
    """Return the number in the key of a page or a place."""
    return int.from_bytes(key[len(ID_PAGE_KIND) :], "big")
