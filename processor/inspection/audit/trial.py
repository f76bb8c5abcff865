"""Tries rules on the records that were read: what each would drop, lose and miss.

*Lost* is what a rule drops though what it says never passed; *missed* what it lets pass though it came before.
An id is tried as if its window never ended: what it loses then is the most that any window would.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import override

from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.verdict import Verdict
from processor.inspection.proposal.rising import wraps_behind
from processor.inspection.simulate.judging import Faults
from processor.judges.ids import make_id_extractor
from processor.judges.watermark import WatermarkMode
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from schemas.config.dedup import InsertIdDedup, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.audit.rows import RecordRows
    from processor.inspection.proposal.choose import Proposal

_DEDUP: TypeAdapter[InsertIdDedup | WatermarkDedup] = TypeAdapter(InsertIdDedup | WatermarkDedup)
_AS_GOOD = 0.25
"""Of what the content would catch: a rule that catches that is better. Contents are equal by chance, too."""


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
        examples: RecordRows of lost records and of what they were taken for, int64[k, 2]; of ids only.
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

    def take(self, columns: Columns, *, begins: bool) -> None:
        """Take the next records of a partition; ``begins``: not those behind the ones before."""
        self._faults.take(self._take(columns, begins=begins))

    @abstractmethod
    def _take(self, columns: Columns, *, begins: bool) -> NDArray[np.uint8]:
        """Take them and return their faults."""

    @abstractmethod
    def outcomes(self, rows: RecordRows, content: NDArray[np.int64]) -> list[RuleOutcome]:
        """Return what it did with the records that it took; ``content`` numbers what these say."""

    def _outcome(
        self, judged: NDArray[np.bool_], dropped: NDArray[np.bool_], content: NDArray[np.int64], **more: Any
    ) -> RuleOutcome:
        """Count, where ``content`` numbers what the records say."""
        numbers = int(content.max()) + 1 if content.size else 0
        there = np.bincount(content[judged], minlength=numbers)
        passed = np.bincount(content[judged & ~dropped], minlength=numbers)
        lost = dropped & (passed[content] == 0)
        copies = int(judged.sum()) - int(np.count_nonzero(there))
        caught = int(dropped.sum()) - int(lost.sum())
        return RuleOutcome(
            more.pop("proposal", self.proposal), judged.size, copies, caught, int(lost.sum()),
            max(0, copies - caught - int(lost.sum())), faults=self._faults.by_code(), **more,
        )  # fmt: skip


class IdTrial(Trial):
    """A rule of mode insert-id."""

    def __init__(self, proposal: Proposal, dedup: InsertIdDedup) -> None:
        super().__init__(proposal)
        self._extractor = make_id_extractor(dedup, ROUTE_KEY)
        self._hashes: list[NDArray[np.uint64]] = []
        self._told_apart = proposal.told_apart()
        self._prints: list[NDArray[np.uint64]] = []
        if self._told_apart is not None:
            told_apart = InsertIdDedup.model_validate(self._told_apart.dedup)
            self._with_prints = make_id_extractor(told_apart, ROUTE_KEY)

    @override
    def _take(self, columns: Columns, *, begins: bool) -> NDArray[np.uint8]:
        del begins
        ids = self._extractor.extract(columns)
        self._hashes.append(np.where((ids.fault == 0) & ~ids.unjudged, ids.hash[:, 0], 0))
        if self._told_apart is not None:
            self._prints.append(self._with_prints.extract(columns).fingerprint)
        return ids.fault

    @override
    def outcomes(self, rows: RecordRows, content: NDArray[np.int64]) -> list[RuleOutcome]:
        ids = np.concatenate([*self._hashes, np.zeros(0, np.uint64)]).view(np.int64)
        self._hashes.clear()
        judged = ids != 0
        here, alone = _first(ids, rows.reading_ms, rows.partition), np.arange(ids.size)
        everywhere = _first(ids, rows.reading_ms, np.zeros_like(rows.partition))
        found = self._outcome(judged, judged & (everywhere != alone), content)
        apart = self._outcome(judged, judged & (here != alone), content)
        crossing = max(0, apart.missed - found.missed)
        lost = np.flatnonzero(judged & (everywhere != alone) & (rows.near != rows.near[everywhere]))
        examples = np.stack((lost, everywhere[lost]), axis=1)
        outcomes = [replace(found, crossing=crossing, examples=examples)]
        told_apart = self._told_apart
        if found.lost and told_apart is not None:
            prints = np.concatenate(self._prints).view(np.int64)
            both = ids ^ (prints * np.int64(31) + 17)  # an id is the same only with the same content
            again = judged & (_first(both, rows.reading_ms, np.zeros_like(rows.partition)) != alone)
            apart = self._outcome(judged, again, content, proposal=told_apart)
            outcomes.append(replace(apart, crossing=crossing))
        return outcomes


class SequenceTrial(Trial):
    """A rule of mode watermark, judged by the judges themselves; each stretch begins anew."""

    def __init__(self, proposal: Proposal, dedup: WatermarkDedup) -> None:
        super().__init__(proposal)
        self._mode = WatermarkMode(dedup, "tried")
        self._wraps = getattr(dedup, "wraps", None) is not None
        self._highest = 0
        self._dropped: list[NDArray[np.bool_]] = []
        self._judged: list[NDArray[np.bool_]] = []

    @override
    def _take(self, columns: Columns, *, begins: bool) -> NDArray[np.uint8]:
        if begins:
            self._judge = self._mode.judge()
            self._judge.load(Table(MemoryStore(), self._judge.log))
        evidence: Any = self._judge.extract(columns)
        fault = evidence.fault.copy()
        verdict = self._judge.judge(evidence).verdict
        self._judge.absorb()
        self._dropped.append((verdict == Verdict.DUPLICATE) | (verdict == Verdict.LATE))
        self._judged.append(fault == 0)
        if (fault == 0).any():
            self._highest = max(self._highest, int(evidence.sequence[fault == 0].max()))
        return np.asarray(fault, np.uint8)

    @override
    def outcomes(self, rows: RecordRows, content: NDArray[np.int64]) -> list[RuleOutcome]:
        del rows
        none = [np.zeros(0, np.bool_)]
        dropped, judged = np.concatenate(self._dropped + none), np.concatenate(self._judged + none)
        wraps = 0 if self._wraps else wraps_behind([0, self._highest])
        return [self._outcome(judged, dropped, content, wraps=wraps)]


def trial(proposal: Proposal) -> Trial | None:
    """Return what tries a rule; None: no config can have it."""
    try:
        dedup = _DEDUP.validate_python(proposal.dedup)
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


def contents(rows: RecordRows) -> NDArray[np.int64]:
    """Number what records say; one without a value says what no other does."""
    near = np.where(rows.near == 0, ~np.arange(rows.near.size), rows.near)
    numbers: NDArray[np.int64] = np.unique(near, return_inverse=True)[1].reshape(-1)
    return numbers


def _first(
    ids: NDArray[np.int64], reading_ms: NDArray[np.int64], partition: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return int64[n]: for each record the first one of its id and partition."""
    order = np.lexsort((reading_ms, partition, ids))  # a stable sort: as they were taken
    new = np.ones(ids.size, np.bool_)
    new[1:] = (np.diff(ids[order]) != 0) | (np.diff(partition[order]) != 0)
    first = np.empty(ids.size, np.int64)
    first[order] = order[np.flatnonzero(new)[np.cumsum(new) - 1]] if ids.size else 0
    return first
