"""Topics that a state belongs to, by more than their names.

A topic's name is not the topic: it can be deleted and created again between two fetches, and neither offsets
nor CRCs tell. Brokers give each topic a random id that a new one by the same name does not have (KIP-516). A
position record (`schemas.changelog.position`) keeps, for each topic of its pipeline::

    topic  | id 16 B, zeros where it is not known | CRC-32C of the name u32, zero where there is none |

The name's checksum tells a topic that was created again (the same name, another id) from one that the config
has been changed to (another name), which is taken on.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

UNKNOWN_ID = bytes(16)
"""Of a broker without ids (before 2.8), of a topic that is not there, of a record of before there were ids."""
_TOPIC = struct.Struct(">16sI")
_TAGGED = struct.Struct(">16sII")


class TopicId(NamedTuple):
    """One topic.

    Attributes:
        topic_id: 16 bytes as the broker gives them; `UNKNOWN_ID` where it is not known.
        name_crc: CRC-32C of its name in UTF-8; 0 where there is no such topic.
    """

    topic_id: bytes = UNKNOWN_ID
    name_crc: int = 0

    @classmethod
    def of(cls, name: str | None, topic_id: bytes = UNKNOWN_ID) -> TopicId:
        """Return that of a topic by its name; None: the pipeline has none."""
        return cls() if name is None else cls(topic_id, google_crc32c.value(name.encode()))

    def tag(self, partition: int) -> int:
        """Return 32 bits that tell a partition of the topic from all others; 0 where there is no topic."""
        if not self.name_crc:
            return 0
        return int(google_crc32c.value(_TAGGED.pack(self.topic_id, self.name_crc, partition))) or 1

    def encode(self) -> bytes:
        """Return its `TOPIC_SIZE` bytes."""
        return _TOPIC.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> TopicId:
        """Read them; raises `struct.error` where they are not as many."""
        return cls(*_TOPIC.unpack(data))

    @property
    def known(self) -> bool:
        """Whether there is an id."""
        return self.topic_id != UNKNOWN_ID

    def made_anew(self, now: TopicId) -> bool:
        """Whether ``now`` is another topic by this one's name; False where one of the ids is not known."""
        return self.name_crc == now.name_crc and self.is_other(now)

    def is_same(self, now: TopicId) -> bool:
        """Whether there is a topic, and ``now`` is that one, as far as is known."""
        return bool(self.name_crc) and self.name_crc == now.name_crc and not self.is_other(now)

    def is_other(self, now: TopicId) -> bool:
        """Whether ``now`` is another topic, whatever its name; False where one of the ids is not known."""
        return self.known and now.known and self.topic_id != now.topic_id


NO_TOPIC_ID = TopicId()


class TopicIds(NamedTuple):
    """The topics of a pipeline, or of one hop of it, whose sink is the internal topic then."""

    source: TopicId = TopicId()
    changelog: TopicId = TopicId()
    sink: TopicId = TopicId()
    duplicates: TopicId = TopicId()
    quarantine: TopicId = TopicId()

    def encode(self) -> bytes:
        """Return their bytes, one after the other."""
        return b"".join(each.encode() for each in self)

    @classmethod
    def decode(cls, data: bytes) -> TopicIds:
        """Read them; ``data`` has `SIZE` bytes."""
        return cls(*(TopicId(*each) for each in _TOPIC.iter_unpack(data)))

    def kept(self, now: TopicIds) -> TopicIds:
        """Return ``now``, with the ids known here where a broker of now does not say them."""
        return TopicIds(
            *(
                then if not new.known and then.name_crc == new.name_crc else new
                for then, new in zip(self, now, strict=True)
            )
        )


NO_TOPIC_IDS = TopicIds()
TOPIC_SIZE = _TOPIC.size
SIZE = _TOPIC.size * len(NO_TOPIC_IDS)
