"""By verdicts a reader takes from the source what `output = "records"` writes: all modes, run after run."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest

from processor.config.load import load
from processor.inspection.explain.explainer import Explainer
from processor.verify.said_receipts import public
from processor.wire.receipt_values import RecordRef
from schemas.verdicts.record import FAULTS, Action, SourceSums, VerdictRecord, xored
from tests.broker.modes.test_observe import AGAIN, FIRST, LATER, MODES, NUMBER, of
from tests.support.kafka.topics import (
    Record,
    admin,
    bounds,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    read_topic,
    set_group_offset,
    unique,
)
from tests.support.readers.page import page_code
from tests.support.verify.certificate import certificate, corrupted, run_verify
from tests.support.verify.corruptions import without
from tests.support.worker import forks
from tests.support.worker.process import PipelineConfig, WorkerConfig, new, new_config, run_drain
from tests.support.worker.verdicts import read_clean, verdicts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from processor.inspection.explain.story import Story
    from tests.support.kafka.broker import Broker
    from tests.support.verify.corruptions import Change

pytestmark = pytest.mark.broker

OUTPUTS = ("records", "verdicts", "both")
NAMES = ["partition", "scopes", "aside", "dropped"]


@pytest.fixture(scope="module")
def written(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, WorkerConfig]:
    """Return by output a config that has read the same sources in two runs, of which the last observed."""
    name = unique("verdicts")
    found = {}
    for output in OUTPUTS:
        pipelines = []
        for mode in NAMES:
            topic = f"{name}.{output}.{mode}"
            outputs = f"{topic}.clean", f"{topic}.aside", f"{topic}.receipts"
            pipelines.append(PipelineConfig(mode, f"{name}.{mode}.raw", *outputs, NUMBER, MODES[mode]))
        folder = tmp_path_factory.mktemp(output)
        config = WorkerConfig(
            folder, broker.bootstrap_servers, f"{name}-{output}", tuple(pipelines), {"slots": 1}
        )
        found[output] = without_sink(config.with_verdicts(output))
    for mode in NAMES:
        create_topic(broker.bootstrap_servers, f"{name}.{mode}.raw")
    for rounds, observing in (((FIRST, AGAIN), False), ((LATER,), True)):
        for mode in NAMES:
            produce(broker.bootstrap_servers, f"{name}.{mode}.raw", *rounds)
        for config in found.values():
            ended = run_drain(config.observing(observing))
            assert ended.code == 0, ended.stderr
    return found


def without_sink(config: WorkerConfig) -> WorkerConfig:
    """Return a config that names no sink where none is written."""
    return replace(
        config,
        pipelines=tuple(replace(p, sink="" if p.output == "verdicts" else p.sink) for p in config.pipelines),
    )


def topic_of(config: WorkerConfig, topic: str) -> list[Record]:
    return read_topic(config.bootstrap_servers, topic)


@pytest.mark.parametrize("mode", NAMES)
def test_what_a_reader_takes_is_what_records_writes(written: dict[str, WorkerConfig], mode: str) -> None:
    records, alone, both = (of(written[output], mode) for output in OUTPUTS)
    sink = [each.content for each in read_topic(records.bootstrap_servers, records.sink)]
    assert sink
    assert [each.content for each in read_clean(alone)] == sink
    assert [each.content for each in read_clean(both)] == sink
    assert [each.content for each in read_topic(both.bootstrap_servers, both.sink)] == sink


@pytest.mark.parametrize("mode", NAMES)
def test_receipts_and_quarantine_are_the_same_whatever_the_output(
    written: dict[str, WorkerConfig], mode: str
) -> None:
    def aside(output: str) -> tuple[object, ...]:
        config = of(written[output], mode)
        receipts = [public(json.loads(each.value or b"")) for each in topic_of(config, config.duplicates)]
        return receipts, [each.content for each in topic_of(config, config.quarantine)]

    assert aside("verdicts") == aside("records") == aside("both")
    assert all(aside("verdicts"))


@pytest.mark.parametrize("mode", NAMES)
def test_ranges_go_from_the_first_record_to_the_last_and_say_why(
    written: dict[str, WorkerConfig], mode: str
) -> None:
    config = of(written["verdicts"], mode)
    (found,) = verdicts_of(config).values()
    assert [each.begins for each in found] == [True] + [False] * (len(found) - 1)
    assert (found[0].base, found[-1].end) == (0, bounds(config.bootstrap_servers, config.source)[1])
    assert sum(each.sums.records for each in found) == len(FIRST) + len(AGAIN) + len(LATER)
    assert sum(each.sums.batches for each in found) == 3
    assert len({each.topic_id for each in found}) == 1
    assert any(found[0].topic_id)

    aside = np.concatenate([each.quarantined for each in found]).tolist()
    faults = [FAULTS[code] for each in found for code in each.faults.tolist()]
    collided = {at: Action(a) for each in found for at, a in zip(each.collided, each.actions, strict=True)}
    # 3 cannot be judged; 4 has the id of 0 with other content, and so has 8, which 4 has the content of.
    assert 3 in aside
    observed = len(FIRST) + len(AGAIN)
    assert max(aside) < observed, "what was observed is in the clean stream"
    if mode == "aside":
        assert {at: collided[at] for at in (4, 8)} == dict.fromkeys((4, 8), Action.QUARANTINE)
        assert faults.count("id_collision") == 2
        assert {action for at, action in collided.items() if at >= observed} == {Action.PASS}
    elif mode == "dropped":
        assert {at: collided[at] for at in (4, 8)} == dict.fromkeys((4, 8), Action.DROP)
    else:
        assert not collided


def test_the_certificate_proves_verdicts_as_it_proves_a_sink(written: dict[str, WorkerConfig]) -> None:
    by = {output: certificate(config) for output, config in written.items()}
    for found in by.values():
        assert found.code == 0, found.details + found.stderr
    counts = ("pipeline", "source", "sink", "duplicates", "quarantine", "collisions", "observed")
    told = [[[line[each] for each in counts] for line in found.partitions] for found in by.values()]
    assert told[0] == told[1] == told[2]


def changed(index: int, change: Callable[[VerdictRecord], VerdictRecord]) -> Change:
    """Return a change of one verdict record, under a right checksum."""

    def made(found: list[Record]) -> list[Record]:
        value = change(VerdictRecord.decode(found[index].value)).encode()
        return [*found[:index], found[index]._replace(value=value), *found[index + 1 :]]

    return made


def lists(skipped: list[int]) -> Callable[[VerdictRecord], VerdictRecord]:
    return lambda found: replace(found, skipped=np.array(skipped, np.int64))


def flipped(found: list[Record]) -> list[Record]:
    value = bytearray(found[1].value or b"")
    value[-1] ^= 1
    return [found[0], found[1]._replace(value=bytes(value)), *found[2:]]


def forged(found: list[Record]) -> list[Record]:
    """Let a record speak of one offset less, with a right checksum: those behind it leave a gap."""
    body = bytearray((found[1].value or b"")[:-4])
    end = int.from_bytes(body[32:40], "big") - 1
    body[32:40] = struct.pack(">q", end)
    body[40:44] = struct.pack(">I", end)
    value = bytes(body) + struct.pack(">I", google_crc32c.value(bytes(body)))
    return [found[0], found[1]._replace(value=value), *found[2:]]


def doubled(found: list[Record]) -> list[Record]:
    return [*found[:2], found[1], *found[2:]]


def swapped(found: list[Record]) -> list[Record]:
    return [found[0], found[2], found[1], *found[3:]]


@pytest.mark.parametrize("mode", NAMES)
def test_explain_says_by_verdicts_what_it_says_by_the_sink(written: dict[str, WorkerConfig], mode: str) -> None:
    alone, both = of(written["verdicts"], mode), of(written["both"], mode)
    by_verdicts, by_sink = explained(alone), explained(both)
    assert len(by_verdicts) == len(FIRST) + len(AGAIN) + len(LATER)
    for said, right in zip(by_verdicts, by_sink, strict=True):
        # Fingerprints have a secret of the partition's.
        for each in (said, right):
            each["grounds"] = {name: value for name, value in each["grounds"].items() if "print" not in name}
        same = ("outcome", "grounds", "observed")
        assert [said[name] for name in same] == [right[name] for name in same]
        assert said["problems"] == said["notes"] == right["notes"] == []
        place = {name: said["asked"][name] for name in ("topic", "partition", "offset")}
        assert said["clean"] == (None if right["clean"] is None else place)
        assert said["verdict"]["topic"] == alone.verdicts
        owners = [None if each["owner"] is None else each["owner"]["offset"] for each in (said, right)]
        assert owners[0] == owners[1]
        assert said["owner"] is None or said["owner"]["clean"]["offset"] == owners[0]
    assert {said["verdict"]["offset"] for said in by_verdicts} == {
        each.offset for each in topic_of(alone, alone.verdicts)[1:]
    }


def explained(config: WorkerConfig) -> list[dict[str, Any]]:
    """Return what is said of each record of the first pipeline's source, as programs read it."""

    async def ask() -> list[Story]:
        refs = [
            RecordRef(config.source, each.partition, each.offset) for each in topic_of(config, config.source)
        ]
        async with Explainer.open(load(config.write())) as explainer:
            return await explainer.explain_many(refs)

    return [story.as_json() for story in asyncio.run(ask())]


def test_explain_finds_verdicts_that_contradict_the_other_topics(written: dict[str, WorkerConfig]) -> None:
    config = of(written["verdicts"], "partition")
    for change, offset, text in (
        (changed(1, lists([3, 6, 7, 9])), 2, "says that it passed, and it has a dropped one's entry"),
        (changed(1, lists([0, 2, 3, 6, 7, 9])), 0, "skips it, and it has no receipt and no copy in quarantine"),
        (changed(1, lambda found: replace(found, faults=np.array([3, 6], np.uint8))), 9, "says otherwise"),
        (changed(2, lists([13])), 13, "its entry says that it passed, for the pipeline observes"),
        # A copy has another name than the position says: that something is not in it is no contradiction.
        (without(2), 11, "wrote no verdicts"),
        (flipped, 1, "fails its checksum"),
    ):
        other = corrupted(config, "verdicts", change)
        words = ("explain", "-c", str(other.write()), f"{config.source}:0:{offset}")
        ended = forks.inside(*words, folder=other.folder)
        assert ended.returncode == (0 if text == "wrote no verdicts" else 3), (text, ended.stdout)
        assert text in ended.stdout


# In mode watermark of the partition 2 to 4 and 6, 7 of the first eleven are dropped; 3 and 9 cannot be judged.
PLANTED: dict[str, tuple[Change, set[tuple[int, str]]]] = {
    "a duplicate passes": (changed(1, lists([3, 6, 7, 9])), {(2, "duplicate_passed")}),
    "one that passes is skipped": (changed(1, lists([0, 2, 3, 6, 7, 9])), {(0, "lost")}),
    "a code is another": (
        changed(1, lambda found: replace(found, faults=np.array([3, 6], np.uint8))),
        {(9, "verdict_wrong")},
    ),
    "the batches are others": (
        changed(1, lambda found: replace(found, sums=replace(found.sums, batches_crc=7))),
        {(0, "verdict_wrong")},
    ),
    "one is missing": (without(2), {(11, "verdict_missing")}),
    "a bit is flipped": (flipped, {(1, "verdict_wrong"), (0, "verdict_missing")}),
    "one ends too early": (forged, {(10, "verdict_missing"), (0, "verdict_wrong")}),
    "one stands twice": (doubled, {(2, "verdict_wrong")}),
    "two are swapped": (swapped, {(0, "verdict_missing"), (2, "verdict_wrong")}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_certificate_finds_verdicts_that_are_cut_doubled_reordered_or_forged(
    written: dict[str, WorkerConfig], name: str
) -> None:
    change, expected = PLANTED[name]
    found = certificate(corrupted(of(written["verdicts"], "partition"), "verdicts", change))
    assert found.code == 3, found.stderr
    assert {(offset, rule) for _, offset, rule in found.violations} == expected, found.details


def materialized(config: WorkerConfig, *arguments: str, step: str = "") -> CompletedProcess[str]:
    """Run ``seqmark materialize`` for the first pipeline; with ``step`` it dies there."""
    name = config.pipelines[0].name
    words = ("materialize", "-c", str(config.write()), "--pipeline", name, *arguments)
    if step:
        return forks.run(*words, folder=config.folder, env={"SEQMARK_FAULT_STEP": step})
    return forks.inside(*words, folder=config.folder)


def named_sink(config: WorkerConfig, topic: str) -> WorkerConfig:
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(replace(pipeline, sink=topic),))


@pytest.mark.parametrize("mode", ["partition", "aside"])
def test_materialize_writes_the_sink_that_records_would_have_written_whatever_kills_it(
    written: dict[str, WorkerConfig], mode: str
) -> None:
    config = named_sink(of(written["verdicts"], mode), unique("made"))
    sink = [each.content for each in topic_of(config, of(written["records"], mode).sink)]
    before = verdicts_status(config)
    assert before["topic"] == config.pipelines[0].verdicts
    assert (before["materialized"], before["unmaterialized"]) == (0, None)
    for step in ("begun", "output", "offsets", "ended"):
        assert materialized(config, step=step).returncode == -signal.SIGKILL
    assert materialized(config).returncode == 0
    said = json.loads(materialized(config, "--json").stdout)
    assert (said["records"], said["from"] == said["to"]) == (0, True), "the second run had nothing to do"
    assert [each.content for each in topic_of(config, config.sink)] == sink
    after = verdicts_status(config)
    assert (after["materialized"], after["unmaterialized"]) == (1, 0)
    assert after["retained"] == before["retained"] > 0
    assert after["topic_bytes"] > 0


def verdicts_status(config: WorkerConfig) -> dict[str, Any]:
    """Return what ``seqmark status`` says of the first pipeline's verdicts."""
    said = forks.inside("status", "-c", str(config.write()), "--json", folder=config.folder).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[1])["verdicts"]
    return found


def another(config: WorkerConfig) -> WorkerConfig:
    """Return a config with a sink and a position of its own."""
    return replace(named_sink(config, unique("made")), application_id=unique("m"))


def test_materialize_refuses_verdicts_and_sources_that_do_not_fit(written: dict[str, WorkerConfig]) -> None:
    config = of(written["verdicts"], "partition")
    others = changed(1, lambda found: replace(found, sums=replace(found.sums, batches_crc=7)))
    for change, text in (
        (flipped, "fails its checksum"),
        (doubled, "overlaps with"),
        (swapped, "gap"),
        (others, "are not what was judged"),
    ):
        ended = materialized(another(corrupted(config, "verdicts", change)))
        assert ended.returncode == 1
        assert text in ended.stderr
    ended = materialized(another(corrupted(config, "source", without(2))))
    assert ended.returncode == 1
    assert "was made from another topic" in ended.stderr

    taken = named_sink(config, unique("made"))
    create_topic(taken.bootstrap_servers, taken.sink)
    produce(taken.bootstrap_servers, taken.sink, FIRST)
    ended = materialized(replace(taken, application_id=unique("other")))
    assert ended.returncode == 1
    assert "holds records, or has held some, and the group" in ended.stderr
    for output in ("records", "both"):
        assert materialized(of(written[output], "partition")).returncode == 2


def ended_at(config: WorkerConfig, end: int) -> Change:
    """Return a change after which the verdicts end at an offset inside of the first range, and are right."""
    timestamps = np.array([each.timestamp for each in topic_of(config, config.source)[:end]])
    sums = SourceSums().more(end, xored(timestamps), np.zeros(0, np.int64))

    def made(found: list[Record]) -> list[Record]:
        was = VerdictRecord.decode(found[1].value)
        aside, collided = was.quarantined < end, was.collided < end
        cut = replace(
            was,
            end=end,
            sums=sums,
            skipped=was.skipped[was.skipped < end],
            quarantined=was.quarantined[aside],
            faults=was.faults[aside],
            collided=was.collided[collided],
            actions=was.actions[collided],
        )
        return [found[0], found[1]._replace(value=cut.encode())]

    return made


def test_materialize_never_goes_beyond_the_last_range(written: dict[str, WorkerConfig]) -> None:
    config = of(written["verdicts"], "dropped")
    sink = [each.content for each in topic_of(config, of(written["records"], "dropped").sink)]
    # Four of the six records of a batch, of which two do not pass.
    partly = another(corrupted(config, "verdicts", ended_at(config, 4)))
    ended = materialized(partly)
    assert ended.returncode == 0, ended.stderr
    assert [each.content for each in topic_of(partly, partly.sink)] == sink[:2]


def test_the_pages_loop_over_confluent_kafka_gives_the_clean_stream_and_goes_on(
    written: dict[str, WorkerConfig],
) -> None:
    config = of(written["verdicts"], "aside")
    sink = topic_of(config, of(written["records"], "aside").sink)
    read, group = page_code("import time")["clean_messages"], unique("reader")

    def taken(count: int, group: str = group) -> list[bytes | None]:
        messages = read(config.bootstrap_servers, config.source, config.verdicts, group)
        found = [each.value() for each in itertools.islice(messages, count)]
        messages.close()
        return found

    (verdicts,) = verdicts_of(config).values()
    first = next(each.passed for each in verdicts if each.passed)
    values = [each.value for each in sink]
    assert taken(first + 1) == values[: first + 1]
    assert taken(len(sink) - first) == values[first:], "it goes on behind the range that was done"

    within, range_at = unique("within"), topic_of(config, config.verdicts)[1].offset
    set_group_offset(config.bootstrap_servers, within, config.source, 2)
    set_group_offset(config.bootstrap_servers, within, config.verdicts, range_at)
    rest = [each.value for each in read_clean(config) if each.offset >= 2]
    assert taken(len(rest), within) == rest, "it reads the range again, and leaves out what it has had"


def test_the_pages_loop_that_ends_within_its_first_range_begins_there_again(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_verdicts("verdicts")
    servers = config.bootstrap_servers
    sent = [new(sequence) for sequence in range(1, 13)]
    for some in (sent[:6], sent[6:]):
        produce(servers, config.source, some)
        drained = run_drain(config)
        assert drained.code == 0, drained.stderr
    # The reader is new: what has expired before it is nothing that it has lost, whenever it is ended.
    last = topic_of(config, config.verdicts)[-1].offset
    delete_records(servers, config.verdicts, last)
    delete_records(servers, config.source, 9)
    read, group = page_code("import time")["clean_messages"], unique("reader")
    for count in (1, 3):
        messages = read(servers, config.source, config.verdicts, group)
        assert [each.value() for each in itertools.islice(messages, count)] == [
            each.value for each in sent[9 : 9 + count]
        ]
        messages.close()


async def first_clean(config: WorkerConfig, count: int) -> list[bytes | None]:
    read = page_code("from aiokafka")["clean_records"]
    records = read(config.bootstrap_servers, config.source, config.verdicts)
    found = [(await anext(records)).value for _ in range(count)]
    await records.aclose()
    return found


def test_the_pages_loop_over_aiokafka_gives_the_clean_stream(written: dict[str, WorkerConfig]) -> None:
    config = of(written["verdicts"], "aside")
    sink = [each.value for each in topic_of(config, of(written["records"], "aside").sink)]
    assert asyncio.run(first_clean(config, len(sink))) == sink


def test_materialize_stops_before_records_that_have_expired_and_goes_on_behind_them_if_asked(
    written: dict[str, WorkerConfig],
) -> None:
    config = of(written["verdicts"], "scopes")
    made = named_sink(config, unique("made"))
    sink = [each.content for each in topic_of(config, of(written["records"], "scopes").sink)]
    # Nobody else reads this source any more.
    delete_records(config.bootstrap_servers, config.source, 1)
    ended = materialized(made)
    assert ended.returncode == 1
    assert "of offsets 0 to 0, 1 records are gone" in ended.stderr
    ended = materialized(made, "--skip-expired", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["expired"] == 1
    assert [each.content for each in topic_of(made, made.sink)] == sink[1:]

    # Behind what has expired the source still has to be what was judged.
    others = changed(2, lambda found: replace(found, sums=replace(found.sums, batches_crc=7)))
    ended = materialized(another(corrupted(config, "verdicts", others)), "--skip-expired")
    assert ended.returncode == 1
    assert "are not what was judged" in ended.stderr

    # What the worker never had, because retention was before it, is not lost.
    def came_later(found: VerdictRecord) -> VerdictRecord:
        timestamps = found.sums.timestamps ^ xored(np.array([FIRST[0].timestamp]))
        return replace(found, sums=replace(found.sums, records=found.sums.records - 1, timestamps=timestamps))

    late = another(corrupted(config, "verdicts", changed(1, came_later)))
    ended = materialized(late, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["expired"] == 0
    assert [each.content for each in topic_of(late, late.sink)] == sink[1:]


def test_materialize_tells_verdicts_that_expired_unread_from_those_of_a_quiet_partition(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_verdicts("verdicts")
    servers, sequences = config.bootstrap_servers, itertools.count(1)

    def judge() -> int:
        """Have a worker judge three more records, and return where the verdicts end."""
        produce(servers, config.source, [new(next(sequences)) for _ in range(3)])
        ended = run_drain(config)
        assert ended.code == 0, ended.stderr
        return bounds(servers, config.verdicts)[1]

    for count in (3, 6):
        end = judge()
        assert materialized(config).returncode == 0
        # All that was read goes, and the marker of its transaction, on which the next run would have begun.
        delete_records(servers, config.verdicts, end)
        ended = materialized(config)
        assert ended.returncode == 0, ended.stderr
        assert len(read_topic(servers, config.sink)) == count
    delete_records(servers, config.verdicts, judge())
    ended = materialized(config)
    assert ended.returncode == 1
    assert "verdicts have expired unread" in ended.stderr


def test_materialize_stops_behind_offsets_that_no_verdict_speaks_of_and_goes_on_if_asked(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path).with_verdicts("verdicts")
    elsewhere = replace(config, pipelines=(replace(config.pipelines[0], verdicts=unique("elsewhere")),))
    create_topic(config.bootstrap_servers, elsewhere.verdicts)
    sent = [new(sequence) for sequence in range(1, 10)]
    for turn, each in enumerate((config, elsewhere, config)):
        produce(config.bootstrap_servers, config.source, sent[3 * turn : 3 * turn + 3])
        drained = run_drain(each)
        assert drained.code == 0, drained.stderr
        if not turn:
            assert materialized(config).returncode == 0
    stopped = materialized(config)
    assert stopped.returncode == 1
    assert f"{config.source}:0: offsets 3 to 5 have no verdict" in stopped.stderr
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 3
    ended = materialized(config, "--skip-unjudged", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["unjudged"] == 3
    made = [each.value for each in read_topic(config.bootstrap_servers, config.sink)]
    assert made == [each.value for each in (*sent[:3], *sent[6:])]
    assert json.loads(materialized(config, "--json").stdout)["unjudged"] == 0, "it is said once"


def test_materialize_goes_on_only_into_the_sink_that_it_has_written(written: dict[str, WorkerConfig]) -> None:
    config = another(of(written["verdicts"], "partition"))
    servers, group = config.bootstrap_servers, f"{config.application_id}-partition-materialize"
    client = admin(servers)  # held: its futures die with it
    sink = [each.content for each in topic_of(config, of(written["records"], "partition").sink)]

    def refused(text: str) -> None:
        ended = materialized(config)
        assert ended.returncode == 1
        assert text in ended.stderr
        assert f"--delete --group {group}" in ended.stderr

    assert materialized(config).returncode == 0
    end = bounds(servers, config.sink)[1]
    # As a worker does with output "both", and a transaction whose position the brokers have lost.
    produce(servers, config.sink, FIRST)
    refused(f"holds records from offset {end} on")
    delete_topic(servers, config.sink)
    refused("is not the topic that was written up to now")
    set_group_offset(servers, group, config.verdicts, 2)
    refused("was set by another program")

    client.delete_consumer_groups([group])[group].result(30)
    assert materialized(config).returncode == 0
    assert [each.content for each in topic_of(config, config.sink)] == sink, "as the message says"
    client.delete_consumer_groups([group])[group].result(30)
    delete_records(servers, config.sink, bounds(servers, config.sink)[1])
    refused("holds records, or has held some")


def test_materialize_goes_on_behind_a_source_that_was_made_anew_if_asked(
    written: dict[str, WorkerConfig],
) -> None:
    config = of(written["verdicts"], "dropped")
    sink = [each.content for each in topic_of(config, of(written["records"], "dropped").sink)]

    def made_anew(found: list[Record]) -> list[Record]:
        before = [replace(VerdictRecord.decode(each.value), topic_id=b"o" * 16) for each in found[:2]]
        return [*(found[0]._replace(value=each.encode()) for each in before), *found]

    remade = another(corrupted(config, "verdicts", made_anew))
    ended = materialized(remade)
    assert ended.returncode == 1
    assert "With --skip-expired it goes on behind what that topic held" in ended.stderr
    ended = materialized(remade, "--skip-expired", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["expired"] == len(FIRST) + len(AGAIN)
    assert [each.content for each in topic_of(remade, remade.sink)] == sink


def test_going_over_to_verdicts_and_back_begins_where_the_state_stands(
    written: dict[str, WorkerConfig],
) -> None:
    before = of(written["records"], "partition")
    over = before.with_verdicts("both")
    sent = len(FIRST) + len(AGAIN) + len(LATER)
    source = before.source
    for config in (over, before, over):
        produce(config.bootstrap_servers, source, [each._replace(key=b"more") for each in FIRST])
        ended = run_drain(config)
        assert ended.code == 0, ended.stderr
    (found,) = verdicts_of(over).values()
    begins = [each.base for each in found if each.begins]
    assert begins == [sent, sent + 2 * len(FIRST)]
    taken = {each.content for each in read_clean(over)}
    assert taken <= {each.content for each in read_topic(over.bootstrap_servers, over.sink)}
    proved = certificate(over)
    assert proved.code == 0, proved.details + proved.stderr


def test_a_sink_beside_verdicts_that_began_alone_is_not_said_to_be_proved(
    written: dict[str, WorkerConfig],
) -> None:
    config = named_sink(of(written["verdicts"], "dropped"), unique("late")).with_verdicts("both")
    create_topic(config.bootstrap_servers, config.sink)
    ended = run_verify(config)
    assert ended.returncode == 1
    assert 'its state began with output "verdicts"' in ended.stderr


def test_after_a_reset_the_ranges_begin_at_its_offset(written: dict[str, WorkerConfig]) -> None:
    config = of(written["both"], "aside")
    words = ("reset", "-c", str(config.write()), "--pipeline", "aside", "--to-offset", "0:6")
    ended = forks.inside(*words, folder=config.folder)
    assert ended.returncode == 0, ended.stderr
    again = run_drain(config)
    assert again.code == 0, again.stderr
    (found,) = verdicts_of(config).values()
    assert [each.base for each in found if each.begins] == [0, 6]
    assert [each.content for each in read_clean(config)] == [
        each.content for each in topic_of(config, config.sink)
    ]
    proved = certificate(config)
    assert proved.code == 0, proved.details
    assert proved.partitions[0]["from"] == 6
