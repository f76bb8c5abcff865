"""Position and origin of a partition's state, and the mark of how far the local state follows.

The envelope is that of `schemas.changelog.values`::

    position  | version u8 = 1 | flags u8 = 0 | slots u16 | next offset i64 | batch offset i64 | batch crc u32
              | definition 16 B | state id 16 B | source, changelog, sink, duplicates, quarantine, verdicts:
              | 20 B each, see `schemas.changelog.topic_ids` | sink end i64 | duplicates end i64
              | quarantine end i64 | since i64, ms | size u8, application | size u8, pipeline | crc u32 |

    origin    | version u8 = 1 | flags u8 = 0 | source offset i64 | sink offset i64 | duplicates offset i64
              | quarantine offset i64 | known before i64 | reset at i64, ms | size u8, backfill
              | partitions u32 | end offset i64 of each | crc u32 |

    local     | version u8 = 1 | changelog offset i64 | state id 16 B | crc u32 |

``batch offset`` and ``batch crc`` are those of the last source batch that was consumed: a source topic that
was deleted and created again differs in them. ``definition`` is a hash of what the state means (mode, scope,
where the sequence comes from). ``state id`` is random, made with the partition's first commit, and again
with each reset.

A position says which topics the state belongs to, by their ids, and whose it is, by the names (UTF-8) of
the application and of the pipeline, or of the hop with ``route``: `a` with `b-c` and `a-b` with `c` have a
changelog of the same name. It says where the outputs ended with this commit: what has become of the records
below ``next offset`` stands below these ends, and what becomes of those from there on at or above them. So two
positions frame in the outputs what lay between them in the source. ``since`` is when the state was made, at its
first commit or by a reset: it tells apart what was taken in before a reset and after it
(`schemas.changelog.marks`).
With a topic of verdicts, verdict records up to ``next offset`` stand in that one, and the next goes on there
(`schemas.verdicts`); of a pipeline that writes none, and after a reset, there is none: what comes next begins.

An origin says what the state knows of what lies before it: nothing as at a first commit, or, after a reset, how
much, and when that was. That of a pipeline which has begun at the end of its source says where each partition
ended then, from where one that comes to work later goes on; that of a state that began with a backfill
(`schemas.changelog.backfill`) says its name (UTF-8), and a reset that keeps the state says it again.

A bit of the flags that is not known is of a later version. What a build before the first release has written
has other layouts, and is refused.

The origin is written once with a partition's first commit, and with each reset, before everything else of that
transaction. It says from where on source and outputs belong together, which is what `seqmark verify` compares.
Who reads a changelog forgets at an origin what it has read before it: compaction keeps the newest value of a
key, and the state after a reset has none for many keys.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from schemas.changelog import topic_ids
from schemas.changelog.topic_ids import NO_TOPIC_ID, NO_TOPIC_IDS, TopicId, TopicIds
from schemas.changelog.values import (
    CRC,
    LOCAL_KEY,
    ORIGIN_KEY,
    POSITION_KEY,
    CorruptStateError,
    name_at,
    named,
    opened,
    require_end,
    sealed,
)

_POSITION = struct.Struct(">BBHqqI16s16s")
_ENDS = struct.Struct(">qqqq")
_ORIGIN = struct.Struct(">BBqqqqqq")
_COUNT = struct.Struct(">I")
_LOCAL = struct.Struct(">Bq16s")
_VERSION = 1

NO_BATCH = -1
"""``batch_offset`` before any batch has been consumed."""

NO_TOPIC = -1
"""The offset of an output that the pipeline does not have."""


class OutputEnds(NamedTuple):
    """Where the outputs of a source partition end, each in the partition written to; -1: not known."""

    sink: int = -1
    duplicates: int = -1
    quarantine: int = -1


NO_ENDS = OutputEnds()


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
        application: Whose the state is: the name of the application.
        pipeline: The name of the pipeline or hop.
        ends: Where the outputs ended when it was written.
        since_ms: When the state was made, in ms since 1970.
        verdicts: The topic whose verdict records reach up to ``next_offset``; without a name: there is none.
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
    ends: OutputEnds = NO_ENDS
    since_ms: int = 0
    verdicts: TopicId = NO_TOPIC_ID

    def encode(self) -> bytes:
        """Return the value under `POSITION_KEY`."""
        head = _POSITION.pack(
            _VERSION,
            0,
            self.slots,
            self.next_offset,
            self.batch_offset,
            self.batch_crc,
            self.definition,
            self.state_id,
        )
        topics = self.topics.encode() + self.verdicts.encode()
        body = head + topics + _ENDS.pack(*self.ends, self.since_ms)
        return sealed(POSITION_KEY, body + named(self.application) + named(self.pipeline))

    @classmethod
    def decode(cls, value: bytes) -> Position:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        body = _whole(POSITION_KEY, value)
        try:
            _, _, slots, next_offset, batch_offset, crc, definition, state_id = _POSITION.unpack_from(body)
            at = _POSITION.size + topic_ids.SIZE
            topics = TopicIds.decode(body[_POSITION.size : at])
            verdicts, at = TopicId.decode(body[at : at + topic_ids.TOPIC_SIZE]), at + topic_ids.TOPIC_SIZE
            (*ends, since_ms), at = _ENDS.unpack_from(body, at), at + _ENDS.size
            application, at = name_at(body, at)
            pipeline, at = name_at(body, at)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise CorruptStateError(f"the value under {POSITION_KEY!r} is cut") from error
        require_end(POSITION_KEY, body, at)
        belongs = topics, application, pipeline, OutputEnds(*ends), since_ms, verdicts
        return cls(next_offset, batch_offset, crc, definition, state_id, slots, *belongs)


def _whole(key: bytes, value: bytes) -> bytes:
    """Return the body of a value of any size; a flag that it has is of a later version."""
    body = opened(key, value, max(2, len(value) - CRC.size))
    if body[1]:
        raise CorruptStateError(
            f"the value under {key!r} has flags {body[1]:#x}, which a newer Seqmark has set"
        )
    return body


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a partition's state begins: at its first commit, or at its last reset.

    Attributes:
        source_offset: The first source offset that was to be taken in.
        sink_offset: Where the sink ended then; `NO_TOPIC` without one.
        duplicates_offset: Where the duplicates topic ended then; `NO_TOPIC` without one.
        quarantine_offset: Where the quarantine ended then; `NO_TOPIC` without one.
        known_before: How many source offsets right below ``source_offset`` the state knows all the same: 0 at a
            first commit, what a reset has recomputed or kept otherwise.
        reset_ms: When the reset was that made it, in ms since 1970; 0: at a first commit.
        beginning: Where each partition of the source ended when the pipeline began, if it began there.
        backfill: The name of the backfill that the state began with; empty where there was none.
    """

    source_offset: int
    sink_offset: int
    duplicates_offset: int = NO_TOPIC
    quarantine_offset: int = NO_TOPIC
    known_before: int = 0
    reset_ms: int = 0
    beginning: tuple[int, ...] = ()
    backfill: str = ""

    @property
    def by_reset(self) -> bool:
        """Whether a reset made it."""
        return bool(self.reset_ms)

    @property
    def ends(self) -> OutputEnds:
        """Where the outputs ended then."""
        return OutputEnds(self.sink_offset, self.duplicates_offset, self.quarantine_offset)

    @property
    def known_from(self) -> int:
        """The first source offset that the state knows: whoever recomputes it begins there."""
        return self.source_offset - self.known_before

    def encode(self) -> bytes:
        """Return the value under `ORIGIN_KEY`."""
        outputs = self.sink_offset, self.duplicates_offset, self.quarantine_offset
        head = _ORIGIN.pack(_VERSION, 0, self.source_offset, *outputs, self.known_before, self.reset_ms)
        ends = struct.pack(f">I{len(self.beginning)}q", len(self.beginning), *self.beginning)
        return sealed(ORIGIN_KEY, head + named(self.backfill) + ends)

    @classmethod
    def decode(cls, value: bytes) -> Origin:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        body = _whole(ORIGIN_KEY, value)
        try:
            _, _, source, sink, duplicates, quarantine, known_before, reset_ms = _ORIGIN.unpack_from(body)
            backfill, at = name_at(body, _ORIGIN.size)
            (count,), at = _COUNT.unpack_from(body, at), at + _COUNT.size
            ends, at = struct.unpack_from(f">{count}q", body, at), at + 8 * count
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise CorruptStateError(f"the value under {ORIGIN_KEY!r} is cut") from error
        require_end(ORIGIN_KEY, body, at)
        return cls(source, sink, duplicates, quarantine, known_before, reset_ms, ends, backfill)


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
