"""What others do to the topics of a pipeline, and what `seqmark explain` has to say all the same.

Each is done to copies of logs, which are put back: what comes after it is not about it.
"""

from __future__ import annotations

import contextlib
import json
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from processor.inspection.explain.story import Outcome
from processor.wire.encode import plain_batch
from processor.wire.receipt_values import RecordRef
from schemas.verdicts.record import VerdictRecord
from tests.simulation.brokers.explain.asked import require, told
from tests.simulation.brokers.explain.fates import Known
from tests.simulation.truth.oracle import own_receipts, read
from tests.support.judges.fingerprints import FingerprintRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.brokers.episode import WorkerEpisode
    from tests.simulation.brokers.kafka.cluster import Brokers
    from tests.support.kafka.topics import Record

STRANGER = "q"
"""Another pipeline over the same source, which writes its receipts to the same topic."""
DROPPED = {"duplicate", "late"}


async def meddled(episode: WorkerEpisode) -> None:
    """Have somebody else write to an output, or take something away, and ask."""
    (pipeline,) = episode.now.pipelines
    other = _contradicted if pipeline.writes_records else _misjudged
    does = episode.dice.choice((_copied, _expired, other, other))
    if episode.loose or any(log.open for log in episode.brokers.logs.values()):
        return
    with _put_back(episode.brokers):
        await does(episode, episode.dice.randrange(len(episode.scenario.records)))


def strange(episode: WorkerEpisode) -> None:
    """Have another pipeline write receipts of the same source to the same topic."""
    brokers, dice = episode.brokers, episode.dice
    episode.shared = True
    for number, records in enumerate(episode.scenario.records):
        for record in records[:: dice.choice((1, 3, 10))]:
            place = {"topic": "source", "partition": number, "offset": record.offset}
            said = {"pipeline": STRANGER, **place, "timestamp": record.timestamp, "verdict": "duplicate"}
            said |= {"mode": "insert-id", "id": ["z"], "owner": {**place, "offset": 0}, "expires_at": 1}
            _append(brokers, "receipts", record, json.dumps(said, separators=(",", ":")).encode())


async def _copied(episode: WorkerEpisode, number: int) -> None:
    """Somebody copies receipts behind each other: where the worker wrote is what counts."""
    known = Known.of(episode, number)
    dropped = [at for at, each in known.fates.items() if each[-1].truth.receipt and known.is_judged(at)]
    rows = {said["offset"]: at for at, said in own_receipts(episode.brokers, number)}
    entries = {each.offset: each for each in read(episode.brokers, "receipts", number)}
    for at in sorted(dropped, reverse=episode.dice.random() < 0.5):
        _append(episode.brokers, "receipts", entries[rows[at]], entries[rows[at]].value)
    await require(episode, known, "receipts are copied")


async def _expired(episode: WorkerEpisode, number: int) -> None:
    """Retention takes away where the source begins."""
    log = episode.brokers.log("source", number)
    log.delete_before(episode.dice.randint(0, log.end))
    await require(episode, Known.of(episode, number), "the source has expired")


async def _contradicted(episode: WorkerEpisode, number: int) -> None:
    """Somebody puts a copy of a record that was dropped into quarantine: it is in two places."""
    known, rules = Known.of(episode, number), episode.scenario.rules
    dropped = [
        at for at, each in known.fates.items() if each[-1].truth.receipt is not None and known.is_judged(at)
    ]
    # Where it would not be in the source's order, it is not what the worker wrote, and does not count.
    aside = [at for at, each in known.fates.items() if any("quarantine" in fate.written for fate in each)]
    dropped = [at for at in dropped if at > max(aside, default=-1)]
    dropped = [at for at in dropped if known.fates[at][-1].truth.verdict in DROPPED]
    if (
        known.switched
        or not dropped
        or "quarantine" not in episode.brokers.topics
        or isinstance(rules, FingerprintRules)
    ):
        return
    record = known.records[episode.dice.choice(dropped)]
    where = f"source:{number}:{record.offset}".encode()
    headers = (("seqmark.error", b"too_large"), ("seqmark.detail", b""), ("seqmark.source", where))
    forged = record._replace(headers=(*record.headers, *headers))
    _append(episode.brokers, "quarantine", forged, record.value)
    await _require_contradiction(episode, number, record.offset, "a copy of what was dropped is in quarantine")


async def _misjudged(episode: WorkerEpisode, number: int) -> None:
    """Somebody changes what a verdict record says of a record."""
    known, brokers = Known.of(episode, number), episode.brokers
    judged = [at for at in known.fates if known.is_judged(at) and known.fates[at][-1].stretch.verdicts]
    if known.pipeline.writes_records or known.switched or not judged:
        return
    offset = episode.dice.choice(judged)
    truth = known.fates[offset][-1].truth
    if truth.verdict not in {"pass", *DROPPED} or "receipt" in known.fates[offset][-1].gone:
        return
    (at, verdict) = [each for each in known.verdicts if each[1].base <= offset < each[1].end][-1]
    skipped = set(verdict.skipped.tolist()) ^ {offset}
    changed = replace(verdict, skipped=np.array(sorted(skipped), np.int64))
    assert VerdictRecord.decode(changed.encode()).skipped.tolist() == sorted(skipped)
    log = brokers.log("verdicts", number)
    rows, ends = read(brokers, "verdicts", number), [end for end, _ in log._batches]
    for row in rows:
        if row.offset == at:
            batch = plain_batch([(row.key, changed.encode(), row.timestamp, ())])
            raw = batch.build(-1, -1, -1, transactional=False)
            (place,) = (n for n, end in enumerate(ends) if end == at + 1)
            log._batches[place] = at + 1, at.to_bytes(8, "big") + raw[8:]
    await _require_contradiction(episode, number, offset, "a verdict record says otherwise")


async def _require_contradiction(episode: WorkerEpisode, number: int, offset: int, what: str) -> None:
    (story,) = await told(episode, [RecordRef("source", number, offset)])
    found = story.outcome, story.exit_code, bool(story.problems)
    assert found == (Outcome.CONTRADICTION, 3, True), f"{what}, and nothing is said of it: {story.sentence}"


def _append(brokers: Brokers, topic: str, record: Record, value: bytes | None) -> None:
    headers = tuple(record.headers) if topic == "quarantine" else ()
    batch = plain_batch([(record.key, value, record.timestamp, headers)])
    brokers.log(topic, record.partition).append(batch.build(-1, -1, -1, transactional=False))


@contextlib.contextmanager
def _put_back(brokers: Brokers) -> Iterator[None]:
    before = dict(brokers.logs)
    for tp, log in before.items():
        brokers.logs[tp] = copy(log)
        brokers.logs[tp]._batches = list(log._batches)
    try:
        yield
    finally:
        brokers.logs.clear()
        brokers.logs.update(before)
