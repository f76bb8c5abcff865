"""What an episode is about: a pipeline, what stands in its source, and the naive model that judges it."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from processor.kafka.topics.plan import TopicView, plan
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.hops import hops
from schemas.config import Settings
from tests.simulation.clockwork import BEGIN_S
from tests.simulation.truth.walk import BIG_BYTES
from tests.support.explain.truth import CarryingModel
from tests.support.judges.fingerprints import FingerprintModel, FingerprintRules
from tests.support.judges.id_rules import BucketIdModel, IdModel, IdRules
from tests.support.judges.rules import Model, Rules
from tests.support.kafka.topics import Record
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from processor.pipeline.hop_kinds import HopKind
    from tests.simulation.truth.oracle import Cluster

BEGIN_MS = int(BEGIN_S * 1000)
HOUR_MS = 3_600_000
LONG = random.Random(0).randbytes(70_000)
LENGTHS = 65_536, 65_537, 70_000
"""Of long scopes: the longest that there is, and such that are none."""
SMALL_SINK_BYTES = 2_500
"""What a sink takes that takes little: less than a record with `BIG_BYTES` of noise, more than any other."""
APPLICATION = "sim-a"
PLACES = (
    {"from": "header", "name": "seq", "format": "text"},
    {"from": "header", "name": "seq", "format": "int64"},
    {"from": "value", "pointer": "/seq"},
)
SCOPES = ("partition", "key", "header:scope")
ID_PLACES: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"from": "header", "name": "id"},),
    ({"from": "key"},),
    ({"from": "value", "pointer": "/id"},),
)


@dataclass(frozen=True)
class Scenario:
    """One pipeline over some records.

    Attributes:
        settings: A worker's, with this pipeline.
        kind: Its only hop.
        rules: What it judges by, for the naive model.
        records: By source partition, as they stand there.
        small: Whether the sink takes little to begin with.
    """

    settings: Settings
    kind: HopKind
    rules: Rules | IdRules
    records: Sequence[list[Record]]
    make: Callable[[int], batches.Record]
    small: bool = False

    def fill(self, dice: random.Random, cluster: Cluster, number: int) -> None:
        """Have more come into a source partition."""
        found = self.records[number]
        found += filled(dice, cluster, number, lambda at: self.make(len(found) + at))

    def fill_other(self, dice: random.Random, cluster: Cluster, number: int) -> None:
        """Have records come into a partition of another topic of the source's name: nobody may judge them."""
        filled(dice, cluster, number, lambda at: self.make(len(self.records[number]) + at))

    @staticmethod
    def now_ms() -> int:
        """Return a time behind all records: no clock is held back."""
        return BEGIN_MS

    def model(self) -> Model | IdModel:
        """Return the naive model of one partition."""
        if not isinstance(self.rules, IdRules):
            return CarryingModel(self.rules)
        if isinstance(self.rules, FingerprintRules):
            return FingerprintModel(self.rules, self.now_ms)
        return IdModel(self.rules, self.now_ms) if self.rules.exact else BucketIdModel(self.rules)


def drawn(dice: random.Random, cluster: Cluster, *, small_sinks: bool = False) -> Scenario:
    """Draw a pipeline, and fill its source."""
    new = dice.choice((_scoped, _identified, _told_apart))
    rules, make = new(dice)
    quarantine = isinstance(rules, FingerprintRules) or dice.random() < 0.9
    keys: dict[str, Any] = {"quarantine": "quarantine"} if quarantine else {}
    edits = isinstance(rules, FingerprintRules) and rules.on_collision in {"tag", "rename"}
    if not edits and dice.random() < 0.3:
        keys |= {"output": dice.choice(("verdicts", "both")), "verdicts": "verdicts"}
    elif quarantine and dice.random() < 0.2:
        keys["observe"] = True
    settings = _settings(rules, keys)
    partitions = dice.choice((1, 1, 2, 3)) if quarantine else 1
    small = (
        small_sinks and quarantine and "output" not in keys and "observe" not in keys and dice.random() < 0.2
    )
    made = _with_big(dice, make) if small else partial(make, dice)
    records: list[list[Record]] = [[] for _ in range(partitions)]
    scenario = Scenario(settings, _kind(settings, 3), rules, records, made, small)
    for number in range(partitions):
        scenario.fill(dice, cluster, number)
    return scenario


def _with_big(
    dice: random.Random, make: Callable[[random.Random, int], batches.Record]
) -> Callable[[int], batches.Record]:
    """Return what makes records, of which some are too large for a sink that takes little."""

    def made(number: int) -> batches.Record:
        record = make(dice, number)
        if dice.random() >= 0.1:
            return record
        noise = (b"noise", dice.randbytes(BIG_BYTES))
        return record._replace(headers=(*record.headers, noise))

    return made


def _settings(rules: Rules | IdRules, keys: Mapping[str, Any]) -> Settings:
    dedup = rules.dedup if isinstance(rules, IdRules) else {"mode": "watermark", "sequence": rules.sequence}
    names = {"name": "p", "source": "source", "sink": "sink", "duplicates": "receipts"}
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "nowhere:9092"},
            "worker": {"application_id": APPLICATION, "escape_gauge": False},
            "pipelines": [{**names, **keys, "dedup": {**rules.dedup, **dedup}}],
        }
    )


def _kind(settings: Settings, partitions: int) -> HopKind:
    source = TopicView(partitions, 1, {"max.message.bytes": "1048588"})
    topics = {topic.topic: topic for topic in plan(settings, {"source": source}).topics}
    (hop,) = hops(settings)
    return kind_of(settings, hop, topics)


# ---------------------------------------------------------------- records


def _scoped(dice: random.Random) -> tuple[Rules, Callable[[random.Random, int], batches.Record]]:
    epoch = None if dice.random() < 0.6 else {"from": "header", "name": "epoch", "format": "int32"}
    window = dice.choice((0, 0, 3, 64, 100))
    rules = Rules(dice.choice(SCOPES), dice.choice(PLACES), epoch, window)
    scopes, long = dice.choice((1, 3, 40)), dice.choice((0.0, 0.0, 0.02))
    tops: dict[bytes, int] = {}

    def make(dice: random.Random, number: int) -> batches.Record:
        name = b"%d" % dice.randrange(scopes)
        if dice.random() < long:
            name = LONG[: dice.choice(LENGTHS)]
        top = tops.setdefault(name, 0)
        back = dice.random() < 0.4
        sequence = max(0, top - dice.randrange(20)) if back else top + dice.choice((1, 1, 1, 2, 50))
        tops[name] = max(top, sequence)
        term = number // 25 - (dice.random() < 0.1)
        text = rules.sequence.get("format") == "text"
        headers: dict[str, bytes | None] = {
            "seq": b"%d" % sequence if text else struct.pack(">q", sequence),
            "scope": name,
            "epoch": struct.pack(">i", term),
        }
        value: Any = {"seq": sequence, "n": number}
        if dice.random() < 0.04:
            for _ in range(dice.choice((1, 2, 3))):
                headers[dice.choice(list(headers))] = dice.choice((None, b"x"))
            value = None
        return _record(dice, number, name, headers, value)

    return rules, make


def _identified(dice: random.Random) -> tuple[IdRules, Callable[[random.Random, int], batches.Record]]:
    window, bucket = dice.choice((("3s", "1s"), ("3s", "3s"), ("20s", "7s"), ("1h", "1h")))
    bloom: dict[str, Any] | None = dice.choice(
        (None, {"bucket": bucket, "false_positive_rate": 1e-9, "expected_per_bucket": 64})
    )
    rules = IdRules(
        dice.choice(ID_PLACES),
        window,
        refresh=dice.random() < 0.3,
        on_missing=dice.choice(("quarantine", "pass")),
        bloom=bloom,
    )
    return rules, _some_ids(dice.choice((5, 60)))


def _told_apart(dice: random.Random) -> tuple[IdRules, Callable[[random.Random, int], batches.Record]]:
    plain, make = _identified(dice)
    while not plain.exact:
        plain, make = _identified(dice)
    place = plain.id[0]
    to = {"header": "header:id", "value": "/id"}.get(place["from"])
    actions = ("pass", "drop", "quarantine", "tag", *(("rename",) if to else ()))
    action = dice.choice(actions)
    rename = {"to": to, "keep": dice.choice(("header", "/was"))} if action == "rename" and to else None
    prints = {"exclude": ["/n"]}
    return FingerprintRules(**vars(plain), fingerprint=prints, on_collision=action, rename=rename), make


def _some_ids(ids: int) -> Callable[[random.Random, int], batches.Record]:
    """Return what makes records, of which many have one of so many ids, and one of a few contents."""

    def make(dice: random.Random, number: int) -> batches.Record:
        name = b"%d" % dice.randrange(ids) if dice.random() < 0.6 else b"new %d" % number
        headers: dict[str, bytes | None] = {"id": name}
        value: Any = {"id": name.decode(), "kind": dice.choice((0, 0, 0, 1, 2)), "n": number}
        if dice.random() < 0.04:
            headers = {"id": None} if dice.random() < 0.5 else {}
            value = dice.choice((None, {}, {"id": 3}))
        return _record(dice, number, name if dice.random() < 0.97 else None, headers, value)

    return make


def _record(
    dice: random.Random, number: int, key: bytes | None, headers: dict[str, bytes | None], value: Any
) -> batches.Record:
    at_ms = BEGIN_MS - HOUR_MS + 300 * number - dice.choice((0, 0, 10, 4_000))
    content = None if value is None else json.dumps(value).encode()
    named = tuple((name.encode(), each) for name, each in headers.items())
    return batches.Record(0, at_ms, key, content, named)


# ---------------------------------------------------------------- batches


def filled(
    dice: random.Random, cluster: Cluster, number: int, make: Callable[[int], batches.Record]
) -> list[Record]:
    """Fill a source partition: with batches of each codec, gaps, and transactions, some of them aborted."""
    log, made, found = cluster.log("source", number), 0, list[Record]()
    for producer in range(dice.randrange(3, 16)):
        some = [make(made + place) for place in range(dice.choice((1, 2, 5, 20)))]
        made += len(some)
        fate = dice.choice(("plain", "plain", "gap", "commit", "abort"))
        placed = [each._replace(offset=2 * at if fate == "gap" else at) for at, each in enumerate(some)]
        transactional = fate in {"commit", "abort"}
        raw = batches.by_hand(
            placed,
            dice.choice(batches.CODECS),
            attributes=batches.TRANSACTIONAL if transactional else 0,
            producer_id=1_000 + producer if transactional else -1,
        )
        base = log.append(raw)
        if transactional:
            end = log.append(batches.marker(0, 1_000 + producer, commit=fate == "commit"))
            if fate == "abort":
                log.aborted.append((1_000 + producer, base, end))
                continue
        for each in placed:
            headers = tuple((name.decode(), value) for name, value in each.headers)
            place = number, base + each.offset, each.key, each.value
            found.append(Record(*place, headers, each.timestamp, create_time=True))
    return found
