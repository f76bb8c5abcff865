"""Says what is to be read of a topic, and where reading begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Begin(NamedTuple):
    """Where to begin; without any of them at the earliest record."""

    latest: bool = False
    partition: int | None = None
    offset: int | None = None
    """In ``partition``, which is the only one then."""
    time_ms: int | None = None


@dataclass(frozen=True)
class ReadOrder:
    """What is to be read.

    Attributes:
        topic: Its name.
        begin: Where to begin.
        partition: The only partition; None: all.
        key: The only key; None: all.
        limit: How many records at most; None: all.
        follow: Whether to wait for more at the end.
    """

    topic: str
    begin: Begin
    partition: int | None = None
    key: bytes | None = None
    limit: int | None = None
    follow: bool = False

    @property
    def only(self) -> int | None:
        """The only partition, also where only ``begin`` names it; None: all."""
        return self.partition if self.begin.partition is None else self.begin.partition
