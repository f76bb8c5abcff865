"""Holds what is known of a source record before anything of it is looked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.facts import OutputEra, SourceFacts
    from processor.kafka.client import TopicPartition
    from schemas.config import Pipeline


@dataclass(frozen=True)
class SourceCase:
    """One source record of which something is to be found out.

    Attributes:
        pipeline: Whose source it is in.
        source: The partition.
        offset: Its own.
        facts: Of the partition.
        places: The partitions of sink and duplicates that it can have something in.
        record: As columns of one row; None: it is not there any more.
        eras: By topic, from where on the outputs of the run of now are those that there are now.
    """

    pipeline: Pipeline
    source: TopicPartition
    offset: int
    facts: SourceFacts
    places: tuple[int, ...]
    record: Columns | None
    eras: Mapping[str, OutputEra] = field(default_factory=dict)

    @property
    def low(self) -> int:
        """The first source offset of the run of now."""
        return 0 if self.facts.origin is None else self.facts.origin.source_offset

    @property
    def high(self) -> int:
        """The source offset behind the last that was taken in."""
        return self.facts.position or 0

    @property
    def is_judged(self) -> bool:
        """Whether the run of now has come to it."""
        return self.low <= self.offset < self.high

    def begin(self, topic: str | None) -> int | None:
        """Return where the run of now begins in an output; None: not known."""
        if topic in self.eras:
            return 0  # Where it began is said of another topic.
        origin = self.facts.origin
        if origin is None:
            return None
        outputs = {
            self.pipeline.quarantine: origin.quarantine_offset,
            self.pipeline.duplicates: origin.duplicates_offset,
            self.pipeline.sink: origin.sink_offset,
        }
        return max(0, outputs[topic])

    def elsewhere(self, topic: str | None) -> str:
        """Return why what became of it may be in another topic than an output of now; empty: it is not."""
        era = self.eras.get(topic or "")
        return era.why if era is not None and self.offset < era.surely_from else ""
