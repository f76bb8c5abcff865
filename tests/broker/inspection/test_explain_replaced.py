"""`seqmark explain` says so where a topic of a pipeline is not the one that its records were written to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.explain.story import Outcome
from processor.inspection.timeline.say import clause
from processor.wire.receipt_values import RecordRef
from tests.broker.inspection.test_explain import WHEN, Truth, drain, named, refs, scoped, some, tell, told
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import New, bounds, create_topic, delete_topic, produce, read_topic, until
from tests.support.worker.marks import marks
from tests.support.worker.process import WorkerConfig, new_config, start_worker
from tests.support.worker.reset import run_reset
from tests.support.worker.routed import RoutedRules, routed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

POSITION = "seqmark_position{partition=0,pipeline=p}"
REPLACED = "that has been replaced since"
FIRST = 120
"""Records of before."""


def remade(config: WorkerConfig, topic: str, partitions: int = 1) -> None:
    delete_topic(config.bootstrap_servers, topic)
    create_topic(config.bootstrap_servers, topic, partitions)


def begun(broker: Broker, folder: Path, **dedup: Any) -> tuple[WorkerConfig, Truth]:
    """Return a config whose first records are judged, and what became of them."""
    config = new_config(broker.bootstrap_servers, folder).with_quarantine().with_duplicates()
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup or {"scope": "key"}),))
    produce(config.bootstrap_servers, config.source, some(0, 70), some(70, FIRST - 70), codec="lz4")
    drain(config)
    return config, Truth.of(config)


def gone_on(config: WorkerConfig, at: int = FIRST) -> Truth:
    """Reset to an offset as the worker says it, judge some more, and return what the topics hold then."""
    answer = run_reset(config, "--to-offset", f"0:{at}")
    assert answer.code == 0, answer.stderr
    produce(config.bootstrap_servers, config.source, some(FIRST, 80))
    drain(config)
    return Truth.of(config)


def told_all(config: WorkerConfig) -> dict[int, Any]:
    return {story.asked.offset: story for story in told(config, refs(config, config.source))}


def test_what_passed_to_a_sink_that_was_made_anew_says_so_and_later_records_are_found_in_the_new_one(
    broker: Broker, tmp_path: Path
) -> None:
    config, first = begun(broker, tmp_path)
    passed = set(first.places(config))
    remade(config, config.sink)
    between = told_all(config)
    last = gone_on(config)
    after = told_all(config)
    back = told(config, [RecordRef(config.sink, 0, each.offset) for each in last.clean])

    assert [story.problems for story in (*between.values(), *after.values(), *back)] == [[]] * (
        len(between) + len(after) + len(back)
    )
    for stories in (between, after):
        for offset in range(FIRST):
            story = stories[offset]
            assert (story.exit_code, story.clean) == (0, None)
            if offset in passed:
                assert story.outcome is Outcome.PASSED, story.sentence
                assert f"passed to a clean topic {REPLACED}: its sequence" in story.sentence
            elif (0, offset) in first.receipts:
                where, said = first.receipts[0, offset]
                assert (story.outcome.value, story.receipt) == (said["verdict"], where)
                assert story.owner is not None
                assert story.owner.clean is None
                assert f"it passed to a clean topic {REPLACED}" in story.owner.note
            else:
                assert (story.outcome, story.quarantine) == (Outcome.QUARANTINED, first.copies[0, offset])
    new = [offset for _, offset in sorted(last.source) if offset >= FIRST]
    clean = iter(sorted(each.offset for each in last.clean))
    for offset in new:
        story = after[offset]
        if (0, offset) in last.receipts:
            assert story.receipt == last.receipts[0, offset][0]
        elif (0, offset) not in last.copies:
            assert story.clean == RecordRef(config.sink, 0, next(clean)), story.sentence
    assert next(clean, None) is None
    assert [story.clean for story in back] == [story.asked for story in back]


def test_what_passed_after_the_last_mark_to_a_sink_that_was_made_anew_is_known_to_have_passed(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_duplicates()
    with start_worker(config, env={"SEQMARK_TEST_MARK_S": "3600"}) as worker:
        worker.wait_ready()
        for start in (0, 10):
            batch = [scoped(i, b"k", b"%d" % i) for i in range(start, start + 10)]
            produce(config.bootstrap_servers, config.source, batch)
            until(
                lambda: worker.metrics().get(POSITION) == bounds(config.bootstrap_servers, config.source)[1],
                "in",
            )
        worker.terminate()
        assert worker.wait() == 0
    assert [mark.next_offset for mark in marks(config)[0]] == [0]
    remade(config, config.sink)
    answer = run_reset(config, "--to-offset", "0:20")
    assert answer.code == 0, answer.stderr

    stories = told_all(config)

    assert {clause(story, None) for story in stories.values()} == {f"passed to a clean topic {REPLACED}"}
    assert [story.outcome for story in stories.values()] == [Outcome.PASSED] * 20
    assert all(REPLACED in story.sentence for story in stories.values())


def test_what_is_judged_again_into_a_sink_made_anew_is_found_in_the_new_one(
    broker: Broker, tmp_path: Path
) -> None:
    config, first = begun(broker, tmp_path)
    passed = sorted(first.places(config))
    remade(config, config.sink)
    last = gone_on(config, at=60)

    stories = told_all(config)

    again = sorted(offset for offset in passed if offset >= 60)
    there = dict(zip(again, sorted(each.offset for each in last.clean), strict=False))
    for offset in passed:
        story = stories[offset]
        assert (story.outcome, story.exit_code) == (Outcome.PASSED, 0)
        expected = RecordRef(config.sink, 0, there[offset]) if offset in there else None
        assert story.clean == expected
        assert (REPLACED in story.sentence) == (expected is None)


def test_what_was_dropped_or_aside_beside_topics_that_were_made_anew_says_so(
    broker: Broker, tmp_path: Path
) -> None:
    config, first = begun(broker, tmp_path)
    places = first.places(config)
    dropped, aside = (sorted(offset for _, offset in left) for left in (first.receipts, first.copies))
    assert aside
    remade(config, config.duplicates)
    remade(config, config.quarantine)
    between = told_all(config)
    last = gone_on(config)
    after = told_all(config)

    for stories in (between, after):
        for offset in dropped:
            story = stories[offset]
            verdict = first.receipts[0, offset][1]["verdict"]
            assert (story.outcome.value, story.receipt, story.exit_code) == (verdict, None, 0), story.sentence
            assert any(f"its receipt was in a duplicates topic {REPLACED}" in note for note in story.notes)
        for offset, place in places.items():
            assert (stories[offset].outcome, stories[offset].clean) == (Outcome.PASSED, place)
        for offset in aside:
            story = stories[offset]
            assert (story.outcome, story.quarantine, story.exit_code) == (Outcome.QUARANTINED, None, 0)
            assert story.grounds.code == "header_missing"
            assert any(f"its copy was in a quarantine topic {REPLACED}" in note for note in story.notes)
    for at in (at for at in last.receipts if at[1] >= FIRST):
        assert after[at[1]].receipt == last.receipts[at][0]
    for at in (at for at in last.copies if at[1] >= FIRST):
        assert after[at[1]].quarantine == last.copies[at]


def test_what_passed_or_was_dropped_nobody_knows_once_both_topics_were_made_anew(
    broker: Broker, tmp_path: Path
) -> None:
    config, _ = begun(broker, tmp_path)
    remade(config, config.sink)
    remade(config, config.duplicates)

    between = tell(config, config.source, 3)
    gone_on(config)
    after = tell(config, config.source, 3)

    for story in (between, after):
        assert (story.outcome, story.exit_code, story.problems) == (Outcome.NOT_RETAINED, 1, [])
        assert f"a clean topic {REPLACED}" in story.sentence
        assert f"a duplicates topic {REPLACED}" in story.sentence


def test_nothing_of_a_source_made_anew_is_taken_for_a_record_of_the_one_before(
    broker: Broker, tmp_path: Path
) -> None:
    config, first = begun(broker, tmp_path)
    remade(config, config.source)
    produce(config.bootstrap_servers, config.source, [scoped(i, b"new", b"%d" % i, 1000) for i in range(FIRST)])
    between = told_all(config)
    old = told(config, [RecordRef(config.sink, 0, first.clean[0].offset)])
    answer = run_reset(config, "--to-earliest")
    assert answer.code == 0, answer.stderr
    drain(config)
    after = told_all(config)
    old += told(config, [RecordRef(config.sink, 0, first.clean[0].offset)])
    old += [tell(config, config.duplicates, 0)]

    assert all(story.outcome is Outcome.PENDING for story in between.values())
    assert all("has been replaced" in story.sentence for story in between.values())
    for story in old[:2]:
        assert (story.outcome, story.exit_code) == (Outcome.NOT_RETAINED, 1), story.sentence
        assert "replaced since" in story.sentence
    assert (old[2].exit_code, old[2].problems) == (1, []), old[2].sentence
    behind = first.clean[-1].offset
    for story in after.values():
        assert (story.outcome, story.exit_code, story.earlier) == (Outcome.PASSED, 0, [])
        assert story.clean is not None
        assert story.clean.offset > behind


def test_what_passed_before_the_config_named_another_sink_is_not_looked_for_there(
    broker: Broker, tmp_path: Path
) -> None:
    config, first = begun(broker, tmp_path)
    passed = sorted(first.places(config))
    other = f"{config.sink}.2"
    create_topic(config.bootstrap_servers, other, 1)
    # It has records already, more than the one before: where that began says nothing of this one.
    produce(config.bootstrap_servers, other, [New(b"k", b"before", (), WHEN)])
    changed = replace(config, pipelines=(replace(config.pipelines[0], sink=other),))
    before_it_runs = tell(changed, config.source, passed[0])
    produce(config.bootstrap_servers, config.source, some(FIRST, 80))
    drain(changed)

    stories = told_all(changed)
    last = Truth.of(changed)

    assert (before_it_runs.outcome, before_it_runs.exit_code) == (Outcome.PASSED, 0)
    assert "to a clean topic that the config does not name any more" in before_it_runs.sentence
    for offset in passed:
        assert (stories[offset].outcome, stories[offset].clean) == (Outcome.PASSED, None)
        assert "that the config does not name any more" in stories[offset].sentence
    clean = [each.offset for each in last.clean][1:]
    new = [
        offset
        for at in sorted(last.source)
        if (offset := at[1]) >= FIRST and at not in last.receipts and at not in last.copies
    ]
    assert len(new) == len(clean)
    assert [stories[offset].clean for offset in new] == [RecordRef(other, 0, each) for each in clean]
    assert {story.exit_code for story in stories.values()} == {0}


def test_a_duplicates_topic_that_came_later_has_no_receipts_of_before(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    batch = [scoped(i, b"k", b"%d" % i) for i in (0, 1, 1, 2)]
    produce(config.bootstrap_servers, config.source, batch)
    drain(config)
    later = config.with_duplicates()
    create_topic(config.bootstrap_servers, later.duplicates, 1)
    before_it_runs = tell(later, config.source, 2)
    produce(config.bootstrap_servers, config.source, [scoped(2, b"k", b"2"), scoped(3, b"k", b"3")])
    drain(later)

    stories = told_all(later)

    outcomes = [story.outcome.value for story in stories.values()]
    assert outcomes == ["passed", "passed", "duplicate", "passed", "duplicate", "passed"]
    assert [story.receipt is not None for story in stories.values()] == [False] * 4 + [True, False]
    assert {story.exit_code for story in (*stories.values(), before_it_runs)} == {0}
    assert before_it_runs.outcome is Outcome.DUPLICATE


def test_a_routed_pipelines_topics_made_anew_contradict_nothing(broker: Broker, tmp_path: Path) -> None:
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2), RoutedRules())
    batch = [named(b"%d" % (i % 40), b"%d" % i) for i in range(60)]
    produce(config.bootstrap_servers, config.source, [*batch, New(b"k", b"", (), WHEN)])
    drain(config)
    partitions = {each.partition for each in read_topic(config.bootstrap_servers, config.sink)}
    remade(config, config.sink, max(partitions) + 1)

    passed, dropped = (tell(config, config.source, offset) for offset in (5, 45))
    remade(config, config.duplicates, max(partitions) + 1)
    unknown = tell(config, config.source, 45)

    assert (passed.outcome, passed.clean, passed.exit_code) == (Outcome.PASSED, None, 0), passed.sentence
    assert REPLACED in passed.sentence
    assert (dropped.outcome, dropped.exit_code) == (Outcome.DUPLICATE, 0)
    assert (unknown.outcome, unknown.exit_code) == (Outcome.NOT_RETAINED, 1)


def test_equal_records_are_not_mixed_up_when_their_receipts_are_gone(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_quarantine().with_duplicates()
    config = replace(config, pipelines=(IdRules().applied(config.pipelines[0]),))
    again = named(b"a")
    produce(config.bootstrap_servers, config.source, [again, named(b"b"), named(b"c"), again])
    drain(config)
    remade(config, config.duplicates)

    first, last = tell(config, config.source, 0), tell(config, config.source, 3)

    assert (first.outcome, first.clean) == (Outcome.PASSED, RecordRef(config.sink, 0, 0))
    assert (last.outcome, last.clean, last.exit_code) == (Outcome.DUPLICATE, None, 0)
    assert bounds(config.bootstrap_servers, config.duplicates) == (0, 0)
