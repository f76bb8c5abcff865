"""Whether a source is still the one that a state was made from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from processor.errors import StopError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import Bounds
from processor.kafka.source_identity import check_same_source
from schemas.changelog.position import NO_BATCH, Position
from tests.support.kafka.log import LogClient

SOURCE = TopicPartition("source", 0)


def checked(position: int, end: int, known_end: int) -> None:
    """Compare a state with a source that ends somewhere, and ended elsewhere when it was first looked at."""
    client: Any = LogClient([], end=end)
    limits = Bounds(0, known_end, known_end)
    state = Position(position, NO_BATCH, 0, bytes(16), bytes(16), 1)
    asyncio.run(check_same_source(client, SOURCE, state, limits, compacted=False))


def test_a_state_that_another_owner_has_brought_further_since_the_look_at_the_source_fits_it() -> None:
    checked(position=4, end=7, known_end=0)


def test_a_source_that_ends_before_its_state_is_another() -> None:
    with pytest.raises(StopError, match="source:0 ends at 3, but 4 has been read already"):
        checked(position=4, end=3, known_end=0)
