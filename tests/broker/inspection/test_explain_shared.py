"""`seqmark explain` is not misled by what others have written where a pipeline writes its receipts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from tests.broker.inspection.test_explain import WHEN, Truth, drain, refs, run, some, tell, told
from tests.support.kafka.topics import New, bounds, create_topic, delete_topic, produce, read_topic
from tests.support.worker.marks import index_of
from tests.support.worker.process import PipelineConfig, WorkerConfig, new_config

if TYPE_CHECKING:
    from pathlib import Path

    from processor.inspection.explain.story import Story
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker


def keyed(config: WorkerConfig) -> WorkerConfig:
    return replace(config, pipelines=tuple(replace(p, dedup={"scope": "key"}) for p in config.pipelines))


def judged(broker: Broker, folder: Path) -> WorkerConfig:
    config = keyed(new_config(broker.bootstrap_servers, folder).with_quarantine().with_duplicates())
    for start in range(0, 400, 80):
        produce(config.bootstrap_servers, config.source, some(start, 80))
        drain(config)
    return config


def assert_as(truth: Truth, stories: list[Story], config: WorkerConfig) -> None:
    """Hold stories against what the topics held before others wrote to them."""
    places = truth.places(config)
    for story in stories:
        at = story.asked.partition, story.asked.offset
        assert (story.exit_code, story.problems) == (0, []), story.sentence
        if at in truth.receipts:
            where, said = truth.receipts[at]
            assert (story.outcome.value, story.receipt, story.clean) == (said["verdict"], where, None)
        elif at in truth.copies:
            assert (story.outcome, story.quarantine) == (Outcome.QUARANTINED, truth.copies[at])
        elif at in truth.source:
            assert (story.outcome, story.clean) == (Outcome.PASSED, places[at[1]])


def entries_of(
    config: WorkerConfig, pipeline: PipelineConfig
) -> tuple[dict[int, RecordRef], dict[int, RecordRef]]:
    """Return by source offset where the receipts and the copies of one pipeline stand."""
    about, aside = {}, {}
    for each in read_topic(config.bootstrap_servers, config.duplicates):
        said = json.loads(each.value or b"")
        if said["topic"] == pipeline.source:
            about[said["offset"]] = RecordRef(config.duplicates, 0, each.offset)
    for each in read_topic(config.bootstrap_servers, config.quarantine):
        topic, _, offset = (dict(each.headers)["seqmark.source"] or b"").decode().rsplit(":", 2)
        if topic == pipeline.source:
            aside[int(offset)] = RecordRef(config.quarantine, 0, each.offset)
    return about, aside


def again(config: WorkerConfig, topic: str) -> None:
    """Write what a topic holds once more, and its first part a third time: its order is gone."""
    there = [
        New(r.key, r.value, tuple(r.headers), r.timestamp) for r in read_topic(config.bootstrap_servers, topic)
    ]
    produce(config.bootstrap_servers, topic, there, there[: len(there) // 3], list(reversed(there)))


@pytest.mark.parametrize("indexed", [True, False])
def test_receipts_that_somebody_has_copied_behind_each_other_mislead_nobody(
    broker: Broker, tmp_path: Path, *, indexed: bool
) -> None:
    config = judged(broker, tmp_path)
    truth = Truth.of(config)
    again(config, config.duplicates)
    again(config, config.quarantine)
    if not indexed:
        delete_topic(config.bootstrap_servers, index_of(config))
    asked = refs(config, config.source)

    # Some by themselves: what was found before says where to look, too.
    stories = [*told(config, asked), *(tell(config, ref.topic, ref.offset) for ref in asked[::29])]

    if indexed:
        assert_as(truth, stories, config)
    else:
        # Nothing says which of several receipts the worker wrote.
        assert [each.exit_code for each in stories] == [0] * len(stories)
        for story in stories:
            at = story.asked.partition, story.asked.offset
            assert (story.receipt is not None) == (at in truth.receipts)
            assert (story.quarantine is not None) == (at in truth.copies)


def test_receipts_of_another_pipeline_over_the_same_source_are_skipped_and_named(
    broker: Broker, tmp_path: Path
) -> None:
    config = judged(broker, tmp_path)
    mine = Truth.of(config)
    (own,) = config.pipelines
    # By other rules: one sequence per partition, so that nearly all is late.
    theirs = replace(
        own, name="other", sink=f"{own.sink}.other", quarantine=f"{own.quarantine}.other", dedup={}
    )
    foreign = replace(
        config, folder=tmp_path / "other", application_id=f"{config.application_id}-other", pipelines=(theirs,)
    )
    foreign.folder.mkdir()
    for topic in (theirs.sink, theirs.quarantine or ""):
        create_topic(config.bootstrap_servers, topic, 1)
    drain(foreign)
    produce(config.bootstrap_servers, config.source, some(400, 80))
    drain(config)
    drain(foreign)
    receipts = read_topic(config.bootstrap_servers, config.duplicates)
    said = {each.offset: json.loads(each.value or b"") for each in receipts}
    alien = [offset for offset, each in said.items() if each["pipeline"] == "other"]
    mine = Truth.of(config)
    own_receipts = {
        (each["partition"], each["offset"]): (RecordRef(config.duplicates, 0, offset), each)
        for offset, each in said.items()
        if each["pipeline"] == own.name
    }
    mine = replace(mine, receipts=own_receipts)

    stories = told(config, refs(config, config.source))
    theirs_told = told(foreign, refs(config, config.source))
    foreign_one = tell(config, config.duplicates, alien[0])
    code, printed, _ = run(config, f"{config.duplicates}:0:{alien[0]}")
    delete_topic(config.bootstrap_servers, index_of(config))
    by_search = told(config, refs(config, config.source))

    assert alien
    assert len(own_receipts) > 20
    assert_as(mine, stories, config)
    assert_as(mine, by_search, config)
    for story in theirs_told:
        assert story.problems == []
        if story.receipt is not None:
            assert said[story.receipt.offset]["pipeline"] == "other"
    assert sum(story.receipt is not None for story in theirs_told) == len(alien)
    assert (foreign_one.outcome, foreign_one.exit_code) == (Outcome.FOREIGN, 0)
    about = f"{config.source}:0:{said[alien[0]]['offset']}"
    assert f"is a receipt of pipeline other, of {about}" in foreign_one.sentence
    assert (code, about in printed.replace("\n", "")) == (0, True)


def test_pipelines_that_share_their_topics_are_told_apart(broker: Broker, tmp_path: Path) -> None:
    config = keyed(new_config(broker.bootstrap_servers, tmp_path).with_quarantine().with_duplicates())
    (first,) = config.pipelines
    second = replace(first, name="q", source=f"{first.source}.q", sink=f"{first.sink}.q")
    config = replace(config, pipelines=(first, second))
    for topic in (second.source, second.sink):
        create_topic(config.bootstrap_servers, topic, 1)
    for start in range(0, 240, 80):
        produce(config.bootstrap_servers, first.source, some(start, 80))
        produce(config.bootstrap_servers, second.source, some(start, 80), some(start, 40))
        drain(config)
    for pipeline in (first, second):
        about, aside = entries_of(config, pipeline)
        for story in told(config, refs(config, pipeline.source)):
            assert (story.pipeline, story.problems) == (pipeline.name, [])
            offset = story.asked.offset
            assert (story.receipt, story.quarantine) == (about.get(offset), aside.get(offset))
            passed = offset not in {**about, **aside} and story.outcome is not Outcome.NO_RECORD
            assert (story.outcome is Outcome.PASSED) == (story.clean is not None) == passed
        entries = {ref: offset for each in (about, aside) for offset, ref in each.items()}
        for ref, story in zip(entries, told(config, entries), strict=True):
            assert story.source == RecordRef(pipeline.source, 0, entries[ref])
            assert (story.pipeline, story.exit_code) == (pipeline.name, 0)


def test_a_record_in_quarantine_that_no_pipeline_of_the_config_put_there_is_not_its_own(
    broker: Broker, tmp_path: Path
) -> None:
    config = judged(broker, tmp_path)
    headers = (
        ("seqmark.error", b"field_missing"),
        ("seqmark.detail", b"x"),
        ("seqmark.source", b"else.raw:0:7"),
    )
    produce(config.bootstrap_servers, config.quarantine, [New(b"k", b"v", headers, WHEN)])
    value = b'{"pipeline":"gone","topic":"else.raw","partition":0,"offset":7,"timestamp":1,"verdict":"late"}'
    produce(config.bootstrap_servers, config.duplicates, [New(b"k", value, (), WHEN)])

    copy = tell(config, config.quarantine, bounds(config.bootstrap_servers, config.quarantine)[1] - 1)
    receipt = tell(config, config.duplicates, bounds(config.bootstrap_servers, config.duplicates)[1] - 1)

    assert (copy.outcome, copy.exit_code) == (Outcome.FOREIGN, 0)
    assert "a copy in quarantine of else.raw:0:7" in copy.sentence
    assert (receipt.outcome, receipt.exit_code) == (Outcome.FOREIGN, 0)
    assert "a receipt of pipeline gone, of else.raw:0:7" in receipt.sentence
