"""Collects from records what an audit needs, and tries rules on the first ones of each stretch. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.engine.extract.routing import ROUTE_KEY
from processor.inspection.audit.rows import RecordRows, RowKeeper
from processor.inspection.audit.trial import contents, trial
from processor.inspection.proposal.choose import proposals
from processor.inspection.proposal.shapes import columns_of, common_parts, reading
from processor.judges.ids import make_id_extractor
from schemas.config.dedup import InsertIdDedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from processor.engine.batch.columns import Columns
    from processor.inspection.audit.trial import RuleOutcome
    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.record_parts import ObservedRecord

EXAMPLES = 24
"""Pairs that are compared of each id that was taken for different records."""


_FEW_LOST = 0.2
"""Share of the records that come under an id of another."""


class Collected:
    """What was collected.

    Attributes:
        observed: The sample by which rules are proposed.
        changing: The parts in which copies differ from their originals.
        keeper: What is kept of all records.
        size: Bytes of their keys and values.

    Args:
        also: Rules to try beside those that the sample suggests.
    """

    def __init__(self, observed: Sequence[ObservedRecord], also: Iterable[Proposal] = ()) -> None:
        self.observed = observed
        self.changing = frozenset().union(*(each.changing for each in observed))
        self.keeper = RowKeeper()
        self.size = 0
        self._identity = Identity(observed)
        self._trials = [each for each in map(trial, [*also, *proposals(observed)]) if each is not None]
        self._tried: list[RecordRows] = []
        self._outcomes: list[RuleOutcome] | None = None
        self.begin(0, 0)

    def begin(self, partition: int, most: int) -> None:
        """Begin a stretch of a partition, of which ``most`` records are for the rules."""
        self._partition, self._left, self._clock_ms, self._begins = partition, most, -1, True

    def take(self, columns: Columns) -> None:
        """Take the next records of the stretch."""
        if not len(columns):
            return
        rows = self._identity.rows(self._partition, columns, self._clock_ms)
        self._clock_ms = int(rows.reading_ms[-1])
        self.keeper.add(rows)
        self.size += int(rows.size.sum())
        some = min(self._left, len(columns))
        if some:
            for each in self._trials:
                each.take(columns.rows(0, some), begins=self._begins)
            self._tried.append(rows.at(np.arange(some)))
            self._left -= some
            self._begins = False

    @cached_property
    def tried(self) -> RecordRows:
        """The records that the rules were tried on, once all is taken."""
        none = RecordRows(*(np.zeros(0, np.int64) for _ in RecordRows._fields))
        rows = RecordRows(*(np.concatenate(each) for each in zip(none, *self._tried, strict=True)))
        self._tried.clear()
        return rows

    def outcomes(self) -> list[RuleOutcome]:
        """Return what the rules did, once all is taken."""
        if self._outcomes is None:
            rows, content = self.tried, contents(self.tried)
            self._outcomes = [outcome for each in self._trials for outcome in each.outcomes(rows, content)]
        return self._outcomes

    def examples(self) -> Iterator[tuple[RuleOutcome, tuple[int, int], tuple[int, int]]]:
        """Yield partition and offset of two records that an id was taken for though they differ; of few alone.

        Where an id is shared by many it names something else, and what they differ in says nothing.
        """
        rows = self.tried
        for outcome in self.outcomes():
            if outcome.lost > _FEW_LOST * outcome.records:
                continue
            pairs = outcome.examples[:: max(1, len(outcome.examples) // EXAMPLES)][:EXAMPLES]
            for pair in pairs.tolist():
                one, other = ((int(rows.partition[row]), int(rows.offset[row])) for row in pair[::-1])
                yield outcome, one, other


class Identity:
    """What makes two records one and the same: what they say, and beside that key and headers if it is little.

    Args:
        observed: Some records.
    """

    def __init__(self, observed: Sequence[ObservedRecord]) -> None:
        changing = {part for record in observed for part in record.changing}
        exclude = sorted(part.name for part in changing if part.source == "value")
        named = common_parts(observed)
        # An id that is written in several ways counts as it is meant.
        spelled = observed[0].spelled
        exclude += sorted(part.name for part in spelled if part not in changing)
        named = [*named, *spelled]
        beside = [part.as_config(spelled) for part in named if part not in changing]
        kept = [part.as_config() for part in columns_of(observed) if part not in changing]
        content: dict[str, Any] = {"from": "content", **({"exclude": exclude} if exclude else {})}
        # Of what is no JSON, and of all that a record says, the bytes.
        ids = [*(kept or [content]), *beside], [{"from": "content", "of": "bytes"}, *beside]
        self._near, self._exact = (
            make_id_extractor(
                InsertIdDedup.model_validate(
                    {"mode": "insert-id", "id": each, "window": "1d", **reading(observed)}
                ),
                ROUTE_KEY,
            )
            for each in ids
        )

    def rows(self, partition: int, columns: Columns, clock_ms: int) -> RecordRows:
        """Return what is kept of some records of a partition, whose clock stood there before."""
        near, exact = self._near.extract(columns), self._exact.extract(columns)
        all_of_it = np.where(exact.fault == 0, exact.hash[:, 0], 0)
        reading = np.maximum.accumulate(np.maximum(columns.timestamp, clock_ms))
        # What has no value, or an empty one, says nothing that another could say again.
        valued = columns.value_length > 0
        return RecordRows(
            np.where(valued, np.where(near.fault == 0, near.hash[:, 0], all_of_it), 0).view(np.int64),
            all_of_it.view(np.int64),
            np.full(len(columns), partition, np.int64),
            columns.offset.copy(),
            reading,
            np.maximum(columns.key_length, 0) + np.maximum(columns.value_length, 0),
        )
