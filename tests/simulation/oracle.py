"""What has to stand in the cluster at an episode's end, by the naive models that the property tests have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from processor.engine.verdict import Fault, Verdict
from processor.kafka.client import TopicPartition
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.decode import Chunk, Decoder
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY
from schemas.verdicts.record import VerdictRecord
from seqmark.in_memory.ports import MemoryChangelog, Wire
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdModel, IdRules
from tests.support.judges.outcomes import (
    assert_hashes,
    foretold,
    new_ids_of,
    outcomes,
    plain,
    without_detail,
)
from tests.support.kafka.topics import Record
from tests.support.verify.observed import OBSERVED
from tests.support.wire import batches
from tests.support.worker.id_feed import assert_ids
from tests.support.worker.process import PipelineConfig
from tests.support.worker.verdicts import clean_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from seqmark.in_memory.cluster import MemoryCluster
    from tests.simulation.scenario import Scenario
    from tests.support.judges.rules import Model, Rules
    from tests.support.kafka.topics import New

PIPELINE = PipelineConfig("p", "source", "sink")
LocalStates = Mapping[tuple[str, int], MemoryStore]
"""By hop and source partition."""
DROPPED = {"duplicate", "late"}
_RESTORER = Decoder()


async def require_exact(scenario: Scenario, cluster: MemoryCluster, stores: Iterable[LocalStates]) -> None:
    """Compare outputs, offsets and state with the truth.

    Args:
        scenario: What was to be done.
        cluster: What was done.
        stores: What machines have locally, of whatever age: with any of it a worker may go on.
    """
    for tp, log in cluster.logs.items():
        assert not log.open, f"a transaction is open on {tp.topic}:{tp.partition}"
    local = list(stores)
    for number, records in enumerate(scenario.records):
        found = (each.get((scenario.kind.hop.name, number)) for each in local)
        await _require_partition(scenario, cluster, number, records, [each for each in found if each])


async def _require_partition(
    scenario: Scenario,
    cluster: MemoryCluster,
    number: int,
    records: Sequence[Record],
    stores: Sequence[MemoryStore],
) -> None:
    topics = scenario.kind.topics
    model, judged, end = scenario.model(), list(records), cluster.log(topics.source, number).end
    if topics.quarantine is None:
        judged = _until_fault(scenario, records)
        end = records[len(judged)].offset if len(judged) < len(records) else end
    told = [json.loads(each.value or b"") for each in read(cluster, "receipts", number)]
    truth = outcomes(model, scenario.rules, PIPELINE, judged, new_ids_of(told))
    passed, refused = truth.passed, truth.quarantined
    if scenario.kind.hop.pipeline.observe:
        passed, refused = list(map(plain, judged)), list(map(_observed, refused))
        assert all(each.pop("observed") for each in told), "a receipt does not say that its record has passed"
    if topics.sink is not None:
        _require_same("sink", [plain(each) for each in read(cluster, topics.sink, number)], passed)
    if topics.verdicts is not None:
        said = [VerdictRecord.decode(each.value) for each in read(cluster, topics.verdicts, number)]
        assert [each.begins for each in said] == [True] + [False] * (len(said) - 1)
        assert said[-1].end == end
        _require_same("verdicts", [plain(each) for each in clean_by(said, judged)], passed)
    found = [without_detail(plain(each)) for each in read(cluster, "quarantine", number)]
    _require_same("quarantine", found, refused)
    if not isinstance(scenario.rules, IdRules):
        rows = [tuple(each[name] for name in ("offset", "verdict", "sequence", "watermark")) for each in told]
        _require_same("receipts", rows, _sequence_receipts(scenario.rules, judged))
    elif scenario.rules.confirmed:
        _require_same("receipts", foretold(told), truth.told)
    if isinstance(scenario.rules, FingerprintRules):
        assert_hashes(scenario.rules, {each.offset: each for each in judged}, told)
    dropped = [each["offset"] for each in told if each["verdict"] in DROPPED]
    expected = [each.offset for each, verdict in zip(judged, truth.verdicts, strict=True) if verdict in DROPPED]
    assert dropped == expected, f"receipts of {number}"
    group = cluster.offsets[TopicPartition(topics.source, number)]
    assert group == end, f"the group is at {group} of partition {number}, not at {end}"
    changelog = read(cluster, topics.changelog, number)
    positions = [Position.decode(each.value or b"") for each in changelog if each.key == POSITION_KEY]
    assert positions[-1].next_offset == end, f"position of {number}"
    if isinstance(model, IdModel) and isinstance(scenario.rules, IdRules) and scenario.rules.confirmed:
        assert_ids(number, list(map(plain, changelog)), model, scenario.rules.window_ms)
    for store in (MemoryStore(), *stores) if records else ():
        await _require_state(scenario, cluster, number, store, deepcopy(model), records)


def _observed(record: New) -> New:
    """Return a record of quarantine, without its detail, as it is there where it has passed as well."""
    return record._replace(headers=(*record.headers[:-2], OBSERVED, *record.headers[-2:]))


def _sequence_receipts(rules: Rules, records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return what receipts of mode watermark say: offset, verdict, sequence, watermark."""
    model = rules.model()
    said = [(record.offset, model.judge(record)) for record in records]
    return [(at, each.verdict, each.sequence, each.watermark) for at, each in said if each.verdict in DROPPED]


def _until_fault(scenario: Scenario, records: Sequence[Record]) -> list[Record]:
    """Return the records before the first one that cannot be judged: without quarantine the worker stops."""
    model = scenario.model()
    found: list[Record] = []
    for each in records:
        if model.judge(each).verdict not in {"pass", "duplicate", "late"}:
            break
        found.append(each)
    return found


async def _require_state(
    scenario: Scenario,
    cluster: MemoryCluster,
    number: int,
    store: MemoryStore,
    model: Model | IdModel,
    records: Sequence[Record],
) -> None:
    """Whoever goes on with this local state judges everything that is sent once more as the model does."""
    kind = scenario.kind
    judge, own = kind.judge(), MemoryStore()
    own.write(dict(store.items(b"")))
    table = Table(own, judge.log)
    changelog = TopicPartition(kind.topics.changelog, number)
    await restore(table, MemoryChangelog(cluster, changelog, _RESTORER, Wire()), 60, lambda _done, _all: None)
    table.flush()
    judge.load(table)
    end = cluster.log(kind.topics.source, number).end
    again = [each._replace(offset=end + at) for at, each in enumerate(records)]
    wanted = [model.judge(each).verdict for each in again]
    found: list[str] = []
    for piece in batches.DECODER.pieces(batches.chunk(batches.by_hand(list(map(batches.on_wire, again))))):
        evidence = judge.extract(piece.columns)
        judged = judge.judge(evidence).verdict.tolist()
        found += [
            Fault(fault).code if fault not in {Fault.NONE, Fault.ID_COLLISION} else Verdict(verdict).label
            for verdict, fault in zip(judged, evidence.fault.tolist(), strict=True)
        ]
    _require_same(f"verdicts of {number} with a state of {len(dict(store.items(b'')))} values", found, wanted)


def read(cluster: MemoryCluster, topic: str, number: int) -> list[Record]:
    """Return the committed records of a partition."""
    found: list[Record] = []
    data, aborted = cluster.log(topic, number).fetch(cluster.log(topic, number).start, 2**62)
    for piece in batches.DECODER.pieces(Chunk(topic, number, 0, data, aborted)):
        for each in batches.rows(piece.columns):
            headers = tuple((name.decode(), value) for name, value in each.headers)
            found.append(Record(number, each.offset, each.key, each.value, headers, each.timestamp, True))
    return found


def _require_same(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    if list(found) == list(wanted):
        return
    place = next((at for at, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(found), len(wanted)) if place is None else place
    one, other = list(found[at : at + 1]), list(wanted[at : at + 1])
    raise AssertionError(f"{what}: {len(found)} records, {len(wanted)} wanted; at {at}: {one}, wanted {other}")
