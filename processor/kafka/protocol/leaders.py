"""Keeps the highest leader epoch of each partition, over all connections of this process (KIP-320).

A broker that is cut off from its cluster, but not from us, goes on answering as the leader it was: with
metadata, ends and records as of the cut. Each new leader has a higher epoch. So metadata with a lower one than
was heard before, from any broker, is old; and a leader that is asked under a higher epoch than its own refuses.

Partitions go by topic id: a topic that is recreated begins its epochs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from processor.kafka.protocol.requests import TopicsSeen

NOT_KNOWN = -1


class LeaderEpochs:
    """The highest epochs heard, by topic id and partition."""

    def __init__(self) -> None:
        self._highest: dict[tuple[bytes, int], int] = {}

    def of(self, topic_id: bytes, partition: int) -> int:
        """Return the highest epoch heard, `NOT_KNOWN` for none."""
        return self._highest.get((topic_id, partition), NOT_KNOWN)

    def hear(self, seen: TopicsSeen) -> None:
        """Take in what a broker says."""
        for (topic, number), (_, epoch) in seen.leaders.items():
            topic_id = seen.ids.get(topic, UNKNOWN_ID)
            if topic_id != UNKNOWN_ID and epoch > self.of(topic_id, number):
                self._highest[topic_id, number] = epoch

    def older(self, seen: TopicsSeen) -> str:
        """Name a partition of which a broker says less than was heard before; empty: there is none."""
        for (topic, number), (leader, epoch) in seen.leaders.items():
            highest = self.of(seen.ids.get(topic, UNKNOWN_ID), number)
            if NOT_KNOWN < epoch < highest:
                return (
                    f"it says that broker {leader} leads {topic}:{number} in epoch {epoch}, and epoch "
                    f"{highest} has begun; is it cut off from its cluster?"
                )
        return ""


EPOCHS = LeaderEpochs()
"""Of all clusters: topic ids are unique."""
