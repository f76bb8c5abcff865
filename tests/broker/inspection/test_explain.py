"""`seqmark explain` says of every position what became of it: what a worker's topics hold, and nothing else.

That verdicts and places are right, of every record of every kind, is asked in `test_explain_truth`.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.config.load import load
from processor.inspection.explain.explainer import Explainer
from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import (
    New,
    alter_brokers,
    alter_topic,
    bounds,
    delete_records,
    group_members,
    group_offsets,
    int64,
    open_transaction,
    produce_transaction,
    until,
)
from tests.support.worker.process import WorkerConfig, new_config, produce, read_topic, run_drain
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from processor.inspection.explain.story import Story
    from tests.support.kafka.broker import Broker
    from tests.support.kafka.topics import Record

pytestmark = pytest.mark.broker

WHEN = 1_700_000_000_000
FORGED = (("seqmark.error", b"too_large"), ("seqmark.detail", b"forged"))


def scoped(number: int, scope: bytes, value: bytes = b"v", at: int = 0) -> New:
    return New(scope, value, (("seq", int64(number)),), WHEN + at)


def some(start: int, count: int) -> list[New]:
    """Return records of three producers: new ones, repeats, late ones, and one in 50 without a sequence."""
    made = []
    for i in range(start, start + count):
        back = (0, 0, 0, 0, 5, 0, 0, 9)[i % 8]
        record = scoped(max(0, i - back), b"k%d" % (i % 3), b"%d" % max(0, i - back), i // 10)
        made.append(record._replace(headers=()) if i % 50 == 49 else record)
    return made


def drain(config: WorkerConfig) -> None:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr


def told(config: WorkerConfig, refs: Iterable[RecordRef]) -> list[Story]:
    async def ask() -> list[Story]:
        async with Explainer.open(load(config.write())) as explainer:
            return await explainer.explain_many(refs)

    return asyncio.run(ask())


def tell(config: WorkerConfig, topic: str, offset: int, partition: int = 0) -> Story:
    (story,) = told(config, [RecordRef(topic, partition, offset)])
    return story


def refs(config: WorkerConfig, topic: str, partition: int = 0) -> list[RecordRef]:
    start, end = bounds(config.bootstrap_servers, topic, partition)
    return [RecordRef(topic, partition, offset) for offset in range(start, end)]


@dataclass(frozen=True)
class Truth:
    """What stands in the topics of a config, by source partition and offset."""

    source: dict[tuple[int, int], Record]
    receipts: dict[tuple[int, int], tuple[RecordRef, dict[str, Any]]]
    copies: dict[tuple[int, int], RecordRef]
    clean: list[Record]

    @classmethod
    def of(cls, config: WorkerConfig) -> Truth:
        bootstrap = config.bootstrap_servers
        receipts, copies = {}, {}
        for each in read_topic(bootstrap, config.duplicates):
            said = json.loads(each.value or b"")
            ref = RecordRef(config.duplicates, each.partition, each.offset)
            receipts[said["partition"], said["offset"]] = ref, said
        for each in read_topic(bootstrap, config.quarantine):
            _, number, offset = (dict(each.headers)["seqmark.source"] or b"").decode().rsplit(":", 2)
            copies[int(number), int(offset)] = RecordRef(config.quarantine, each.partition, each.offset)
        source = {(each.partition, each.offset): each for each in read_topic(bootstrap, config.source)}
        return cls(source, receipts, copies, read_topic(bootstrap, config.sink))

    def places(self, config: WorkerConfig, partition: int = 0) -> dict[int, RecordRef]:
        """Return by source offset where what passed of a partition stands: both topics have one order."""
        passed = [
            offset
            for number, offset in sorted(self.source)
            if number == partition and (number, offset) not in {**self.receipts, **self.copies}
        ]
        clean = [each.offset for each in self.clean if each.partition == partition]
        assert len(passed) == len(clean)
        return {offset: RecordRef(config.sink, partition, at) for offset, at in zip(passed, clean, strict=True)}


def stream(broker: Broker, folder: Path, **dedup: Any) -> WorkerConfig:
    """Return a config whose source and outputs have ended and aborted transactions, worked on in two runs."""
    config = new_config(broker.bootstrap_servers, folder).with_quarantine().with_duplicates()
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup or {"scope": "key"}),))
    source = config.bootstrap_servers, config.source
    produce(*source, *([each] for each in some(0, 60)), some(60, 140), codec="lz4")
    produce_transaction(*source, some(200, 20))
    produce_transaction(*source, some(220, 20), commit=False)
    produce(*source, some(200, 100), some(240, 60), codec="zstd")
    drain(config)
    for topic in (config.sink, config.duplicates, config.quarantine):
        produce_transaction(config.bootstrap_servers, topic, some(0, 5), commit=False)
    produce(*source, some(280, 120))
    drain(config)
    return config


@pytest.fixture(scope="module")
def config(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    return stream(broker, tmp_path_factory.mktemp("explain"))


@pytest.fixture(scope="module")
def truth(config: WorkerConfig) -> Truth:
    return Truth.of(config)


def test_what_a_transaction_left_in_an_output_is_no_record(config: WorkerConfig, truth: Truth) -> None:
    there = {each.offset for each in truth.clean}
    gone = [ref for ref in refs(config, config.sink) if ref.offset not in there]

    stories = told(config, gone)

    assert {story.outcome for story in stories} == {Outcome.NO_RECORD}
    assert sum("aborted" in story.why for story in stories) == 5


def test_who_explains_joins_no_group_and_commits_nothing(config: WorkerConfig) -> None:
    before = group_offsets(config.bootstrap_servers, config.application_id)

    told(config, refs(config, config.source)[:20])

    assert group_offsets(config.bootstrap_servers, config.application_id) == before
    assert group_members(config.bootstrap_servers, config.application_id) == set()


def test_an_offset_that_nobody_has_judged_yet_says_so(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_duplicates()
    produce(config.bootstrap_servers, config.source, some(0, 10))
    drain(config)
    produce(config.bootstrap_servers, config.source, some(10, 5))
    held = open_transaction(config.bootstrap_servers, config.source, some(20, 3))

    judged, next_one, invisible, beyond = told(
        config, [RecordRef(config.source, 0, offset) for offset in (3, 12, 16, 99)]
    )
    held.abort_transaction(30)

    assert judged.outcome is Outcome.PASSED
    assert (next_one.outcome, next_one.exit_code) == (Outcome.PENDING, 0)
    assert "taken in up to offset 10" in next_one.why
    assert (invisible.outcome, invisible.exit_code) == (Outcome.PENDING, 0)
    assert "a transaction is open there" in invisible.why
    assert (beyond.outcome, beyond.exit_code) == (Outcome.NOT_THERE_YET, 1)
    assert beyond.sentence.endswith("ends before offset 18.")


def test_what_is_not_retained_any_more_says_since_when(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_duplicates()
    produce(config.bootstrap_servers, config.source, [scoped(i, b"k", at=i) for i in (*range(10), 4)])
    drain(config)
    produce(config.bootstrap_servers, config.source, [scoped(i, b"k", at=i) for i in range(10, 20)])
    drain(config)
    delete_records(config.bootstrap_servers, config.source, 12)
    delete_records(config.bootstrap_servers, config.sink, 13)

    passed, dropped, without_copy, with_copy = told(
        config, [RecordRef(config.source, 0, offset) for offset in (3, 10, 12, 16)]
    )
    clean = tell(config, config.sink, 3)

    assert (passed.outcome, passed.exit_code) == (Outcome.NOT_RETAINED, 1)
    assert passed.earliest == (12, WHEN + 11)
    assert "begins at offset 12 now, of 2023-11-14T22:13:20.011Z" in passed.sentence
    assert (dropped.outcome, dropped.record, dropped.exit_code) == (Outcome.LATE, None, 0)
    assert "not retained any more" in dropped.notes[0]
    assert (without_copy.outcome, without_copy.clean) == (Outcome.PASSED, None)
    assert "not retained any more" in without_copy.notes[0]
    assert (with_copy.outcome, with_copy.clean) == (Outcome.PASSED, RecordRef(config.sink, 0, 16))
    assert (clean.outcome, clean.exit_code, clean.earliest) == (Outcome.NOT_RETAINED, 1, (13, WHEN + 12))


def test_after_a_reset_the_latest_run_counts_and_earlier_ones_are_named(broker: Broker, tmp_path: Path) -> None:
    config = stream(broker, tmp_path)
    first = Truth.of(config)
    answer = run_reset(config, "--to-offset", "0:150")
    assert answer.code == 0, answer.stderr
    between = told(config, [RecordRef(config.source, 0, offset) for offset in (100, 300)])
    drain(config)

    begin = {topic: bounds(config.bootstrap_servers, topic)[0] for topic in (config.sink, config.duplicates)}
    last = Truth.of(config)
    at = next(at for at in sorted(last.receipts) if at[1] > 200)
    old = next(at for at in sorted(first.receipts) if at[1] < 150)
    before, again = told(config, [RecordRef(config.source, *each) for each in (old, at)])
    passed = tell(config, config.source, next(offset for offset in first.places(config) if offset > 200))

    assert begin == {config.sink: 0, config.duplicates: 0}
    assert [story.outcome for story in between] != [Outcome.CONTRADICTION] * 2
    assert between[1].outcome is Outcome.PENDING
    assert (before.receipt, before.exit_code) == (first.receipts[old][0], 0)
    assert "a run before that of now" in before.notes[0]
    assert (again.receipt, again.exit_code) == (last.receipts[at][0], 0)
    assert again.receipt is not None
    assert again.receipt.offset > first.receipts[at][0].offset
    assert [each.ref for each in again.earlier] == [first.receipts[at][0]]
    assert passed.clean is not None
    assert passed.clean.offset > first.places(config)[passed.source.offset if passed.source else -1].offset


def ids_config(broker: Broker, folder: Path, rules: IdRules, *records: Sequence[New]) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder).with_quarantine().with_duplicates()
    config = replace(config, pipelines=(rules.applied(config.pipelines[0]),))
    for batch in records:
        produce(config.bootstrap_servers, config.source, batch)
    drain(config)
    return config


def named(name: bytes, value: bytes = b"v", at_s: int = 0) -> New:
    return New(b"k", value, (("id", name),), WHEN + 1000 * at_s)


def test_equal_records_that_passed_are_told_apart_by_their_order(broker: Broker, tmp_path: Path) -> None:
    again = named(b"a")
    later = [named(b"x", at_s=at) for at in (3601, 7300)]
    config = ids_config(broker, tmp_path, IdRules(), [again, again, later[0], again, again, later[1], again])

    # Each by itself: what was found before says where to look, too.
    stories = [tell(config, ref.topic, ref.offset) for ref in refs(config, config.source)[:7]]

    outcomes = [story.outcome.value for story in stories]
    assert outcomes == ["passed", "duplicate", "passed", "passed", "duplicate", "passed", "passed"]
    assert [story.clean.offset for story in stories if story.clean] == [0, 1, 2, 3, 4]
    assert stories[4].owner is not None
    assert (stories[4].owner.ref, stories[4].owner.differs) == (RecordRef(config.source, 0, 3), ())
    assert (stories[4].clock_ms, stories[4].expires_ms) == (WHEN + 3_601_000, WHEN + 7_201_000)
    assert stories[0].grounds.id == ["a"]
    back = told(config, refs(config, config.sink)[:5])
    assert [story.source.offset for story in back if story.source] == [0, 2, 3, 5, 6]


def test_a_collision_says_which_fields_differ(broker: Broker, tmp_path: Path) -> None:
    rules = FingerprintRules(
        ({"from": "value", "pointer": "/id"},),
        fingerprint={"exclude": ["/sent_at"]},
        on_collision="rename",
        rename={"to": "/id"},
    )
    values = [
        b'{"id": "a", "n": 1, "sent_at": 1}',
        b'{"id": "a", "n": 1, "sent_at": 2}',
        b'{"id": "a", "n": 2}',
    ]
    config = ids_config(broker, tmp_path, rules, [New(b"k", each, (), WHEN) for each in values])

    first, copy, other = told(config, refs(config, config.source)[:3])

    assert first.outcome is Outcome.PASSED
    assert copy.owner is not None
    assert (copy.outcome, copy.owner.differs) == (Outcome.DUPLICATE, ("/sent_at",))
    assert other.owner is not None
    assert (other.outcome, other.grounds.action) == (Outcome.COLLISION, "rename")
    assert other.owner.ref == first.source
    assert set(other.owner.differs or ()) == {"/n", "/sent_at"}
    assert other.problems == []


@pytest.mark.parametrize(("action", "headers"), [("tag", ()), ("rename", (("h", b"v"),))])
def test_equal_records_that_passed_in_different_forms_are_told_apart(
    broker: Broker, tmp_path: Path, action: str, headers: tuple[tuple[str, bytes], ...]
) -> None:
    rules = FingerprintRules(
        ({"from": "value", "pointer": "/id"},),
        fingerprint={"exclude": []},
        on_collision=action,
        rename={"to": "/id"} if action == "rename" else None,
    )
    one, other = (New(b"k", b'{"id": "a", "n": %d}' % n, headers, WHEN + 1000 * (n - 1)) for n in (1, 2))
    later = New(b"k", b'{"id": "b"}', headers, WHEN + 7_200_000)
    config = ids_config(broker, tmp_path, rules, [one, other, later, other, one])

    # Each by itself: what was found before says where to look, too.
    stories = [tell(config, config.source, offset) for offset in range(5)]
    back = [tell(config, config.sink, offset) for offset in range(5)]

    assert [story.problems for story in (*stories, *back)] == [[]] * 10
    outcomes = [story.outcome.value for story in stories]
    assert outcomes == ["passed", "collision", "passed", "passed", "collision"]
    assert [story.clean.offset for story in stories if story.clean] == [0, 1, 2, 3, 4]
    assert [story.source.offset for story in back if story.source] == [0, 1, 2, 3, 4]
    assert [story.notes for story in back] == [[]] * 5


def test_what_compaction_removed_from_an_output_is_no_contradiction(broker: Broker, tmp_path: Path) -> None:
    batch = [named(b"%d" % (i % 6)) for i in range(8)]
    config = ids_config(broker, tmp_path, IdRules(), batch)
    alter_topic(
        config.bootstrap_servers,
        config.sink,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms="100",
    )
    alter_brokers(config.bootstrap_servers, log_cleaner_backoff_ms="200")

    def compacted() -> bool:
        # A newer record rolls the segment: the active one is never cleaned.
        roll = New(b"k", b"roll", (), int(time.time() * 1000))
        produce(config.bootstrap_servers, config.sink, [roll])
        return all(each.value == b"roll" for each in read_topic(config.bootstrap_servers, config.sink))

    until(compacted, "the sink is compacted")

    story = tell(config, config.source, 3)

    assert (story.outcome, story.clean, story.exit_code) == (Outcome.PASSED, None, 0)
    assert "not retained any more: compaction" in story.notes[0]


def test_an_id_ahead_of_the_clock_is_not_said_to_be_known_for_longer(broker: Broker, tmp_path: Path) -> None:
    minute, before = 60_000, int(time.time() * 1000)
    ahead = [New(b"k", b"v", (("id", b"%d" % n),), before + minute * at) for n, at in enumerate((-1, 50))]
    config = ids_config(broker, tmp_path, IdRules(window="1h", max_ahead="5m"), ahead)

    usual, early = told(config, refs(config, config.source)[:2])

    assert (usual.expires_ms, usual.expires_least) == (before + 59 * minute, True)
    assert (early.outcome, early.expires_least) == (Outcome.PASSED, True)
    assert early.expires_ms is not None
    assert before + 64 * minute < early.expires_ms <= int(time.time() * 1000) + 65 * minute


def test_topics_that_contradict_the_rules_are_named(broker: Broker, tmp_path: Path) -> None:
    config = ids_config(broker, tmp_path, IdRules(), [named(b"a"), named(b"a"), named(b"b")])
    source = f"{config.source}:0:1".encode()
    produce(
        config.bootstrap_servers,
        config.quarantine,
        [New(b"k", b"v", (*FORGED, ("seqmark.source", source)), WHEN)],
    )
    produce(config.bootstrap_servers, config.duplicates, [New(b"k", b"no receipt", (), WHEN)])
    produce(config.bootstrap_servers, config.source, [named(b"c")])
    skipped = bounds(config.bootstrap_servers, config.source)[1] - 1
    said = [each for each in read_topic(config.bootstrap_servers, config.changelog) if each.key == POSITION_KEY]
    further = replace(Position.decode(said[-1].value or b""), next_offset=skipped + 1)
    produce(config.bootstrap_servers, config.changelog, [New(POSITION_KEY, further.encode(), (), WHEN)])

    twice = tell(config, config.source, 1)
    forged = tell(config, config.duplicates, bounds(config.bootstrap_servers, config.duplicates)[1] - 1)
    nowhere = tell(config, config.source, skipped)

    assert (twice.outcome, twice.exit_code) == (Outcome.CONTRADICTION, 3)
    assert "a receipt at" in twice.sentence
    assert "a copy in quarantine at" in twice.sentence
    assert (forged.exit_code, forged.problems) == (3, ["it is no receipt that a worker wrote"])
    assert (nowhere.outcome, nowhere.exit_code) == (Outcome.CONTRADICTION, 3)
    assert f"it is not in {config.sink}" in nowhere.sentence


def test_what_stands_in_the_clean_topic_once_too_often_contradicts_the_rules(
    broker: Broker, tmp_path: Path
) -> None:
    again, dropped = named(b"a"), named(b"b", b"other", 1)
    twins = [again, again, named(b"x", at_s=3601), again]
    config = ids_config(broker, tmp_path, IdRules(), [*twins, named(b"b", at_s=3602), dropped, named(b"z")])
    sound = told(config, [*refs(config, config.source), *refs(config, config.sink)])

    produce(config.bootstrap_servers, config.sink, [again], [dropped])
    end = bounds(config.bootstrap_servers, config.sink)[1]
    third, second_b, both, repeat = told(
        config,
        [
            RecordRef(config.sink, 0, end - 2),
            RecordRef(config.sink, 0, end - 1),
            RecordRef(config.source, 0, 5),
            RecordRef(config.source, 0, 0),
        ],
    )

    assert {story.exit_code for story in sound if story.outcome is not Outcome.NO_RECORD} == {0}
    assert third.exit_code == 3
    assert "stands there once more than its record passed" in third.problems[0]
    assert second_b.exit_code == 3
    assert both.exit_code == 3
    assert f"and {config.sink}:0:{end - 1} has its bytes" in both.problems[0]
    assert repeat.exit_code == 0, "what passed is well, whatever stands behind it"

    said = read_topic(config.bootstrap_servers, config.duplicates)[0].value or b""
    foreign = said.replace(b'"offset":1,', b'"offset":6,', 1)
    assert foreign != said
    produce(config.bootstrap_servers, config.duplicates, [New(b"k", foreign, (), WHEN)])
    passed = tell(config, config.source, 6)
    assert (passed.exit_code, passed.outcome) == (3, Outcome.CONTRADICTION)
    assert "it has a receipt at" in passed.problems[0]


def test_what_an_observing_pipeline_lets_pass_says_what_would_have_become_of_it(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_quarantine().with_duplicates().observing()
    records = [scoped(1, b"k"), scoped(2, b"k"), scoped(2, b"k"), scoped(1, b"k"), New(b"k", b"v", (), WHEN)]
    produce(config.bootstrap_servers, config.source, records)
    drain(config)

    stories = [tell(config, config.source, offset) for offset in range(5)]

    outcomes = [(story.outcome.value, story.observed) for story in stories]
    dropped = [("duplicate", True), ("late", True), ("quarantined", True)]
    assert outcomes == [("passed", False), ("passed", False), *dropped]
    assert [story.clean.offset if story.clean else None for story in stories] == [0, 1, 2, 3, 4]
    assert all(story.exit_code == 0 for story in stories)
    assert "would have been dropped as late" in stories[3].sentence
    assert stories[2].owner is not None
    assert stories[2].owner.ref == RecordRef(config.source, 0, 1)


def run(config: WorkerConfig, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["explain", "-c", str(config.write()), *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_prints_a_sentence_and_a_table_or_one_object(config: WorkerConfig, truth: Truth) -> None:
    at = max(truth.receipts)
    code, printed, said = run(config, f"{config.source}:0:{at[1]}")
    assert (code, said) == (0, "")
    assert printed.startswith(f"{config.source}:0:{at[1]} was dropped as ")
    rows = ("verdict", "its sequence", "compared with", "in clean", "in receipt", "judged up to")
    assert all(row in printed for row in rows)

    code, printed, said = run(config, "--json", f"{config.source}:0:{at[1]}")
    assert (code, said) == (0, "")
    story = json.loads(printed)
    assert story["receipt"] == truth.receipts[at][0]._asdict()
    assert story["grounds"]["sequence"] == truth.receipts[at][1]["sequence"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("clicks", "has no partition and no offset: write it like clicks.raw:3:8101"),
        ("clicks:1", "has no offset"),
        ("clicks:1:2:3", "has too many parts"),
        ("clicks:one:2", "has 'one' for a partition"),
        ("clicks:1:-2", "has '-2' for an offset"),
        ("SOURCE:0:99999999999999999999", "99999999999999999999 is no offset: at most 9223372036854775807"),
        ("SOURCEx:0:1", "is no topic of this config; did you mean SOURCE?"),
        ("SOURCE:7:1", "has partitions 0 to 0, and no 7"),
        ("APPLICATION-p-changelog:0:1", "is the changelog of pipeline p, which is internal"),
        ("APPLICATION-p-index:0:0", "of pipeline p, which is internal"),
    ],
)
def test_what_is_no_position_is_refused_with_what_would_be_right(
    config: WorkerConfig, place: str, said: str
) -> None:
    names = {"SOURCE": config.source, "APPLICATION": config.application_id}
    for word, name in names.items():
        place, said = place.replace(word, name), said.replace(word, name)

    code, printed, wrong = run(config, place)

    assert (code, printed) == (2, "")
    assert said in " ".join(wrong.split())


def test_contents_are_left_out_where_they_may_not_be_shown(config: WorkerConfig, truth: Truth) -> None:
    (story,) = told(config, [RecordRef(config.source, *max(truth.receipts))])

    bare = story.as_json(contents=False)

    record = truth.source[max(truth.receipts)]
    assert story.as_json()["record"]["key"] == (record.key or b"").decode()
    assert str(record.sequence) not in bare["sentence"].replace(config.source, "").split()
    assert bare["grounds"] == {}
    assert set(bare["record"]) == {"topic", "partition", "offset", "timestamp"}
    assert "key" not in bare["owner"]
    assert bare["receipt"] == story.as_json()["receipt"]
