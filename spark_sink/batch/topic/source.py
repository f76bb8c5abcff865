"""Says what a batch asks of the topic that it reads; who speaks to brokers is given by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray


class TopicBounds(NamedTuple):
    """A topic as it is now.

    Attributes:
        topic: Its name.
        topic_id: 32 hex digits, that no other topic has had; empty: its brokers give none.
        bounds: By partition, the first offset that is retained, and the last stable offset.
    """

    topic: str
    topic_id: str
    bounds: dict[int, tuple[int, int]]


class TopicBlock(NamedTuple):
    """Some committed records of a partition, in the order of their offsets.

    Attributes:
        offset: int64[n].
        timestamp: int64[n], ms; below 0: the record has none.
        keys: n of them; None: null.
        values: n of them; None: null.
    """

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    keys: list[bytes | None]
    values: list[bytes | None]


class BatchTopicReader(Protocol):
    """Reads one topic, read_committed."""

    def look(self) -> TopicBounds:
        """Return the topic as it is now.

        Raises:
            StopError: It is not there, or no broker answers.
        """

    def read(
        self, state: TopicBounds, spans: Mapping[int, tuple[int, int]], take: Callable[[int, TopicBlock], None]
    ) -> None:
        """Hand out all committed records of some spans, partition by partition.

        Args:
            state: What `look` returned: it has to be the same topic still.
            spans: By partition, from which offset to before which.
            take: Takes some records of a partition.

        Raises:
            StopError: Retention has removed some meanwhile, a batch cannot be decoded, or it is another topic.
        """
