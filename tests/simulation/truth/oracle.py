"""What has to stand in the cluster at an episode's end, by the naive models that the property tests have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

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
from tests.simulation.truth.walk import is_big, walked
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
    from collections.abc import Collection, Iterable, Sequence

    from processor.engine.batch.columns import Columns
    from seqmark.in_memory.cluster import MemoryCluster, MemoryLog
    from tests.simulation.scenario import Scenario
    from tests.support.judges.rules import Model
    from tests.support.kafka.topics import New

PIPELINE = PipelineConfig("p", "source", "sink")
LocalStates = Mapping[tuple[str, int], MemoryStore]
"""By hop and source partition."""
DROPPED = {"duplicate", "late"}


class Cluster(Protocol):
    """What is left of a cluster."""

    @property
    def logs(self) -> Mapping[TopicPartition, MemoryLog]:
        """By partition."""

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """What the group has committed."""

    def log(self, topic: str, partition: int) -> MemoryLog:
        """Return a partition's log."""

    def fetch(self, topic: str, partition: int, position: int, most_bytes: int) -> Chunk:
        """Answer a fetch."""


class Stretch(NamedTuple):
    """Source offsets that one state has taken in, in a row, with what came of them written.

    Attributes:
        known_from: What the state knows begins here.
        start: Its first one.
        stop: The one behind its last.
        small: Whether the sink took little then.
        records: Whether what passes went to the sink.
        verdicts: Whether verdicts were written.
        anew: Topics that were made again before.
        backfilled: Whether the state began with what others had delivered: ids, but not whose they are.
        loose: Whether outputs may be repeated, and the group's offset lag: nothing binds them together.
    """

    known_from: int
    start: int
    stop: int
    small: bool = False
    records: bool = True
    verdicts: bool = True
    anew: frozenset[str] = frozenset()
    backfilled: bool = False
    loose: bool = False


Story = Mapping[int, "Sequence[Stretch]"]
"""By source partition."""
_RESTORER = Decoder()


async def require_exact(
    scenario: Scenario, cluster: Cluster, stores: Iterable[LocalStates], story: Story | None = None
) -> None:
    """Compare outputs, offsets and state with the truth.

    Args:
        scenario: What was to be done.
        cluster: What was done.
        stores: What machines have locally, of whatever age: with any of it a worker may go on.
        story: What was taken in; None: everything, once.
    """
    for tp, log in cluster.logs.items():
        assert not log.open, f"a transaction is open on {tp.topic}:{tp.partition}"
    local = list(stores)
    for number in range(len(scenario.records)):
        found = (each.get((scenario.kind.hop.name, number)) for each in local)
        some = [each for each in found if each]
        stretches = None if story is None else story[number]
        await _require_partition(scenario, cluster, number, some, stretches)


async def _require_partition(
    scenario: Scenario,
    cluster: Cluster,
    number: int,
    stores: Sequence[MemoryStore],
    stretches: Sequence[Stretch] | None,
) -> None:
    topics, records = scenario.kind.topics, scenario.records[number]
    end = cluster.log(topics.source, number).end
    if topics.quarantine is None:
        judged = _until_fault(scenario, records)
        end = records[len(judged)].offset if len(judged) < len(records) else end
    records_too, verdicts_too = topics.sink is not None, topics.verdicts is not None
    whole = Stretch(0, 0, end, records=records_too, verdicts=verdicts_too)
    model = require_outputs(scenario, cluster, number, stretches or [whole])
    group = cluster.offsets[TopicPartition(topics.source, number)]
    loose = stretches is not None and stretches[-1].loose
    assert group == end or (loose and group < end), (
        f"the group is at {group} of partition {number}, not at {end}"
    )
    changelog = read(cluster, topics.changelog, number)
    positions = [Position.decode(each.value or b"") for each in changelog if each.key == POSITION_KEY]
    assert positions[-1].next_offset == end, f"position of {number}"
    known, rules = stretches is None or not stretches[-1].backfilled, scenario.rules
    if known and isinstance(model, IdModel) and isinstance(rules, IdRules) and rules.exact:
        assert_ids(number, list(map(plain, changelog)), model, rules.window_ms)
    for store in (MemoryStore(), *stores) if records else ():
        await _require_state(scenario, cluster, number, store, deepcopy(model), records)


def require_outputs(
    scenario: Scenario, cluster: Cluster, number: int, stretches: Sequence[Stretch]
) -> Model | IdModel:
    """Compare what a partition's topics hold with the truth; return the naive model behind it."""
    records = scenario.records[number]
    told = [said for _, said in own_receipts(cluster, number)]
    truth, model = _truth(scenario, records, stretches, new_ids_of(told))
    passed, refused = truth.passed, truth.quarantined
    if scenario.kind.hop.pipeline.observe:
        passed, refused = truth.judged, list(map(_observed, refused))
        assert all(each.pop("observed") for each in told), "a receipt does not say that its record has passed"
    same = _require_among if stretches[-1].loose else _require_same
    if any(each.records for each in stretches):
        same("sink", [plain(each) for each in read(cluster, "sink", number)], passed)
    shown = [each for each in stretches if each.verdicts]
    if shown:
        said = [VerdictRecord.decode(each.value) for each in read(cluster, "verdicts", number)]
        assert (
            (said[0].begins and said[-1].end == shown[-1].stop) if said else shown[-1].start == shown[-1].stop
        )
        assert len(stretches) > 1 or [each.begins for each in said[1:]] == [False] * (len(said) - 1)
        _require_same("verdicts", [plain(each) for each in clean_by(said, records)], truth.shown)
    found = [without_detail(plain(each)) for each in read(cluster, "quarantine", number)]
    same("quarantine", found, refused)
    if stretches[-1].loose:
        # A state whose position was not written any more judges again what has passed, and what was dropped by
        # another watermark.
        told = [each for each in told if each["offset"] in truth.dropped]
    elif not isinstance(scenario.rules, IdRules):
        rows = [tuple(each[name] for name in ("offset", "verdict", "sequence", "watermark")) for each in told]
        _require_same("receipts", rows, truth.told)
    elif scenario.rules.exact:
        unknown = {"owner"} if stretches[-1].backfilled else set[str]()
        _require_same("receipts", _without(foretold(told), unknown), _without(truth.told, unknown))
    if isinstance(scenario.rules, FingerprintRules):
        assert_hashes(scenario.rules, {each.offset: each for each in records}, told)
    dropped = [each["offset"] for each in told if each["verdict"] in DROPPED]
    same(f"receipts of {number}", dropped, truth.dropped)
    return model


def own_receipts(cluster: Cluster, number: int) -> list[tuple[int, dict[str, Any]]]:
    """Return offset and content of the pipeline's receipts: others may write there as well."""
    told = [(each.offset, json.loads(each.value or b"")) for each in read(cluster, "receipts", number)]
    return [each for each in told if each[1]["pipeline"] == PIPELINE.name]


def _without(told: Iterable[Mapping[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if key not in names} for each in told]


class _Truth:
    """What has to stand in the topics of a partition."""

    def __init__(self) -> None:
        self.judged: list[New] = []
        self.passed: list[New] = []
        self.shown: list[New] = []
        self.quarantined: list[New] = []
        self.told: list[Any] = []
        self.dropped: list[int] = []

    def forget(self, topics: Collection[str]) -> None:
        """Forget what stood in topics that are gone."""
        for name, some in (
            ("sink", [self.judged, self.passed]),
            ("verdicts", [self.shown]),
            ("quarantine", [self.quarantined]),
            ("receipts", [self.told, self.dropped]),
        ):
            for rows in some if name in topics else ():
                cast("list[Any]", rows).clear()


def _truth(
    scenario: Scenario, records: Sequence[Record], stretches: Sequence[Stretch], new_ids: Mapping[int, str]
) -> tuple[_Truth, Model | IdModel]:
    """Return what stretch after stretch has written, and the naive model behind the last one."""
    found, model = _Truth(), scenario.model()
    for stretch, model, some in walked(scenario, records, stretches):
        found.forget(stretch.anew)
        _add(found, scenario, model, some, stretch, new_ids)
    return found, model


def _add(
    found: _Truth,
    scenario: Scenario,
    model: Model | IdModel,
    records: Sequence[Record],
    stretch: Stretch,
    new_ids: Mapping[int, str],
) -> None:
    rules, heard = scenario.rules, _Heard(model)
    for each in records:
        if stretch.small and is_big(each):
            # Whatever else is wrong with it.
            found.quarantined.append(_refused(each, "too_large"))
            continue
        truth = outcomes(heard, rules, PIPELINE, [each], new_ids)  # type: ignore[arg-type] # it judges
        found.judged.append(plain(each))
        found.passed += truth.passed if stretch.records else []
        found.shown += truth.passed if stretch.verdicts else []
        found.quarantined += truth.quarantined
        found.told += truth.told
        if heard.said.verdict in DROPPED:
            found.dropped.append(each.offset)
            if not isinstance(rules, IdRules):
                said = heard.said
                found.told.append((each.offset, said.verdict, said.sequence, said.watermark))


class _Heard:
    """A model, and what it has said last."""

    said: Any = None

    def __init__(self, model: Model | IdModel) -> None:
        self._model = model

    def judge(self, record: Record) -> Any:
        """Judge a record."""
        self.said = self._model.judge(record)
        return self.said


def _refused(record: Record, code: str) -> New:
    """Return a record of quarantine, without its detail."""
    where = f"{PIPELINE.source}:{record.partition}:{record.offset}".encode()
    return plain(record)._replace(
        headers=(*record.headers, ("seqmark.error", code.encode()), ("seqmark.source", where))
    )


def _observed(record: New) -> New:
    """Return a record of quarantine, without its detail, as it is there where it has passed as well."""
    return record._replace(headers=(*record.headers[:-2], OBSERVED, *record.headers[-2:]))


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
    cluster: Cluster,
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
    await restore(
        table,
        MemoryChangelog(cast("MemoryCluster", cluster), changelog, _RESTORER, Wire()),
        60,
        lambda _done, _all: None,
    )
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


def read(cluster: Cluster, topic: str, number: int) -> list[Record]:
    """Return the committed records of a partition."""
    found: list[Record] = []
    data, aborted = cluster.log(topic, number).fetch(cluster.log(topic, number).start, 2**62)
    for piece in batches.DECODER.pieces(Chunk(topic, number, 0, data, aborted)):
        found += records_of(piece.columns, number)
    return found


def records_of(columns: Columns, number: int) -> list[Record]:
    """Return columns of a partition as records."""
    found: list[Record] = []
    for each in batches.rows(columns):
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


def _require_among(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """As `_require_same`, where anything may come again."""
    _require_same(what, list(dict.fromkeys(found)), list(dict.fromkeys(wanted)))
