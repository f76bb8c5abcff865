"""What a pipeline with ``route = "by-id"`` has of its own: the first hop's topics, and its judge.

Invariant: a record is in the internal topic exactly once, in the transaction that takes it out of the source,
and equal ids stand there in the order in which a source partition has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine import repartition
from processor.engine.ids.judgement import IdJudgement
from processor.judges.evidence import IdEvidence, InsertIdJudgement
from processor.judges.ids import make_id_extractor
from processor.judges.judge import Judge
from processor.kafka.topics.plan import limit_bytes, positions_topic
from processor.pipeline.ports import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from processor.engine.batch.columns import Columns
    from processor.kafka.topics.plan import ClusterView
    from processor.pipeline.hops import FirstHop
    from schemas.config import InsertIdDedup, Settings

_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RouteTopics(Topics):
    """Those of a first hop; ``sink`` and its limit are of the pipeline's sink, which it does not write to."""

    internal: str = ""
    internal_limit_bytes: int = 0
    internal_partitions: int = 1
    quarantine_partitions: int = 1

    @property
    @override
    def passes_to(self) -> str:
        return self.internal

    @property
    @override
    def written(self) -> list[str]:
        return [self.internal, *filter(None, (self.quarantine,)), self.changelog]

    @override
    def quarantined_to(self, number: int) -> int:
        return number % self.quarantine_partitions

    @override
    def written_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        # Each source partition writes to all of the internal topic.
        some = list(numbers)
        found = [(self.internal, number) for number in range(self.internal_partitions)]
        if self.quarantine is not None:
            found += [(self.quarantine, n) for n in sorted({self.quarantined_to(n) for n in some})]
        return found + [(self.changelog, number) for number in some]


def first_topics(settings: Settings, hop: FirstHop, view: ClusterView) -> RouteTopics:
    """Return a first hop's topics with what they take."""
    positions, sink = positions_topic(settings, hop.pipeline.name), hop.pipeline.sink
    return RouteTopics(
        source=hop.source,
        sink=sink,
        quarantine=hop.quarantine,
        changelog=positions,
        sink_limit_bytes=limit_bytes(view, sink),
        quarantine_limit_bytes=limit_bytes(view, hop.quarantine) if hop.quarantine else 0,
        changelog_limit_bytes=limit_bytes(view, positions),
        width=view[positions].partitions,
        internal=hop.internal,
        internal_limit_bytes=limit_bytes(view, hop.internal),
        internal_partitions=view[hop.internal].partitions,
        quarantine_partitions=view[hop.quarantine].partitions if hop.quarantine else 1,
    )


class RouteJudge(Judge[IdEvidence]):
    """Judges nothing: reads ids, by the hash that says where they go."""

    def __init__(self, dedup: InsertIdDedup) -> None:
        self._extractor = make_id_extractor(dedup, repartition.ROUTE_KEY)

    @override
    def extract(self, columns: Columns) -> IdEvidence:
        ids = self._extractor.extract(columns)
        return IdEvidence(ids.fault, columns.data, ids, columns.offset, columns.timestamp)

    @override
    def judge(self, evidence: IdEvidence) -> InsertIdJudgement:
        # What can be judged passes.
        judged = IdJudgement.begun(evidence.ids)
        return InsertIdJudgement(judged.verdict, evidence.ids, judged.owner, judged.expires_ms)
