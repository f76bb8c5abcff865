"""Does a peer do the job that it is measured by?

``python -m benchmarks.peers.check kafka_streams flink`` runs each of its guarantees, sequences, scopes and ids
over a small input with what a record may have (no key, an empty one, several headers, one without value,
nested JSON), and compares sink and source record by record, by another client than the peer's. With
exactly_once it is also killed on its way and started again: that has to hold over a crash, or the state that
the benchmark pays for is none. Prints a line a run; ``RECORDS=20000`` takes fewer. Exits 1 where anything
differs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers import (
    FIELD,
    HEADER,
    ID_FIELDS,
    ID_HEADER,
    SEQMARK,
    Job,
    Scope,
    Sequence,
    find_peer,
)
from processor.broker.embedded import EmbeddedBroker
from processor.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.peers import IdPlace, Peer

PARTITIONS = 4
SOURCES: dict[Scope, str] = {"partition": "check.raw", "key": "check.keys"}
START_MS = 1_760_000_000_000
RESENT = 0.05
RUN_S = 120
"""A killed member of a group is waited for until its session times out, after 45 s by default."""
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], tuple[int, int]]
"""Key, value, headers, kind and milliseconds of the timestamp."""


class WrongError(Exception):
    """A peer has not done what it had to."""


def main(names: list[str]) -> int:
    """Check these peers and return the exit code."""
    records = int(os.environ.get("RECORDS", "200000"))
    wrong = 0
    with EmbeddedBroker(say=_say) as broker:
        sources = {}
        for scope, topic in SOURCES.items():
            _create(broker.bootstrap_servers, topic)
            _produce(broker.bootstrap_servers, topic, range(records), scope)
            sources[scope] = _read(broker.bootstrap_servers, topic)
        for name in names:
            peer = find_peer(name)
            if why := peer.prepare(_say):
                print(f"{name}: cannot run here: {why}")
                wrong += 1
                continue
            for job, killed in _jobs(broker.bootstrap_servers, name, peer):
                judged = f"ids {job.ids}" if job.ids else f"{job.sequence}, {job.scope}"
                what = f"{peer.name}: {job.guarantee}, {judged}{', killed' * killed}"
                with tempfile.TemporaryDirectory(prefix="seqmark-peer-") as folder:
                    try:
                        ready = replace(job, folder=Path(folder))
                        found = _try(peer, ready, sources[job.scope], killed=killed)
                    except (WrongError, BrokerError) as exc:
                        found, wrong = f"WRONG: {exc}", wrong + 1
                print(f"{what}: {found}", flush=True)
    return 1 if wrong else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _jobs(bootstrap_servers: str, name: str, peer: Peer) -> Iterator[tuple[Job, bool]]:
    for guarantee, sequence, scope, killed in itertools.product(
        peer.guarantees, get_args(Sequence), get_args(Scope), (False, True)
    ):
        if killed and (guarantee == "at_least_once" or sequence == "json"):
            continue  # the one promises too little to be compared, the other changes nothing about a crash
        run = f"{name}-{uuid.uuid4().hex[:8]}"
        source = SOURCES[scope]
        job = Job(bootstrap_servers, source, run, run, PARTITIONS, guarantee, sequence, scope, Path())
        if peer.supports(job):
            yield job, killed
    # To a system a text in a header is bytes like any others.
    for ids, killed in itertools.product(("binary", "json"), (False, True)):
        guarantee = peer.guarantees[0]
        run = f"{name}-{uuid.uuid4().hex[:8]}"
        job = Job(
            bootstrap_servers, SOURCES["partition"], run, run, PARTITIONS, guarantee, "header", "partition",
            Path(), cast("IdPlace", ids), 100_000,
        )  # fmt: skip
        if peer.supports(job) and not (killed and guarantee == "at_least_once"):
            yield job, killed


def _create(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    # The records are older than a broker keeps them by default.
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    for created in admin.create_topics([new]).values():
        created.result(30)


def _produce(bootstrap_servers: str, topic: str, wanted: range, scope: Scope) -> None:
    """Write these records of a source; in scope key each key of a partition counts for itself."""
    rng = random.Random(7)  # noqa: S311 - a repeatable input, not a secret
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # a batch that is sent again does not overtake
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    tops: dict[tuple[int, int], int] = {}
    for number in range(wanted.stop):
        partition = number % PARTITIONS
        user = rng.randrange(5_000) if scope == "key" else 0
        top = tops.get((partition, user), -1 - 5 * user)
        resent = top > -1 - 5 * user and rng.random() < RESENT
        sequence = top - rng.randrange(4) if resent else top + 1 + rng.randrange(3)
        tops[partition, user] = max(top, sequence)
        if number not in wanted:
            continue
        # Of sequences that were left out some come later, lower than what was there: new ids all the same.
        identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{partition}/{user}/{sequence}")
        fields = {
            "before": {FIELD: -1, ID_FIELDS[0]: "no"},
            FIELD: sequence,
            "text": f"ä{number % 997}",
            "list": [1, {FIELD: 0}],
            ID_FIELDS[0]: identity.hex[:8],
            ID_FIELDS[1]: identity.int % 1_000_000,
        }
        key = b"" if user == 1 else b"user-%d" % user
        producer.produce(
            topic,
            key=None if scope == "partition" and number % 11 == 0 else key,
            value=json.dumps(fields, ensure_ascii=False).encode(),
            headers=[
                ("other", b"x" * (number % 5)),
                (HEADER, struct.pack(">q", sequence)),
                (ID_HEADER, identity.bytes),
                ("none", None),
            ],
            partition=partition,
            timestamp=START_MS + number,
        )
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def _read(bootstrap_servers: str, topic: str) -> list[list[Record]]:
    """Return the records of each partition, read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error():  # the end of a partition
                ended.add(message.partition())
                continue
            headers = tuple(message.headers() or ())
            record = (message.key(), message.value(), headers, message.timestamp())
            found[message.partition()].append(record)
    consumer.close()
    return found


def _passing(source: list[Record], job: Job) -> list[Record]:
    if job.ids is not None:
        first: dict[object, Record] = {}
        for record in source:
            fields = json.loads(record[1] or b"")
            of_value = tuple(fields[name] for name in ID_FIELDS)
            first.setdefault(of_value if job.ids == "json" else dict(record[2])[ID_HEADER], record)
        return list(first.values())
    lasts: dict[bytes | None, int] = {}
    passing = []
    for record in source:
        key, value, headers, _ = record
        number = json.loads(value or b"")[FIELD]
        if job.sequence == "header":
            number = struct.unpack(">q", dict(headers)[HEADER] or b"")[0]
        scope = key if job.scope == "key" else None
        if scope not in lasts or number > lasts[scope]:
            lasts[scope] = number
            passing.append(record)
    return passing


def _try(peer: Peer, job: Job, sources: list[list[Record]], *, killed: bool) -> str:
    """Run one job, twice where it is killed on its way, and say how it went.

    Raises:
        WrongError: The sink is not what it has to be, or the peer did not come to the end or not end in order.
    """
    _create(job.bootstrap_servers, job.sink)
    total, reached = sum(len(source) for source in sources), 0
    if killed:
        # The other half comes afterwards: so there is always work left, and duplicates of what came before.
        job = replace(job, source=f"{job.sink}.raw")
        _create(job.bootstrap_servers, job.source)
        _produce(job.bootstrap_servers, job.source, range(total // 2), job.scope)
        reached = _run(peer, job, until=total // 4, kill=True)
        _produce(job.bootstrap_servers, job.source, range(total // 2, total), job.scope)
        sources = _read(job.bootstrap_servers, job.source)
    _run(peer, job, until=total, kill=False)
    repeats = 0
    sinks = _read(job.bootstrap_servers, job.sink)
    for partition, (source, sink) in enumerate(zip(sources, sinks, strict=True)):
        wanted = _passing(source, job)
        found = sink if job.guarantee == "exactly_once" else list(dict.fromkeys(sink))
        repeats += len(sink) - len(found)
        if not peer.keeps_timestamps:
            # Nor does it keep their order.
            found, wanted = _untimed(found), _untimed(wanted)
        if found != wanted:
            pairs = zip(found, wanted, strict=False)
            same = next((at for at, (one, other) in enumerate(pairs) if one != other), "the end")
            what = f"partition {partition}: {len(found):,} records of {len(wanted):,}"
            raise WrongError(f"{what}, as they must be up to {same}")
    return f"as it must be, {repeats:,} more than once" + f", killed at {reached:,} of {total:,}" * killed


def _untimed(records: list[Record]) -> list[Record]:
    return sorted(((*record[:3], (0, 0)) for record in records), key=repr)


def _run(peer: Peer, job: Job, *, until: int, kill: bool) -> int:
    """Run the peer until this many records are committed, end it, and return how many were then."""
    log = job.folder / "log"
    watch = Consumer({"bootstrap.servers": job.bootstrap_servers, "group.id": job.group})
    places = [TopicPartition(job.source, partition) for partition in range(job.partitions)]
    environment = {**os.environ, **peer.environment(job)}
    with (
        contextlib.closing(watch),
        log.open("a") as output,
        subprocess.Popen(peer.command(job), env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            done = _await(process, watch, places, until, log)
            process.kill() if kill else process.terminate()
            code = process.wait(60)
        finally:
            process.kill()
    if code and not kill:
        raise WrongError(f"SIGTERM ended it with {code}: {_tail(log)}")
    return done


def _await(
    process: subprocess.Popen[bytes], watch: Consumer, places: list[TopicPartition], until: int, log: Path
) -> int:
    deadline = time.monotonic() + RUN_S
    while True:
        committed: list[Any] = watch.committed(places, timeout=30)
        done: int = sum(max(0, place.offset) for place in committed)
        if done >= until:
            return done
        if process.poll() is not None:
            raise WrongError(f"ended by itself with {process.returncode} at {done:,}: {_tail(log)}")
        if time.monotonic() > deadline:
            raise WrongError(f"has committed {done:,} of {until:,} after {RUN_S} s: {_tail(log)}")
        time.sleep(0.05)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:] or "(nothing said)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [SEQMARK, "kafka_streams", "flink"]))
