"""Tries rules on the records that were read, and counts what each would drop, lose and miss. Pure.

*Lost* is what a rule drops though what it says never passed; *missed* what it lets pass though it came before.
An id is tried as if its window never ended: what it loses then is the most that any window would. Sequences are
judged by the judges themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import override

from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.verdict import Fault, Verdict
from processor.inspection.audit.rows import RecordRows, RowKeeper, begins
from processor.inspection.proposal.choose import proposals
from processor.inspection.proposal.rising import wraps_behind
from processor.inspection.proposal.shapes import columns_of, common_parts, reading
from processor.judges.ids import make_id_extractor
from processor.judges.watermark import WatermarkMode
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from schemas.config.dedup import InsertIdDedup, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.ids import Ids
    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.record_parts import ObservedRecord
    from processor.judges.judge import Judge

DEDUP: TypeAdapter[InsertIdDedup | WatermarkDedup] = TypeAdapter(InsertIdDedup | WatermarkDedup)
EXAMPLES = 24
"""Pairs that are compared of each id that was taken for different records."""
_FEW_LOST = 0.2
"""Share of the records that come under an id of another."""
_AS_GOOD = 0.25
"""Of what the content would catch: a rule that catches that is better. Contents are equal by chance, too."""


class Faults:
    """Counts records that cannot be judged."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(Fault), np.int64)
        self.records = 0

    def take(self, fault: NDArray[np.uint8]) -> None:
        """Count those of some records."""
        self.records += fault.size
        if fault.any():
            self._counts += np.bincount(fault, minlength=len(Fault))

    @property
    def faulty(self) -> int:
        """How many there are."""
        return int(self._counts[1:].sum())

    def by_code(self) -> dict[str, int]:
        """Return how many there are of each."""
        return {Fault(n).code: int(self._counts[n]) for n in np.flatnonzero(self._counts).tolist() if n}


def new_judge(mode: WatermarkMode) -> Judge:
    """Return a judge of sequences that remembers nothing yet."""
    judge = mode.judge()
    judge.load(Table(MemoryStore(), judge.log))
    return judge


@dataclass(frozen=True)
class RuleOutcome:
    """What a rule would do with the records that it was tried on.

    Attributes:
        proposal: The rule, and what speaks for it.
        records: How many it was tried on.
        copies: How many of them came before.
        caught: Copies that it drops.
        lost: Records that it drops though what they say never passed.
        missed: Copies that pass.
        crossing: Copies that pass for coming in another partition than the first.
        faults: By code, those that it cannot judge.
        examples: Rows of lost records and of what they were taken for, int64[k, 2]; of ids only.
        wraps: Where its numbers seem to begin again; 0: they do not.
    """

    proposal: Proposal
    records: int
    copies: int
    caught: int
    lost: int
    missed: int
    crossing: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    examples: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    wraps: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether it loses nothing."""
        return not self.lost


class Trial(ABC):
    """A rule that takes records.

    Args:
        proposal: It.
    """

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self._faults = Faults()

    @abstractmethod
    def take(self, columns: Columns, *, begins: bool) -> None:
        """Take the next records of a partition; ``begins``: not those behind the ones before."""

    @abstractmethod
    def outcomes(self, rows: RecordRows, content: NDArray[np.int64]) -> Iterator[RuleOutcome]:
        """Yield what it did with the records that it took; ``content`` numbers what these say."""

    def _outcome(
        self,
        judged: NDArray[np.bool_],
        dropped: NDArray[np.bool_],
        content: NDArray[np.int64],
        faults: Faults | None = None,
    ) -> RuleOutcome:
        """Count, where ``content`` numbers what the records say."""
        numbers = int(content.max(initial=-1)) + 1
        there = np.bincount(content[judged], minlength=numbers)
        passed = np.bincount(content[judged & ~dropped], minlength=numbers)
        lost = int((dropped & (passed[content] == 0)).sum())
        copies = int(judged.sum()) - int(np.count_nonzero(there))
        caught = int(dropped.sum()) - lost
        missed, faults = max(0, copies - caught - lost), faults or self._faults
        return RuleOutcome(self.proposal, judged.size, copies, caught, lost, missed, faults=faults.by_code())


class IdTrial(Trial):
    """A rule of mode insert-id; and the same with a fingerprint, where its ids come with other content."""

    def __init__(self, proposal: Proposal, dedup: InsertIdDedup) -> None:
        super().__init__(proposal)
        self._extractor = self._with_prints = make_id_extractor(dedup, ROUTE_KEY)
        self._told_apart, self._print_faults = proposal.told_apart(), Faults()
        if self._told_apart is not None:
            told_apart = InsertIdDedup.model_validate(self._told_apart.dedup)
            self._with_prints = make_id_extractor(told_apart, ROUTE_KEY)
        self._ids = [np.zeros(0, np.int64)]
        self._variants = [np.zeros(0, np.int64)]

    @override
    def take(self, columns: Columns, *, begins: bool) -> None:
        del begins
        ids = variants = self._with_prints.extract(columns)
        if self._told_apart is not None and variants.fault.any():
            ids = self._extractor.extract(columns)  # which of them have an id, and no fingerprint
        self._faults.take(ids.fault)
        self._ids.append(_names(ids))
        if self._told_apart is not None:
            self._print_faults.take(variants.fault)
            names, prints = _names(variants), variants.fingerprint.view(np.int64)
            self._variants.append(np.where(names == 0, 0, names ^ (prints * np.int64(31) + 17)))

    @override
    def outcomes(self, rows: RecordRows, content: NDArray[np.int64]) -> Iterator[RuleOutcome]:
        ids, alone = np.concatenate(self._ids), np.arange(content.size)
        self._ids.clear()
        judged, anywhere = ids != 0, np.zeros_like(rows.partition)
        first = _first(ids, rows.reading_ms, anywhere)
        found = self._outcome(judged, judged & (first != alone), content)
        here = _first(ids, rows.reading_ms, rows.partition)
        apart = self._outcome(judged, judged & (here != alone), content)
        crossing = max(0, apart.missed - found.missed)
        lost = np.flatnonzero(judged & (first != alone) & (rows.near != rows.near[first]))
        yield replace(found, crossing=crossing, examples=np.stack((lost, first[lost]), axis=1))
        if found.lost and self._told_apart is not None:
            ids = np.concatenate(self._variants)  # an id is the same only with the same content
            again = (ids != 0) & (_first(ids, rows.reading_ms, anywhere) != alone)
            told = self._outcome(ids != 0, again, content, self._print_faults)
            yield replace(told, proposal=self._told_apart, crossing=crossing)


class SequenceTrial(Trial):
    """A rule of mode watermark; each stretch begins anew."""

    def __init__(self, proposal: Proposal, dedup: WatermarkDedup) -> None:
        super().__init__(proposal)
        self._mode = WatermarkMode(dedup, "tried")
        self._wraps = dedup.wraps
        self._highest = 0
        self._judged, self._dropped = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)]

    @override
    def take(self, columns: Columns, *, begins: bool) -> None:
        if begins:
            self._judge = new_judge(self._mode)
        evidence: Any = self._judge.extract(columns)
        judged = evidence.fault == 0
        self._faults.take(evidence.fault)
        verdict = self._judge.judge(evidence).verdict
        self._judge.absorb()
        self._judged.append(judged)
        self._dropped.append((verdict == Verdict.DUPLICATE) | (verdict == Verdict.LATE))
        self._highest = max(self._highest, int(evidence.sequence[judged].max(initial=0)))

    @override
    def outcomes(self, rows: RecordRows, content: NDArray[np.int64]) -> Iterator[RuleOutcome]:
        found = self._outcome(np.concatenate(self._judged), np.concatenate(self._dropped), content)
        yield replace(found, wraps=0 if self._wraps else wraps_behind([0, self._highest]))


def trial(proposal: Proposal) -> Trial | None:
    """Return what tries a rule; None: no config can have it."""
    try:
        dedup = DEDUP.validate_python(proposal.dedup)
        return SequenceTrial(proposal, dedup) if dedup.mode == "watermark" else IdTrial(proposal, dedup)
    except ValueError:
        return None  # of a name that no config takes, or with more parts than one has


def best(outcomes: Sequence[RuleOutcome]) -> RuleOutcome | None:
    """Return the first that loses nothing, judges nearly all, and catches as much as any such; None: none."""
    safe = [each for each in outcomes if each.is_safe and sum(each.faults.values()) <= each.records / 20]
    by_content = max((each.caught for each in safe if each.proposal.by_content), default=0)
    better = [each for each in safe if not each.proposal.by_content and each.caught >= _AS_GOOD * by_content]
    some = better or safe
    most = max((each.caught for each in some), default=0)
    return next((each for each in some if each.caught >= 0.99 * most), None)


def _names(ids: Ids) -> NDArray[np.int64]:
    """Return int64[n], what names each record; 0: it cannot be judged."""
    return np.where((ids.fault == 0) & ~ids.unjudged, ids.hash[:, 0], 0).view(np.int64)


def _first(
    ids: NDArray[np.int64], reading_ms: NDArray[np.int64], partition: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return int64[n]: for each record the first one of its id and partition."""
    order = np.lexsort((reading_ms, partition, ids))  # a stable sort: as they were taken
    new = begins(ids[order]) | begins(partition[order])
    first = np.empty(ids.size, np.int64)
    first[order] = order[np.flatnonzero(new)[np.cumsum(new) - 1]]
    return first


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
        rows = RecordRows(*map(np.concatenate, zip(none, *self._tried, strict=True)))
        self._tried.clear()
        return rows

    @cached_property
    def outcomes(self) -> list[RuleOutcome]:
        """What the rules did, once all is taken."""
        rows = self.tried
        # One without a value says what no other does.
        near = np.where(rows.near == 0, ~np.arange(rows.near.size), rows.near)
        content = np.unique(near, return_inverse=True)[1].reshape(-1)
        return [outcome for each in self._trials for outcome in each.outcomes(rows, content)]

    def examples(self) -> Iterator[tuple[RuleOutcome, tuple[int, int], tuple[int, int]]]:
        """Yield partition and offset of two records that an id was taken for though they differ; of few alone.

        Where an id is shared by many it names something else, and what they differ in says nothing.
        """
        rows = self.tried
        for outcome in self.outcomes:
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
