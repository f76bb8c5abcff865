"""In what a story of `seqmark explain` differs from what is true of its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from tests.support.explain.truth import JUDGED
from tests.support.judges.id_rules import IdSaid
from tests.support.judges.rules import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from processor.inspection.explain.story import Story
    from tests.support.explain.truth import Place, Truth


def differs(what: str, told: object, true: object) -> Iterator[str]:
    """Yield a line if what was told is not so."""
    if told != true:
        yield f"{what} is said to be {told}, and is {true}"


def ref(topic: str | None, place: Place | None) -> RecordRef | None:
    """Return a position as stories have it."""
    return None if topic is None or place is None else RecordRef(topic, *place)


def outcome_of(truth: Truth, *, gone: bool) -> Outcome:
    """Return how a verdict is called; of a record that is gone what it left behind says it, if anything."""
    left = truth.receipt is not None or truth.quarantine is not None
    if gone and not left:
        return Outcome.NOT_RETAINED
    if truth.verdict == "pass":
        return Outcome.PASSED
    return Outcome(truth.verdict) if truth.verdict in JUDGED else Outcome.QUARANTINED


def grounds(story: Story, truth: Truth, *, receipts: bool, gone: bool, clocked: bool = True) -> Iterator[str]:
    """Yield in what differs what a record was judged by.

    Args:
        story: Of a record that was judged.
        truth: Of it.
        receipts: Whether it has a receipt, if it was dropped.
        gone: Whether the record is gone from its source.
        clocked: Whether the clock can be known.
    """
    said, told = truth.said, story.grounds
    if isinstance(said, Said) and truth.verdict in {"duplicate", "late"} and (receipts or not gone):
        yield from differs("sequence", told.sequence, said.sequence)
        if receipts:
            yield from differs("watermark", told.watermark, said.watermark)
            yield from differs("epoch", told.epoch, said.epoch)
    if truth.verdict == "collision":
        yield from differs("action", told.action, truth.action)
    if isinstance(said, IdSaid) and truth.owner is not None and clocked and receipts:
        yield from differs("expires", story.expires_ms, said.expires_ms or None)


def owner(
    story: Story,
    truth: Truth,
    topic: str,
    there: Collection[tuple[int, int]],
    clean: Callable[[Place], RecordRef | None],
) -> Iterator[str]:
    """Yield in what differs the record that one was compared with.

    Args:
        story: Of a record that was judged.
        truth: Of it.
        topic: Its source.
        there: Partition and offset of the records that the source still has.
        clean: Says where one that passed stands in the clean topic.
    """
    gone = (story.asked if story.source is None else story.source)[1:] not in there
    if truth.owner is None:
        yield from differs("owner", story.owner, None)
        return
    if story.outcome is Outcome.NOT_RETAINED:
        return
    if isinstance(truth.said, Said) and (gone or truth.owner not in there):
        # A number, and no position: which record carried it is not known any more.
        return
    if story.owner is None:
        yield "no owner"
        return
    yield from differs("owner", story.owner.ref, ref(topic, truth.owner))
    if truth.owner in there:
        yield from differs("its clean place", story.owner.clean, clean(truth.owner))
