"""Collects what the comparison of one partition has found.

Rule names are stable: docs/certificate.md has them, and programs read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MOST_VIOLATIONS = 10
"""The first so many of a partition are reported. The others are counted."""
GIVE_UP_AFTER = 1_000
"""After so many the topics have nothing to do with each other: records are counted, no longer compared."""


class Rule(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DUPLICATE_PASSED = "duplicate_passed"
    REORDERED = "reordered"
    CHANGED = "changed"
    EXTRA = "extra"
    RECEIPT_MISSING = "receipt_missing"
    RECEIPT_FORGED = "receipt_forged"
    RECEIPT_WRONG = "receipt_wrong"
    QUARANTINE_MISSING = "quarantine_missing"
    QUARANTINE_FORGED = "quarantine_forged"
    QUARANTINE_WRONG = "quarantine_wrong"
    NOT_QUARANTINED = "not_quarantined"
    VERDICT_MISSING = "verdict_missing"
    VERDICT_WRONG = "verdict_wrong"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it must be.

    Attributes:
        offset: In the source where there is one, else in the topic that ``detail`` names.
        rule: Which rule it breaks.
        detail: For people: topics, offsets, what differs.
    """

    offset: int
    rule: Rule
    detail: str


@dataclass(slots=True)
class VerifyReport:
    """What was compared of one partition, and what was wrong.

    Attributes:
        start: The first source offset compared.
        stop: The source offset after the last.
        source: Records in between.
        sink: Records of the sink that were compared; without one those that the verdicts let pass.
        duplicates: Receipts, and notes of collisions that were dropped; without a duplicates topic the records
            that the certificate's judge drops.
        quarantine: Records of the quarantine; without one those that cannot be judged.
        collisions: Notes of collisions; without a duplicates topic those that the judge finds. Each is in the
            sink, in quarantine or among the duplicates too.
        redriven: Records that stood in quarantine and were judged again since. They are in the sink or among
            the duplicates, and not counted in quarantine; those of before ``start`` are counted nowhere else.
        observed: Receipts, notes and copies in quarantine of records that are in the sink all the same, because
            the pipeline observed; they count nowhere else but, notes, among the collisions.
        observed_by_config: Nothing but the config says that the pipeline observed: there are no receipts.
        pending: Offsets of the source that no worker has committed yet.
        unproved: Dropped records of which nobody can say whether they had to be: without a receipt, because the
            duplicates topic was added later; or by a receipt that was trusted, see ``judged_from``.
        backfilled: Of the duplicates: records that were dropped because a backfill has brought their id, or the
            sequence watermark that they were compared with. By an id the receipt was trusted, not proved.
        backfill: The name of the backfill that the state began with; empty where there was none.
        dropped_looked_at: Of the dropped records in mode watermark, how many were compared by content with what
            passed: a sample.
        dropped_unseen: Those of them with a content that never passed: the rules of judging have lost them.
        unseen_at: Offsets of the first of those in the source.
        judged_from: From this source offset on all verdicts are proved; it lies behind ``start`` where what the
            clock read before is no longer known.
        before_verdicts: Records that pass before the first range of the verdicts, where no sink is compared:
            the pipeline wrote them to one, or nobody has. They count nowhere else.
        unjudged: Offsets of the source in front of ``start`` that are retained, and that nobody has judged.
        reset_ms: When the reset was that everything begins at, in ms, 0: not known; None: it begins at none.
        secret_unknown: Something was compared without what depends on the partition's secret: nothing says it.
        other_rules: The worker's state was written under another definition: it judged by other rules.
        state_id: Of the worker's state, which a reset replaces; empty where there is none of this source.
        total: Violations.
        violations: The first of them.
    """

    pipeline: str
    partition: int
    start: int = 0
    stop: int = 0
    source: int = 0
    sink: int = 0
    duplicates: int = 0
    quarantine: int = 0
    collisions: int = 0
    redriven: int = 0
    observed: int = 0
    observed_by_config: bool = False
    pending: int = 0
    unproved: int = 0
    backfilled: int = 0
    backfill: str = ""
    dropped_looked_at: int = 0
    dropped_unseen: int = 0
    unseen_at: list[int] = field(default_factory=list)
    judged_from: int = 0
    before_verdicts: int = 0
    unjudged: int = 0
    reset_ms: int | None = None
    secret_unknown: bool = False
    other_rules: bool = False
    state_id: bytes = b""
    total: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.total

    @property
    def given_up(self) -> bool:
        """Whether so much was wrong that the rest is only counted."""
        return self.total >= GIVE_UP_AFTER

    def add(self, rule: Rule, offset: int, detail: str) -> None:
        """Note a violation."""
        self.total += 1
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(offset, rule, detail))
