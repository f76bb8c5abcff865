"""Shows a time line to people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.config.visible import visible
from processor.inspection.explain.story import Outcome
from processor.inspection.read.sentences import time_text
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.inspection.explain.story import Story
    from processor.inspection.timeline.held import HeldPartition, HeldRecord
    from processor.inspection.timeline.line import Timeline, ToldRecord
    from processor.wire.receipt_values import RecordRef

_MOST_SHOWN = 3
"""Names of fields that differ."""


def lines(line: Timeline) -> Iterator[str]:
    """Yield a time line for people: the state, a line per record, and what was looked at."""
    if line.state is not None:
        yield from _state(line.state, ambiguous=line.ambiguous)
    passed: RecordRef | None = None
    middle = (len(line.events) + 1) // 2 if line.left_out else -1
    for number, event in enumerate(line.events):
        if number == middle:
            yield f"… {line.left_out:,} more between them (--limit N shows more)"
        when = time_text(event.timestamp_ms)
        ref = event.story.source or event.story.asked
        yield visible(f"{when}  {_place(ref)} {clause(event.story, passed)}")
        if event.story.outcome is Outcome.PASSED:
            passed = ref
    yield from _certificates(line.events)
    yield _looked(line)


def objects(line: Timeline) -> Iterator[dict[str, Any]]:
    """Yield a time line for programs: an object per record, then one of what was looked at."""
    passed: RecordRef | None = None
    for event in line.events:
        story = event.story
        yield {
            **story.as_json(),
            "timestamp": event.timestamp_ms,
            "clause": clause(story, passed),
        }
        if story.outcome is Outcome.PASSED:
            passed = story.source or story.asked
    yield {
        "pipeline": line.pipeline,
        "asked": line.asked,
        "ambiguous": line.ambiguous,
        "records": len(line.events),
        "left_out": line.left_out,
        "seen": line.seen,
        "looked": line.looked,
        "since": [
            {"partition": number, "offset": offset, "timestamp": ms}
            for number, (offset, ms) in sorted(line.since.items())
        ],
        "state": None if line.state is None else [each.as_json() for each in line.state],
        "notes": line.notes,
        "exit": line.exit_code,
    }


def clause(story: Story, passed: RecordRef | None) -> str:
    """Return what became of a record, shortly; ``passed`` is the last one before it that passed."""
    match story.outcome:
        case Outcome.DUPLICATE | Outcome.LATE | Outcome.COLLISION:
            word = "collides with" if story.outcome is Outcome.COLLISION else story.outcome.value
            said = f"{word}{_owner(story, passed)}{_differs(story)}{_done(story)}"
        case Outcome.QUARANTINED:
            where = "" if story.quarantine is None else f", {_place(story.quarantine)}"
            said = f"quarantined: {story.grounds.code}{where}{_done(story)}"
        case Outcome.PENDING:
            said = "not judged yet"
        case Outcome.CONTRADICTION:
            said = f"contradicts the rules: {'; '.join(story.problems)}"
        case Outcome.NOT_RETAINED if story.source is None and story.asked == story.clean:
            said = "passed; its record in the source is not retained any more"
        case other:
            why = f": {story.why}" if story.why and other is not Outcome.PASSED else ""
            said = f"{other.value.replace('_', ' ')}{why}{_clean(story)}"
    return said


def _place(ref: RecordRef) -> str:
    return f"{ref.topic} {ref.partition}:{ref.offset}"


def _clean(story: Story) -> str:
    if story.clean is not None and story.verdict is not None:
        return f", by verdict record {_place(story.verdict)}"
    if story.clean is not None:
        return f", {_place(story.clean)}"
    return f" to {story.elsewhere['sink']}" if "sink" in story.elsewhere else ""


def _owner(story: Story, passed: RecordRef | None) -> str:
    owner = story.owner
    preposition = (
        "" if story.outcome is Outcome.COLLISION else {Outcome.DUPLICATE: " of"}.get(story.outcome, " behind")
    )
    if owner is None or (owner.ref is None and owner.backfill is None):
        return " another record" if story.outcome is Outcome.COLLISION else ""
    if owner.backfill is not None:
        return f"{preposition} a record of backfill {owner.backfill}"
    return (
        f"{preposition} {'it' if owner.ref == passed else _place(owner.ref)}" if owner.ref is not None else ""
    )


def _differs(story: Story) -> str:
    differs = None if story.owner is None else story.owner.differs
    if differs is None:
        return ""
    if not differs:
        return ", same bytes"
    more = f" and {len(differs) - _MOST_SHOWN} more" if len(differs) > _MOST_SHOWN else ""
    return f", differs in {', '.join(differs[:_MOST_SHOWN])}{more}"


def _done(story: Story) -> str:
    if story.observed:
        return f"; passed all the same{_clean(story)}"
    if story.outcome is Outcome.COLLISION:
        return f": {story.grounds.action or 'not known'}{_clean(story)}"
    return ""


def _state(state: Sequence[HeldPartition], *, ambiguous: bool) -> Iterator[str]:
    """Say what the state holds."""
    asked = {each.source for each in state}
    for each in state:
        for record in each.records:
            who = _holder(record)
            again = (
                "" if record.expires_ms is None else f"; it passes again from {time_text(record.expires_ms)}"
            )
            what = f" as {' and '.join(record.kinds)}" if ambiguous else ""
            yield f"the state of partition {each.partition} holds it{what}, by {who}{again} ({each.source})"
        if each.watermark is not None:
            epoch = "" if each.epoch is None else f" of epoch {each.epoch}"
            what = f"has the watermark {each.watermark}{epoch}"
            yield f"the state of partition {each.partition} {what} ({each.source})"
    if not any(each.known for each in state):
        said = f" ({', '.join(sorted(asked))})" if asked else ": nobody has judged anything yet"
        yield f"the state of no partition holds it{said}"


def _holder(record: HeldRecord) -> str:
    if record.owner is not None:
        return _place(record.owner)
    known = record.reading_ms is not None
    return "a record that a backfill has brought" if known else "a record, which one is not known"


def _certificates(events: Sequence[ToldRecord]) -> Iterator[str]:
    """Say which certificate covers the records, once where it is one for all."""
    said: dict[str, list[str]] = {}
    for each in events:
        ref = each.story.source or each.story.asked
        if each.story.certificate is not None:
            said.setdefault(each.story.certificate, []).append(f"{ref.partition}:{ref.offset}")
    for certificate, places in said.items():
        of = (
            ""
            if len(said) == 1
            else f" ({', '.join(places[:_MOST_SHOWN])}{', …' if len(places) > _MOST_SHOWN else ''})"
        )
        yield f"certificate: {certificate}{of}"


def _looked(line: Timeline) -> str:
    total = sum(line.looked.values())
    since = "" if line.since_ms is None else f", of the source since {time_text(line.since_ms)}"
    bounded = ", within --from and --to" if line.bounded else ""
    what = f"{line.asked}: {count(len(line.events) + line.left_out, 'record')}"
    if not line.events and not line.left_out:
        what = f"{line.asked}: nothing that is retained has it"
    both = (
        "; a word of it reads as a number: the string and the number were looked for" if line.ambiguous else ""
    )
    return visible(f"{what}; looked at {count(total, 'record')}{since}{bounded}{both}")
