"""Says in one sentence what became of a record, and by which rule."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from processor.inspection.explain.story import Outcome
from processor.inspection.read.sentences import begun, epoch_text, late_why, time_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.inspection.explain.story import Story


class _Contents(Enum):
    """Whether what came out of records may be said."""

    NONE = 0
    ALL = 1

    def __bool__(self) -> bool:
        return self is _Contents.ALL


_COLLIDED = {
    "pass": "it passed as it came",
    "tag": "it passed with the header seqmark.collision",
    "rename": "it passed with a new id",
    "quarantine": "it is in quarantine",
    "drop": "it was dropped",
}
_NO_RECORD = "there is no record of it in the source"
_ALL_THE_SAME = "it passed all the same, for the pipeline observes"
_RULES = {
    "watermark": "its sequence was above its scope's sequence watermark, or had not been seen",
    "insert-id": "its id was not known, or its window was over",
}


def sentence(story: Story, *, contents: bool = True) -> str:
    """Return the sentence; not escaped for a terminal.

    Args:
        story: The answer.
        contents: Whether numbers and details that came out of records may be in it.
    """
    said = _SAY[story.outcome](story, _Contents.ALL if contents else _Contents.NONE)
    return f"{story.source or story.asked} {said}."


def _passed(story: Story, _: _Contents) -> str:
    there = story.clean or story.elsewhere.get("sink")
    where = "" if there is None else f" to {there}"
    if story.verdict is not None:
        where = f", as {story.verdict} says"
    return f"passed{where}: {story.why or _RULES[story.mode]}"


def _dropped(story: Story, contents: _Contents) -> str:
    verb = "would have been dropped" if story.observed else "was dropped"
    passed = f"; {_ALL_THE_SAME}" if story.observed else ""
    rule = _of_id(story) if story.mode == "insert-id" else _of_sequence(story, contents)
    return f"{verb} as {rule}{_again(story)}{passed}"


def _collided(story: Story, _: _Contents) -> str:
    action = story.grounds.action or ""
    done = _ALL_THE_SAME if story.observed else _COLLIDED.get(action, action)
    return f"collides: {_owner(story)} had passed with its id and other content; {done}{_again(story)}"


def _quarantined(story: Story, contents: _Contents) -> str:
    detail = f": {story.grounds.detail}" if contents and story.grounds.detail else ""
    verb = "cannot be judged, and passed all the same" if story.observed else "was put into quarantine"
    return f"{verb}: {story.grounds.code}{detail}"


def _of_id(story: Story) -> str:
    if story.owner is None or (story.owner.ref is None and story.owner.backfill is None):
        return "a duplicate of a record inside the window, which one is not known"
    if story.owner.backfill is not None:
        return f"a duplicate: its id was delivered before, in backfill {story.owner.backfill}; {_NO_RECORD}"
    return f"a duplicate of {_owner(story)}, which had passed with the same id inside the window"


def _of_sequence(story: Story, contents: _Contents) -> str:
    own, mark, epoch = story.grounds.sequence, story.grounds.watermark, story.grounds.epoch
    by = _with(story)
    numbers = contents and own is not None and mark is not None
    if story.outcome is Outcome.DUPLICATE:
        said = f" (the sequence watermark was {mark})" if numbers else ""
        return f"a duplicate: its sequence {f'{own} ' if numbers else ''}had come before{by}{said}"
    mine, marked = (f" {own}", f" {mark}") if numbers else ("", "")
    behind = f"its sequence{mine} was not above the sequence watermark{marked}"
    over = f"its epoch {f'{epoch_text(epoch)} ' if contents else ''}was over, {begun(epoch)} had begun"
    above = own is not None and mark is not None and own > mark
    return f"late: {late_why(behind, over, epoch, above=above, wraps=story.wraps)}{by}"


def _with(story: Story) -> str:
    if story.owner is None:
        return ""
    if story.owner.backfill is not None:
        return f", in backfill {story.owner.backfill}; {_NO_RECORD}"
    return "" if story.owner.ref is None else f", with {story.owner.ref}"


def _owner(story: Story) -> str:
    if story.owner is None:
        return "a record"
    backfill = story.owner.backfill
    return f"a record of backfill {backfill}" if backfill is not None else str(story.owner.ref)


def _again(story: Story) -> str:
    if story.expires_ms is None:
        return ""
    what = "this content" if story.outcome is Outcome.COLLISION else "its id"
    return f"; {what} passes again from {time_text(story.expires_ms)}"


_SAY: dict[Outcome, Callable[[Story, _Contents], str]] = {
    Outcome.PASSED: _passed,
    Outcome.DUPLICATE: _dropped,
    Outcome.LATE: _dropped,
    Outcome.COLLISION: _collided,
    Outcome.QUARANTINED: _quarantined,
    Outcome.PENDING: lambda story, _: f"is not judged yet: {story.why}",
    Outcome.SKIPPED: lambda story, _: f"was passed over: {story.why}",
    Outcome.NO_RECORD: lambda story, _: f"is no record: {story.why}",
    Outcome.NOT_RETAINED: lambda story, _: f"is not retained any more: {story.why}",
    Outcome.NOT_THERE_YET: lambda story, _: f"does not exist yet: {story.why}",
    Outcome.FOREIGN: lambda story, _: f"is {story.why}",
    Outcome.CONTRADICTION: lambda story, _: f"contradicts the rules: {'; '.join(story.problems)}",
}
