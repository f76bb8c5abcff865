"""Marks of an index topic: how far the source had been taken in, and where the outputs ended, at a time.

A worker writes one with a commit (step 3), at most one per partition and second and one more every 65,536
records, into the partition of the index topic that has its source partition's number. Keys are `MARK_KEY`, the
envelope is that of `schemas.changelog.values`::

    mark  | version u8 = 1 | time i64, ms | since i64, ms | next offset i64 | sink end i64
          | duplicates end i64 | quarantine end i64 | source u32 | sink u32 | duplicates u32 | quarantine u32
          | crc u32 |

The fields up to ``quarantine end`` are those of the commit's position (`schemas.changelog.position`), with the
worker's time. The last four are the tags of the partitions that they speak of (`TopicId.tag`), 0 where there is
no such topic: a mark says nothing about a topic that was made again, or that the config names instead.

Invariant: of two marks with the same ``since`` and tags, the later one in the topic has no lower next offset,
and no lower end where both know it. A reset makes a new ``since``. So marks are in order by
``(since, next offset)``.

Marks are for looking things up. Nothing is judged by them, and nobody needs one that is gone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from schemas.changelog.position import NO_ENDS, OutputEnds
from schemas.changelog.values import opened, sealed

if TYPE_CHECKING:
    from schemas.changelog.position import Position
    from schemas.changelog.topic_ids import TopicIds

MARK_KEY = b"M"

_MARK = struct.Struct(">BqqqqqqIIII")
_VERSION = 1


class MarkTags(NamedTuple):
    """Which partitions a mark speaks of, as `TopicId.tag` says it."""

    source: int = 0
    sink: int = 0
    duplicates: int = 0
    quarantine: int = 0

    @classmethod
    def of(cls, topics: TopicIds, number: int, quarantined_to: int) -> MarkTags:
        """Return those of source partition ``number``, whose unjudged records go to ``quarantined_to``."""
        same = topics.source.tag(number), topics.sink.tag(number), topics.duplicates.tag(number)
        return cls(*same, topics.quarantine.tag(quarantined_to))


NO_MARK_TAGS = MarkTags()


@dataclass(frozen=True, slots=True)
class IndexMark:
    """One mark.

    Attributes:
        time_ms: When it was written, in ms since 1970, by the worker's clock.
        since_ms: When the state was made that it is of.
        next_offset: The first source offset not yet taken in then.
        ends: Where the outputs ended then.
        tags: Which partitions these are.
    """

    time_ms: int
    since_ms: int
    next_offset: int
    ends: OutputEnds = NO_ENDS
    tags: MarkTags = NO_MARK_TAGS

    @property
    def order(self) -> tuple[int, int]:
        """What marks of one partition rise by."""
        return self.since_ms, self.next_offset

    @classmethod
    def of(cls, position: Position, number: int, quarantined_to: int, time_ms: int) -> IndexMark:
        """Return that of a commit's position."""
        tags = MarkTags.of(position.topics, number, quarantined_to)
        return cls(time_ms, position.since_ms, position.next_offset, position.ends, tags)

    def encode(self) -> bytes:
        """Return the value under `MARK_KEY`."""
        fields = self.time_ms, self.since_ms, self.next_offset, *self.ends, *self.tags
        return sealed(MARK_KEY, _MARK.pack(_VERSION, *fields))

    @classmethod
    def decode(cls, value: bytes) -> IndexMark:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        _, time_ms, since_ms, next_offset, *fields = _MARK.unpack(opened(MARK_KEY, value, _MARK.size))
        return cls(time_ms, since_ms, next_offset, OutputEnds(*fields[:3]), MarkTags(*fields[3:]))
