r"""What do the changelog and the local state hold, byte for byte?

Both hold the same keys and values, but for scopes, which the local state keeps in blocks. Keys begin with a
kind; what follows depends on it::

    key       b"P"            the position record, one a partition, written with every commit
              b"O"            the origin: where this state begins; what stands before it is of an earlier one
              b"W" scope      a watermark; scope is empty for scope = "partition"
              b"I", b"B" u64  mode insert-id: see `schemas.changelog.ids`, and
                              `schemas.changelog.bloom` for what else the bloom backend keeps locally
              b"\x00L"        local state only: how far it has taken in the changelog
              b"\x00B" u64    local state only: block of that number
              b"\x00S"        local state only: which blocks there are

All integers are big-endian. Every value begins with its version and ends with a CRC-32C over key and value,
so that a record under a wrong key, a cut one and a flipped bit are all found::

    position  | version u8 = 1 | slots u16 | next offset i64 | batch offset i64 | batch crc u32
              | definition 16 B | state id 16 B | crc u32 |
    position  | version u8 = 2 | as above, from slots to state id | source, changelog, sink, duplicates,
              | quarantine: 20 B each, see `schemas.changelog.topic_ids`
              | size u8, application | size u8, pipeline | crc u32 |

    origin    | version u8 = 1 | source offset i64 | sink offset i64 | duplicates offset i64
              | quarantine offset i64 | crc u32 |
    origin    | version u8 = 2 | the four offsets as above | known before i64 | crc u32 |
    origin    | version u8 = 3 | the four offsets as above | known before i64 | reset at i64, ms | crc u32 |
    origin    | version u8 = 4 | as version 3 | partitions u32 | end offset i64 of each | crc u32 |

    watermark | version u8 = 1 | flags u8 = 0 | sequence i64 | crc u32 |

    watermark | version u8 = 2 | flags u8 | sequence i64 | epoch i64 (flag 1) | run u32 (flag 2)
              | window u32, ring u64[max(64, window rounded up to a power of two) / 64] (flag 4) | crc u32 |

    local     | version u8 = 1 | changelog offset i64 | state id 16 B | crc u32 |

    block     | version u8 = 1 | records u32 | crc u32 over key, version, records and payload | payload |

    blocks    | version u8 = 1 | first block u64 | block after the last u64 | crc u32 |

Version 1 of a watermark is what scope ``partition`` writes without epoch and window, version 2 what all
others write. With a window one of flags 2 and 4 is set: the ``run`` numbers right below the sequence were
seen and no other, or bit n mod ring size of ``ring`` says whether number n was (bit b is bit b mod 64 of word
b / 64). A block's payload is that of a record batch, version 2 watermarks under their keys; of a scope that
stands in several blocks the last counts.

``batch offset`` and ``batch crc`` are those of the last source batch that was consumed: a source topic that
was deleted and made anew is told by them. ``definition`` is a hash of what the state means (mode, scope,
where the sequence comes from). ``state id`` is random, made with the partition's first commit, and again
with each reset.

Version 2 of a position says which topics the state belongs to, by their ids, and whose it is, by the names
(UTF-8) of the application and of the pipeline, or of the hop with ``route``: `a` with `b-c` and `a-b` with `c`
have a changelog of the same name. Nothing of that is known of a version 1, which is taken over once: the next
commit writes version 2.

Version 1 of an origin says that the state knows nothing of what lies before it, as at a first commit. After a
reset it mostly does: version 2 says how much, and version 3 when the reset was. Version 4
is that of a pipeline that has begun at the end of its source: it says where each partition ended then, from
where one that comes to work later goes on.

The origin is written once with a partition's first commit, and with each reset, before everything else of that
transaction. It says from where on source and outputs belong together, which is what `seqmark verify` compares.
Who reads a changelog forgets at an origin what it has read before it: compaction keeps the newest value of a
key, and the state after a reset has none for many keys.

Versions: a reader refuses a version that it does not know and says so; it never guesses. A new field is a new
version; old ones stay readable.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import google_crc32c

from schemas.changelog import topic_ids
from schemas.changelog.topic_ids import NO_TOPIC_IDS, TopicIds

POSITION_KEY = b"P"
ORIGIN_KEY = b"O"
WATERMARK_KIND = b"W"
LOCAL_KEY = b"\x00L"
BLOCK_KIND = b"\x00B"
BLOCKS_KEY = b"\x00S"
OF_IDS = (b"I", b"B", b"o", b"\xffP", b"\x00J", b"\x00E", b"\x00F", b"\x00R", b"\xffR")
"""What keys of mode insert-id begin with."""

_POSITION = struct.Struct(">BHqqI16s16s")
_ORIGIN = struct.Struct(">Bqqqq")
_KNOWING_ORIGIN = struct.Struct(">Bqqqqq")
_DATED_ORIGIN = struct.Struct(">Bqqqqqq")
_WATERMARK = struct.Struct(">BBq")
_LOCAL = struct.Struct(">Bq16s")
_BLOCK = struct.Struct(">BI")
_BLOCK_NUMBER = struct.Struct(">Q")
_BLOCKS = struct.Struct(">BQQ")
_SCOPE_FLAGS = struct.Struct(">BBq")
_EPOCH = struct.Struct(">q")
_U32 = struct.Struct(">I")
_CRC = struct.Struct(">I")
_VERSION = 1
_NAMED_VERSION = 2
_SCOPE_VERSION = 2
_KNOWING_VERSION = 2
_DATED_VERSION = 3
_BEGUN_VERSION = 4
_WITH_EPOCH, _WITH_RUN, _WITH_RING = 1, 2, 4
NO_BATCH = -1
"""``batch_offset`` before any batch has been consumed."""
NO_TOPIC = -1
"""The offset of an output that the pipeline does not have."""


class CorruptStateError(Exception):
    """A value fails its checksum or has a form or version that is not known."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source partition has been taken in, and under which rules.

    Attributes:
        next_offset: The first offset not yet taken in.
        batch_offset: Base offset of the last source batch consumed; `NO_BATCH` before any.
        batch_crc: Its CRC-32C, as it stands in the source.
        definition: 16 bytes; what the state means.
        state_id: 16 random bytes; which state this is.
        slots: The number of slots of the worker that wrote it.
        topics: Which topics the state belongs to.
        application: Whose the state is: the name of the application; empty where that is not known.
        pipeline: That of the pipeline or hop; empty likewise.
    """

    next_offset: int
    batch_offset: int
    batch_crc: int
    definition: bytes
    state_id: bytes
    slots: int
    topics: TopicIds = NO_TOPIC_IDS
    application: str = ""
    pipeline: str = ""

    def encode(self) -> bytes:
        """Return the value under `POSITION_KEY`."""
        head = _POSITION.pack(
            _NAMED_VERSION,
            self.slots,
            self.next_offset,
            self.batch_offset,
            self.batch_crc,
            self.definition,
            self.state_id,
        )
        body = head + self.topics.encode() + _name(self.application) + _name(self.pipeline)
        return sealed(POSITION_KEY, body)

    @classmethod
    def decode(cls, value: bytes) -> Position:
        """Read a value of version 1 or 2.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        if value[:1] != bytes([_NAMED_VERSION]):
            _, *fields = _POSITION.unpack(opened(POSITION_KEY, value, _POSITION.size))
            return cls(*_in_order(*fields))
        body = opened(POSITION_KEY, value, max(0, len(value) - _CRC.size), _NAMED_VERSION)
        names = _POSITION.size + topic_ids.SIZE
        try:
            _, *fields = _POSITION.unpack_from(body)
            application, at = _name_at(body, names)
            pipeline, at = _name_at(body, at)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise CorruptStateError(f"the value under {POSITION_KEY!r} is cut") from error
        if at != len(body):
            raise CorruptStateError(f"the value under {POSITION_KEY!r} is cut, or too long")
        topics = TopicIds.decode(body[_POSITION.size : names])
        return cls(*_in_order(*fields), topics, application, pipeline)


def _in_order(
    slots: int, next_offset: int, batch_offset: int, batch_crc: int, definition: bytes, state_id: bytes
) -> tuple[int, int, int, bytes, bytes, int]:
    """Return the fields of a `Position` in its own order: on disk ``slots`` comes first."""
    return next_offset, batch_offset, batch_crc, definition, state_id, slots


def _name(text: str) -> bytes:
    """Return a name with its size before it; topic names, which hold both, have at most 249 bytes."""
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def _name_at(body: bytes, at: int) -> tuple[str, int]:
    """Return the name that stands at ``at``, and where it ends."""
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a partition's state begins: at its first commit, or at its last reset.

    Attributes:
        source_offset: The first source offset that was to be taken in.
        sink_offset: Where the sink ended then.
        duplicates_offset: Where the duplicates topic ended then; `NO_TOPIC` without one.
        quarantine_offset: Where the quarantine ended then; `NO_TOPIC` without one.
        known_before: How many source offsets right below ``source_offset`` the state knows all the same: 0 at a
            first commit, what a reset has recomputed or kept otherwise.
        reset_ms: When the reset was that made it, in ms since 1970; 0: at a first commit, or nobody said.
        beginning: Where each partition of the source ended when the pipeline began, if it began there.
    """

    source_offset: int
    sink_offset: int
    duplicates_offset: int = NO_TOPIC
    quarantine_offset: int = NO_TOPIC
    known_before: int = 0
    reset_ms: int = 0
    beginning: tuple[int, ...] = ()

    @property
    def by_reset(self) -> bool:
        """Whether a reset made it; one of before they were dated, and that kept nothing, cannot be told."""
        return bool(self.reset_ms or self.known_before)

    @property
    def known_from(self) -> int:
        """The first source offset that the state knows: whoever recomputes it begins there."""
        return self.source_offset - self.known_before

    def encode(self) -> bytes:
        """Return the value under `ORIGIN_KEY`."""
        outputs = self.sink_offset, self.duplicates_offset, self.quarantine_offset
        if self.beginning:
            fields = self.source_offset, *outputs, self.known_before, self.reset_ms
            ends = struct.pack(f">I{len(self.beginning)}q", len(self.beginning), *self.beginning)
            return sealed(ORIGIN_KEY, _DATED_ORIGIN.pack(_BEGUN_VERSION, *fields) + ends)
        if self.reset_ms:
            fields = self.source_offset, *outputs, self.known_before, self.reset_ms
            return sealed(ORIGIN_KEY, _DATED_ORIGIN.pack(_DATED_VERSION, *fields))
        if not self.known_before:
            return sealed(ORIGIN_KEY, _ORIGIN.pack(_VERSION, self.source_offset, *outputs))
        body = _KNOWING_ORIGIN.pack(_KNOWING_VERSION, self.source_offset, *outputs, self.known_before)
        return sealed(ORIGIN_KEY, body)

    @classmethod
    def decode(cls, value: bytes) -> Origin:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        if value[:1] == bytes([_BEGUN_VERSION]):
            body = opened(ORIGIN_KEY, value, max(0, len(value) - _CRC.size), _BEGUN_VERSION)
            try:
                _, *offsets = _DATED_ORIGIN.unpack_from(body)
                (count,) = _U32.unpack_from(body, _DATED_ORIGIN.size)
                ends = struct.unpack(f">{count}q", body[_DATED_ORIGIN.size + _U32.size :])
            except struct.error as error:
                raise CorruptStateError(f"the value under {ORIGIN_KEY!r} is cut") from error
            return replace(cls(*offsets), beginning=ends)
        if value[:1] == bytes([_DATED_VERSION]):
            body = opened(ORIGIN_KEY, value, _DATED_ORIGIN.size, _DATED_VERSION)
            _, *offsets = _DATED_ORIGIN.unpack(body)
        elif value[:1] == bytes([_KNOWING_VERSION]):
            body = opened(ORIGIN_KEY, value, _KNOWING_ORIGIN.size, _KNOWING_VERSION)
            _, *offsets = _KNOWING_ORIGIN.unpack(body)
        else:
            _, *offsets = _ORIGIN.unpack(opened(ORIGIN_KEY, value, _ORIGIN.size))
        return cls(*offsets)


def watermark_key(scope: bytes = b"") -> bytes:
    """Return the key of a scope's watermark."""
    return WATERMARK_KIND + scope


def encode_watermark(key: bytes, sequence: int) -> bytes:
    """Return the value of a watermark under ``key``."""
    return sealed(key, _WATERMARK.pack(_VERSION, 0, sequence))


def decode_watermark(key: bytes, value: bytes) -> int:
    """Read a watermark.

    Raises:
        CorruptStateError: It is not one, or not whole.
    """
    _, flags, sequence = _WATERMARK.unpack(opened(key, value, _WATERMARK.size))
    if flags:
        raise CorruptStateError(f"watermark {key!r} has flags {flags:#x}, written by a newer version")
    return int(sequence)


@dataclass(frozen=True, slots=True)
class ScopeValue:
    """A scope's watermark, version 2; programs that handle many use the kernels of the engine instead.

    Attributes:
        sequence: The watermark.
        epoch: None where the definition has none.
        run: With a window: how many numbers right below the sequence were seen; None where there is a ring.
        window: With a ring: the reorder window.
        ring: uint64 words, see above.
    """

    sequence: int
    epoch: int | None = None
    run: int | None = None
    window: int = 0
    ring: tuple[int, ...] = ()

    def encode(self, key: bytes) -> bytes:
        """Return the value under ``key``."""
        flags, rest = 0, b""
        if self.epoch is not None:
            flags, rest = _WITH_EPOCH, _EPOCH.pack(self.epoch)
        if self.ring:
            flags |= _WITH_RING
            rest += struct.pack(f">I{len(self.ring)}Q", self.window, *self.ring)
        elif self.run is not None:
            flags |= _WITH_RUN
            rest += _U32.pack(self.run)
        return sealed(key, _SCOPE_FLAGS.pack(_SCOPE_VERSION, flags, self.sequence) + rest)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> ScopeValue:
        """Read a value of version 1 or 2.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        if value[:1] != bytes([_SCOPE_VERSION]):
            return cls(decode_watermark(key, value))
        body, crc = value[:-4], value[-4:]
        if len(value) < _SCOPE_FLAGS.size + 4 or sealed(key, body)[-4:] != crc:
            raise CorruptStateError(f"the value under {key!r} is cut or fails its checksum")
        _, flags, sequence = _SCOPE_FLAGS.unpack_from(body)
        rest = body[_SCOPE_FLAGS.size :]
        if flags & ~(_WITH_EPOCH | _WITH_RUN | _WITH_RING) or flags & 6 == 6:
            raise CorruptStateError(f"watermark {key!r} has flags {flags:#x}, written by a newer version")
        try:
            epoch = run = None
            if flags & _WITH_EPOCH:
                (epoch,), rest = _EPOCH.unpack_from(rest), rest[_EPOCH.size :]
            if flags & _WITH_RING:
                (window,) = _U32.unpack_from(rest)
                ring = struct.unpack(f">{(len(rest) - 4) // 8}Q", rest[4:])
                if 64 * len(ring) != ring_bits(window):
                    raise CorruptStateError(f"the ring under {key!r} does not fit its window of {window}")
                return cls(sequence, epoch, None, window, ring)
            if flags & _WITH_RUN:
                (run,), rest = _U32.unpack_from(rest), rest[_U32.size :]
        except struct.error as error:
            raise CorruptStateError(f"the value under {key!r} is cut") from error
        if rest:
            raise CorruptStateError(f"the value under {key!r} has {len(rest)} bytes too many")
        return cls(sequence, epoch, run)


def ring_bits(window: int) -> int:
    """Return the bits of the ring that remembers ``window`` numbers."""
    return max(64, 1 << max(window - 1, 0).bit_length())


def check_entry(key: bytes, value: bytes) -> None:
    """Look at one value as it stands in a changelog or in the local state.

    Raises:
        CorruptStateError: It is not what ``key`` says, or not whole.
    """
    if key == POSITION_KEY:
        Position.decode(value)
    elif key == ORIGIN_KEY:
        Origin.decode(value)
    elif key == LOCAL_KEY:
        LocalMark.decode(value)
    elif key.startswith(WATERMARK_KIND):
        ScopeValue.decode(key, value)
    elif key.startswith(BLOCK_KIND):
        open_block(key, value)
    elif key == BLOCKS_KEY:
        decode_blocks(value)
    elif not key.startswith(OF_IDS):
        # Those of ids are looked at by whoever takes them over.
        raise CorruptStateError(f"the key {key!r} is of no kind that this Seqmark knows")


@dataclass(frozen=True, slots=True)
class LocalMark:
    """How far the local state has taken in the changelog.

    Attributes:
        changelog_offset: The first changelog offset not yet taken in.
        state_id: As in `Position`: a mark of another state says nothing about this one.
    """

    changelog_offset: int
    state_id: bytes

    def encode(self) -> bytes:
        """Return the value under `LOCAL_KEY`."""
        return sealed(LOCAL_KEY, _LOCAL.pack(_VERSION, self.changelog_offset, self.state_id))

    @classmethod
    def decode(cls, value: bytes) -> LocalMark:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        _, offset, state_id = _LOCAL.unpack(opened(LOCAL_KEY, value, _LOCAL.size))
        return cls(offset, state_id)


def block_key(number: int) -> bytes:
    """Return the key of a local block; keys sort as their numbers do."""
    return BLOCK_KIND + _BLOCK_NUMBER.pack(number)


def encode_block(key: bytes, payload: bytes, records: int) -> bytes:
    """Return the value of a local block under ``key``."""
    head = _BLOCK.pack(_VERSION, records)
    return head + _CRC.pack(_block_crc(key, head, payload)) + payload


def open_block(key: bytes, value: bytes) -> tuple[memoryview, int]:
    """Return a block's payload and how many records it holds.

    Raises:
        CorruptStateError: It is not a block, or not whole.
    """
    start = _BLOCK.size + _CRC.size
    if len(value) < start or value[0] != _VERSION:
        raise CorruptStateError(f"block {key!r} is cut or of a version that this Seqmark does not know")
    head, payload = value[: _BLOCK.size], memoryview(value)[start:]
    if _block_crc(key, head, payload) != _CRC.unpack_from(value, _BLOCK.size)[0]:
        raise CorruptStateError(f"block {key!r} fails its checksum")
    return payload, int(_BLOCK.unpack(head)[1])


def _block_crc(key: bytes, head: bytes, payload: bytes | memoryview) -> int:
    crc = google_crc32c.extend(google_crc32c.value(key), head)
    # Its C code takes memory only of types that say they are bytes.
    return int(google_crc32c.extend(crc, bytes(payload)))


def encode_blocks(first: int, after: int) -> bytes:
    """Return the value under `BLOCKS_KEY`: which blocks there are."""
    return sealed(BLOCKS_KEY, _BLOCKS.pack(_VERSION, first, after))


def decode_blocks(value: bytes) -> tuple[int, int]:
    """Return the first block and the one after the last.

    Raises:
        CorruptStateError: It is not that, or not whole.
    """
    _, first, after = _BLOCKS.unpack(opened(BLOCKS_KEY, value, _BLOCKS.size))
    return int(first), int(after)


def sealed(key: bytes, body: bytes) -> bytes:
    """Return a value: its body and the checksum over key and body."""
    return body + _CRC.pack(google_crc32c.extend(google_crc32c.value(key), body))


def opened(key: bytes, value: bytes, size: int, version: int = _VERSION) -> bytes:
    """Return the body of ``size`` bytes of a value; raises `CorruptStateError` if it is not that."""
    if not value:
        raise CorruptStateError(f"the value under {key!r} is empty")
    if value[0] != version:
        raise CorruptStateError(f"the value under {key!r} has version {value[0]}, this Seqmark reads {version}")
    if len(value) != size + _CRC.size:
        raise CorruptStateError(f"the value under {key!r} has {len(value)} bytes, expected {size + _CRC.size}")
    body, crc = value[:size], _CRC.unpack(value[size:])[0]
    if google_crc32c.extend(google_crc32c.value(key), body) != crc:
        raise CorruptStateError(f"the value under {key!r} fails its checksum")
    return body
