"""In what a story of `seqmark explain` differs from what the episode knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from tests.simulation.brokers.explain.fates import TOPICS
from tests.support.explain.compare import differs, grounds, outcome_of, owner, ref
from tests.support.explain.truth import JUDGED
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules, shown
from tests.support.judges.rules import FaultError, number_of, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.inspection.explain.story import Story
    from tests.simulation.brokers.explain.fates import Fate, Known
    from tests.support.explain.truth import Place

NOWHERE = dict.fromkeys(TOPICS)
DROPPED = {Outcome.DUPLICATE, Outcome.LATE}


def lies(known: Known, story: Story) -> Iterator[str]:
    """Yield in what the story of a source offset differs from the truth."""
    offset = story.asked.offset
    fate, record = known.newest(offset), known.records.get(offset)
    yield from differs("problems", story.problems, [])
    yield from differs("pipeline", (story.pipeline, story.role), (known.pipeline.name, "source"))
    yield from differs("source", story.source, story.asked)
    yield from differs("mode", story.mode, known.pipeline.dedup.mode)
    if known.begin is not None:
        yield from differs("position", story.position, known.position)
    code = {Outcome.NOT_RETAINED: 1, Outcome.NOT_THERE_YET: 1}.get(story.outcome, 0)
    yield from differs("exit code", story.exit_code, code)
    if offset >= known.end:
        yield from differs("outcome", story.outcome, Outcome.NOT_THERE_YET)
        yield from _stands_nowhere(story)
        return
    if record is None or offset < known.start:
        yield from differs("record", story.record, None)
    else:
        there = (
            None if story.record is None else (story.record.key, story.record.value, story.record.timestamp_ms)
        )
        yield from differs("record", there, (record.key, record.value, record.timestamp))
    if record is None:
        yield from _no_record(known, story)
    elif known.is_judged(offset):
        assert fate is not None, f"{offset} was not taken in: {known.stretches}"
        assert fate.at >= known.first, f"{offset} was taken in by another state: {known.stretches}"
        yield from _judged(known, story, fate)
        yield from _earlier(known, story, fate)
    elif offset >= known.position or known.begin is None:
        gone = offset < known.start
        yield from differs("outcome", story.outcome, Outcome.NOT_RETAINED if gone else Outcome.PENDING)
        yield from _stands_nowhere(story)
        yield from _earlier(known, story, None)
    elif fate is None:
        yield from _never_judged(known, story)
    else:
        yield from _judged_before(known, story, fate)


def _no_record(known: Known, story: Story) -> Iterator[str]:
    """Of an offset at which no record is, or none any more: which of both nothing says."""
    if not known.pipeline.writes_records and story.verdict is not None:
        # Its range is in the clean stream.
        yield from differs("outcome", story.outcome, Outcome.PASSED)
        return
    if story.outcome not in {Outcome.NO_RECORD, Outcome.NOT_RETAINED}:
        yield f"there is no record, and it is {story.outcome}"
    yield from _stands_nowhere(story)


def _stands_nowhere(story: Story) -> Iterator[str]:
    places = {name: getattr(story, name) for name in (*TOPICS, "owner", "verdict")}
    yield from differs("places", places, dict.fromkeys(places))


def _judged(known: Known, story: Story, fate: Fate) -> Iterator[str]:
    """Of a record that the state of now has judged."""
    truth, gone = fate.truth, story.asked.offset < known.start
    receipt, copy = _place(fate, "receipt"), _place(fate, "quarantine")
    yield from differs("receipt", story.receipt, receipt)
    yield from differs("quarantine", story.quarantine, copy)
    yield from differs("verdict", story.verdict, _verdict(known, fate))
    wanted = _outcomes(known, fate, gone=gone)
    if story.outcome not in wanted:
        yield f"outcome is said to be {story.outcome}, and is {sorted(wanted)}"
        return
    if Outcome.NOT_RETAINED in wanted and story.outcome is Outcome.NOT_RETAINED:
        yield from differs("clean", story.clean, None)
        return
    observed = known.pipeline.observe and truth.verdict != "pass"
    if receipt is not None or copy is not None:
        yield from differs("observed", story.observed, observed)
    clean = None if gone else _clean(known, fate)
    if known.switched and story.clean is None:
        return  # of a sink that was left out in between nothing says that it is the same as before
    if not _is_one_of_equals(known, fate) or "receipt" not in fate.gone:
        yield from differs("clean", story.clean, clean)
    if truth.passes and clean is None and not gone and "sink" not in story.elsewhere:
        yield f"it passed to another topic, and elsewhere is {story.elsewhere}"
    for kind, name in (("sink", "clean"), ("duplicates", "receipt"), ("quarantine", "quarantine")):
        if kind in story.elsewhere and name in fate.gone and not known.switched:
            was = f"a {'clean' if kind == 'sink' else kind} topic that has been replaced since"
            yield from differs(f"its {kind}", story.elsewhere[kind], was)
    if (truth.verdict not in JUDGED and copy is not None) or story.outcome is Outcome.QUARANTINED:
        code = "id_collision" if truth.verdict == "collision" else truth.verdict
        yield from differs("code", story.grounds.code, code)
    yield from _compared(known, story, fate)


def _compared(known: Known, story: Story, fate: Fate) -> Iterator[str]:
    """Yield in what differs what a record was judged by."""
    truth, gone = fate.truth, story.asked.offset < known.start
    receipt = truth.receipt is not None
    if story.outcome is outcome_of(truth, gone=False) or receipt:
        yield from grounds(story, truth, receipts=receipt, gone=gone)
    if not gone and truth.verdict in JUDGED and story.outcome is not Outcome.QUARANTINED:
        yield from _own(known, story, fate)
    yield from _expiry(known, story, fate)
    there = {(known.number, offset) for offset in known.records if offset >= known.start}
    before = None if truth.owner is None else known.newest(truth.owner.offset)
    rules, brought = known.scenario.rules, known.stretches[fate.at].backfilled and before is None
    unknown = truth.receipted and isinstance(rules, IdRules) and not rules.exact
    if unknown or (truth.owner is not None and receipt and brought):
        yield from differs("owner", None if story.owner is None else story.owner.ref, None)
    elif (
        receipt and not known.switched and (truth.owner is None or (before is not None and before.truth.passes))
    ):
        yield from owner(story, truth, known.pipeline.source, there, lambda place: _stands(known, place))


def _own(known: Known, story: Story, fate: Fate) -> Iterator[str]:
    """Yield in what differs what the record itself says."""
    rules, told = known.scenario.rules, story.grounds
    if isinstance(rules, IdRules):
        try:
            wanted = shown(fate.record, rules)
        except FaultError:
            wanted = None
        yield from differs("id", told.id, wanted)
        return
    yield from differs("sequence", told.sequence, number_of(fate.record, rules.sequence))
    epoch = None if rules.epoch is None else number_of(fate.record, rules.epoch)
    yield from differs("epoch", told.epoch, epoch)
    yield from differs("scope", told.scope or b"", scope_of(fate.record, rules.scope))


def _expiry(known: Known, story: Story, fate: Fate) -> Iterator[str]:
    """Yield whether an id is said to expire later than it does."""
    rules = known.scenario.rules
    if story.expires_ms is None or fate.truth.verdict != "pass" or not isinstance(rules, IdRules):
        return
    assert fate.clock_ms is not None
    if not story.expires_least or story.expires_ms > fate.clock_ms + rules.window_ms:
        yield f"its id expires at {fate.clock_ms + rules.window_ms}, not at {story.expires_ms}"


def _outcomes(known: Known, fate: Fate, *, gone: bool) -> set[Outcome]:
    """Return what a record that was judged may be said to have become."""
    truth, named = fate.truth, outcome_of(fate.truth, gone=False)
    if truth.receipt is not None or (truth.quarantine is not None and not truth.receipted):
        return {named}
    if truth.quarantine is not None:  # the note of a collision is gone
        return {Outcome.QUARANTINED}
    by_verdict = _verdict(known, fate) is not None
    if gone and not (by_verdict and truth.verdict not in {"duplicate", "late"}):
        return {Outcome.NOT_RETAINED}
    if not known.pipeline.writes_records:
        return {named if by_verdict else Outcome.NOT_RETAINED}
    return _by_what_passed(known, fate)


def _by_what_passed(known: Known, fate: Fate) -> set[Outcome]:
    """Return the same of a record that has neither receipt nor copy, or none any more."""
    truth, rules = fate.truth, known.scenario.rules
    if truth.clean is not None:
        plain = truth.verdict == "pass" or truth.action == "pass" or known.pipeline.observe
        return {Outcome.PASSED if plain else Outcome.NOT_RETAINED}
    if "quarantine" in fate.gone and truth.aside and not truth.receipted:
        return {Outcome.QUARANTINED}
    sinkless = "clean" in fate.gone or not fate.stretch.records
    if truth.verdict == "pass":
        return {Outcome.NOT_RETAINED if sinkless and "receipt" in fate.gone else Outcome.PASSED}
    collides = isinstance(rules, FingerprintRules) and rules.on_collision != "pass"
    return {Outcome.NOT_RETAINED} if sinkless or collides else DROPPED


def _never_judged(known: Known, story: Story) -> Iterator[str]:
    """Of a record that the state of now begins behind, and none has judged."""
    wanted = {Outcome.SKIPPED}
    changed = known.switched or known.anew or any(each.anew for each in known.stretches)
    if story.asked.offset < known.start or changed:
        wanted = {Outcome.SKIPPED, Outcome.NOT_RETAINED}
    if story.outcome not in wanted:
        yield f"outcome is said to be {story.outcome}, and is {sorted(wanted)}"
    yield from _stands_nowhere(story)


def _judged_before(known: Known, story: Story, fate: Fate) -> Iterator[str]:
    """Of a record that only states before that of now have judged."""
    gone = story.asked.offset < known.start
    if known.switched:
        return  # where the state of now begins in an output that it did not have at first nothing says
    wanted = _outcomes(known, fate, gone=gone)
    if story.outcome not in wanted:
        yield f"before: outcome is said to be {story.outcome}, and is {sorted(wanted)}"
        return
    yield from differs("receipt", story.receipt, _place(fate, "receipt"))
    yield from differs("quarantine", story.quarantine, _place(fate, "quarantine"))
    if story.outcome is not Outcome.NOT_RETAINED and not _is_one_of_equals(known, fate):
        yield from differs("clean", story.clean, None if gone else _clean(known, fate))


def _earlier(known: Known, story: Story, now: Fate | None) -> Iterator[str]:
    """Yield what is said of states before that of now, and is not so."""
    fates = [each for each in known.fates.get(story.asked.offset, ()) if each is not now]
    true = set[RecordRef | None]()
    for each in fates:
        true |= {_place(each, place) for place in TOPICS}
    for said in story.earlier:
        if said.ref not in true:
            yield f"{said.ref} is said to be of an earlier run, and is not"
    entries = {place for each in fates for place in (each.truth.receipt, each.truth.quarantine) if place}
    if entries and not story.earlier:
        yield f"nothing is said of an earlier run, and there is {entries}"


def _clean(known: Known, fate: Fate) -> RecordRef | None:
    """Return where a record stands in the clean stream."""
    if known.pipeline.writes_records:
        return _place(fate, "clean")
    passes = fate.truth.passes and _verdict(known, fate) is not None
    return RecordRef(known.pipeline.source, known.number, fate.record.offset) if passes else None


def _stands(known: Known, place: Place) -> RecordRef | None:
    """Return where an owner stands in the clean stream."""
    fate = known.newest(place.offset)
    return None if fate is None else _clean(known, fate)


def _place(fate: Fate, name: str) -> RecordRef | None:
    return ref(TOPICS[name], getattr(fate.truth, name))


def _verdict(known: Known, fate: Fate) -> RecordRef | None:
    """Return which verdict record says it, of a pipeline of verdicts alone."""
    if known.pipeline.writes_records or not fate.stretch.verdicts:
        return None
    offset = fate.record.offset
    found = [at for at, each in known.verdicts if each.base <= offset < each.end]
    return RecordRef("verdicts", known.number, found[-1]) if found else None


def _is_one_of_equals(known: Known, fate: Fate) -> bool:
    return known.equals(fate.record.offset)
