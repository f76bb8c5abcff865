"""Position and origin of a partition's state, and the mark of how far the local state follows.

The envelope is that of `schemas.changelog.values`::

    position  | version u8 = 1 | slots u16 | next offset i64 | batch offset i64 | batch crc u32
              | definition 16 B | state id 16 B | crc u32 |
    position  | version u8 = 2 | as above, from slots to state id | source, changelog, sink, duplicates,
              | quarantine: 20 B each, see `schemas.changelog.topic_ids`
              | size u8, application | size u8, pipeline | crc u32 |
    position  | version u8 = 3 | as above, from slots to pipeline | sink end i64 | duplicates end i64
              | quarantine end i64 | since i64, ms | crc u32 |
    position  | version u8 = 4 | as above, from slots to since | verdicts: 20 B | crc u32 |

    origin    | version u8 = 1 | source offset i64 | sink offset i64 | duplicates offset i64
              | quarantine offset i64 | crc u32 |
    origin    | version u8 = 2 | the four offsets as above | known before i64 | crc u32 |
    origin    | version u8 = 3 | the four offsets as above | known before i64 | reset at i64, ms | crc u32 |
    origin    | version u8 = 4 | as version 3 | partitions u32 | end offset i64 of each | crc u32 |
    origin    | version u8 = 5 | as version 4 | size u8, backfill | crc u32 |

    local     | version u8 = 1 | changelog offset i64 | state id 16 B | crc u32 |

``batch offset`` and ``batch crc`` are those of the last source batch that was consumed: a source topic that
was deleted and created again differs in them. ``definition`` is a hash of what the state means (mode, scope,
where the sequence comes from). ``state id`` is random, made with the partition's first commit, and again
with each reset.

Version 2 of a position says which topics the state belongs to, by their ids, and whose it is, by the names
(UTF-8) of the application and of the pipeline, or of the hop with ``route``: `a` with `b-c` and `a-b` with `c`
have a changelog of the same name. Nothing of that is known of a version 1, which is taken over once: the next
commit writes the newest.

Version 3 says where the outputs ended with this commit: what has become of the records below ``next offset``
stands below these ends, and what becomes of those from there on at or above them. So two positions frame in
the outputs what lay between them in the source. Nobody knows the ends of a state of version 1 or 2, until
something is written again. ``since`` is when the state was made, at its first commit or by a reset: it tells
apart what was taken in before a reset and after it (`schemas.changelog.marks`).

Version 4 says that verdict records up to ``next offset`` stand in a topic, and in which: the next one goes on
there (`schemas.verdicts`). A pipeline that writes none, and a reset, write version 3: what comes next begins.

Version 1 of an origin says that the state knows nothing of what lies before it, as at a first commit. After a
reset it mostly does: version 2 says how much, and version 3 when the reset was. Version 4
is that of a pipeline that has begun at the end of its source: it says where each partition ended then, from
where one that comes to work later goes on. Version 5 is that of a state that began with a backfill
(`schemas.changelog.backfill`), and says its name (UTF-8); a reset that keeps the state says it again.

The origin is written once with a partition's first commit, and with each reset, before everything else of that
transaction. It says from where on source and outputs belong together, which is what `seqmark verify` compares.
Who reads a changelog forgets at an origin what it has read before it: compaction keeps the newest value of a
key, and the state after a reset has none for many keys.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.changelog import topic_ids
from schemas.changelog.topic_ids import NO_TOPIC_ID, NO_TOPIC_IDS, TopicId, TopicIds
from schemas.changelog.values import CRC, LOCAL_KEY, ORIGIN_KEY, POSITION_KEY, CorruptStateError, opened, sealed

_POSITION = struct.Struct(">BHqqI16s16s")
_ORIGIN = struct.Struct(">Bqqqq")
_KNOWING_ORIGIN = struct.Struct(">Bqqqqq")
_DATED_ORIGIN = struct.Struct(">Bqqqqqq")
_COUNT = struct.Struct(">I")
_LOCAL = struct.Struct(">Bq16s")
_VERSION = 1
_ENDS = struct.Struct(">qqqq")
_NAMED_VERSION = 2
_ENDING_VERSION = 3
_VERDICTS_VERSION = 4
_KNOWING_VERSION = 2
_DATED_VERSION = 3
_BEGUN_VERSION = 4
_BACKFILLED_VERSION = 5

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
        application: Whose the state is: the name of the application; empty where that is not known.
        pipeline: The name of the pipeline or hop; empty where that is not known.
        ends: Where the outputs ended when it was written.
        since_ms: When the state was made, in ms since 1970; 0: before that was recorded.
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
        verdicts = self.verdicts.encode() if self.verdicts.name_crc else b""
        head = _POSITION.pack(
            _VERDICTS_VERSION if verdicts else _ENDING_VERSION,
            self.slots,
            self.next_offset,
            self.batch_offset,
            self.batch_crc,
            self.definition,
            self.state_id,
        )
        body = head + self.topics.encode() + _name(self.application) + _name(self.pipeline)
        return sealed(POSITION_KEY, body + _ENDS.pack(*self.ends, self.since_ms) + verdicts)

    @classmethod
    def decode(cls, value: bytes) -> Position:
        """Read a value of version 1, 2, 3 or 4.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        version = value[0] if value else 0
        if version > _VERDICTS_VERSION:
            reads = f"this Seqmark reads 1 to {_VERDICTS_VERSION}"
            raise CorruptStateError(
                f"the value under {POSITION_KEY!r} has version {version}, {reads}: a newer one has written it, "
                "and has to go on with it"
            )
        if version not in {_NAMED_VERSION, _ENDING_VERSION, _VERDICTS_VERSION}:
            _, *fields = _POSITION.unpack(opened(POSITION_KEY, value, _POSITION.size))
            return cls(*_in_order(*fields))
        body = opened(POSITION_KEY, value, max(0, len(value) - CRC.size), version)
        names = _POSITION.size + topic_ids.SIZE
        try:
            _, *fields = _POSITION.unpack_from(body)
            application, at = _name_at(body, names)
            pipeline, at = _name_at(body, at)
            ends, since_ms, verdicts = NO_ENDS, 0, NO_TOPIC_ID
            if version >= _ENDING_VERSION:
                *known, since_ms = _ENDS.unpack_from(body, at)
                ends, at = OutputEnds(*known), at + _ENDS.size
            if version == _VERDICTS_VERSION:
                verdicts, at = TopicId.decode(body[at : at + topic_ids.TOPIC_SIZE]), at + topic_ids.TOPIC_SIZE
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise CorruptStateError(f"the value under {POSITION_KEY!r} is cut") from error
        if at != len(body):
            raise CorruptStateError(f"the value under {POSITION_KEY!r} is cut, or too long")
        topics = TopicIds.decode(body[_POSITION.size : names])
        return cls(*_in_order(*fields), topics, application, pipeline, ends, since_ms, verdicts)


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
        sink_offset: Where the sink ended then; `NO_TOPIC` without one.
        duplicates_offset: Where the duplicates topic ended then; `NO_TOPIC` without one.
        quarantine_offset: Where the quarantine ended then; `NO_TOPIC` without one.
        known_before: How many source offsets right below ``source_offset`` the state knows all the same: 0 at a
            first commit, what a reset has recomputed or kept otherwise.
        reset_ms: When the reset was that made it, in ms since 1970; 0: at a first commit, or not recorded.
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
        """Whether a reset made it; one from before resets were dated, that kept nothing, counts as none."""
        return bool(self.reset_ms or self.known_before)

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
        if self.beginning or self.backfill:
            version = _BACKFILLED_VERSION if self.backfill else _BEGUN_VERSION
            fields = self.source_offset, *outputs, self.known_before, self.reset_ms
            ends = struct.pack(f">I{len(self.beginning)}q", len(self.beginning), *self.beginning)
            name = _name(self.backfill) if self.backfill else b""
            return sealed(ORIGIN_KEY, _DATED_ORIGIN.pack(version, *fields) + ends + name)
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
        if value[:1] in {bytes([_BEGUN_VERSION]), bytes([_BACKFILLED_VERSION])}:
            body = opened(ORIGIN_KEY, value, max(0, len(value) - CRC.size), value[0])
            try:
                _, *offsets = _DATED_ORIGIN.unpack_from(body)
                (count,) = _COUNT.unpack_from(body, _DATED_ORIGIN.size)
                at = _DATED_ORIGIN.size + _COUNT.size
                ends, at = struct.unpack_from(f">{count}q", body, at), at + 8 * count
                backfill = ""
                if value[0] == _BACKFILLED_VERSION:
                    backfill, at = _name_at(body, at)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise CorruptStateError(f"the value under {ORIGIN_KEY!r} is cut") from error
            if at != len(body):
                raise CorruptStateError(f"the value under {ORIGIN_KEY!r} is cut, or too long")
            return replace(cls(*offsets), beginning=ends, backfill=backfill)
        if value[:1] == bytes([_DATED_VERSION]):
            body = opened(ORIGIN_KEY, value, _DATED_ORIGIN.size, _DATED_VERSION)
            _, *offsets = _DATED_ORIGIN.unpack(body)
        elif value[:1] == bytes([_KNOWING_VERSION]):
            body = opened(ORIGIN_KEY, value, _KNOWING_ORIGIN.size, _KNOWING_VERSION)
            _, *offsets = _KNOWING_ORIGIN.unpack(body)
        else:
            _, *offsets = _ORIGIN.unpack(opened(ORIGIN_KEY, value, _ORIGIN.size))
        return cls(*offsets)


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
