"""Who is measured, and what is the same for all of them?

A `Job` says what is to be done, a `Peer` how one system does it as a process of its own. The harness makes the
topics, starts the process, watches it from outside and ends it by SIGTERM; it knows nothing else of a system.

The job: read ``source`` with the consumer group ``group`` from its beginning; keep the last sequence of each
source partition (or of each key in a source partition) in state that survives a crash; drop each record whose
sequence is not greater; write the others to ``sink`` as they came (key, value, headers, timestamp), in the
partition of the same number, in order. Of a job with ids the state is each id of the last seven days of each
source partition, and a record whose id is among them is dropped. Progress is what the group has **committed**
on the source, so a system that commits by itself in some other place also has to commit there. With
``exactly_once`` the sink is read with read_committed; with ``at_least_once`` it may hold records twice but must
lose none.

Each system has a module here with a ``PEER``; systems are imported by name, when they are asked for, so that a
system whose parts are missing stands in nobody's way. This module needs the standard library only: programs of
peers run in environments of their own and read their `Job` by it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Guarantee = Literal["exactly_once", "at_least_once"]
Sequence = Literal["header", "json"]
Scope = Literal["partition", "key"]
IdPlace = Literal["text", "binary", "json"]
"""Header `ID_HEADER` with a UUID of 36 characters or of 16 bytes; or the fields `ID_FIELDS` of the value."""

HEADER = "seq"
"""The header with the sequence: 8 bytes, big-endian, signed."""
FIELD = "seq"
"""The top-level field of the JSON value with the sequence, an integer. Values have it in every case."""
ID_HEADER = "id"
ID_FIELDS = ("event_id", "user_id")
"""A string and a number; both together are the id."""
WINDOW_DAYS = 7
"""How long an id is remembered."""
COMMIT_MS = 100
"""How often a system commits where that can be set: the default of Kafka Streams (exactly once) and Seqmark."""

SEQMARK = "seqmark"
RECEIPTS = "seqmark_receipts"
"""Seqmark, which besides writes a receipt for each dropped record."""
BLOOM = ("seqmark_bloom", "seqmark_bloom_confirm")
"""Seqmark with Bloom filters, for ids only: without and with a look at the ids themselves at each hit."""
PEERS = ("kafka_streams", "flink", "quix", "confluent", "faust")
"""Modules here; `SEQMARK` and `RECEIPTS` are not optional, and `BLOOM` belongs to Seqmark."""

ID_PEERS = ("kafka_streams", "flink", "quix", "spark")
"""Those that keep ids; each has a module here too."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one system.

    Attributes:
        bootstrap_servers: Of the broker.
        source: Its topic; exists, is full, has no transactions in it.
        sink: Topic to write; exists, is empty, has as many partitions as the source. Used by no other run.
        group: Consumer group, and prefix of whatever else needs a name; used by no other run.
        partitions: Of source and sink.
        guarantee: What the system has to promise.
        sequence: Where the sequence is: the header `HEADER` or the field `FIELD` of the value.
        scope: What has a sequence of its own: the source partition, or each key in it.
        folder: Exists and is empty; state, logs and checkpoints go there.
        ids: Where the id is, in place of a sequence: what counts then is whether it came in the source
            partition within the last `WINDOW_DAYS`. `sequence` and `scope` say nothing then.
        expected: Ids of a day and a partition, for systems that reserve room.
    """

    bootstrap_servers: str
    source: str
    sink: str
    group: str
    partitions: int
    guarantee: Guarantee
    sequence: Sequence
    scope: Scope
    folder: Path
    ids: IdPlace | None = None
    expected: int = 0

    def to_json(self) -> str:
        """Return it as one line, for a program's command line."""
        return json.dumps({**asdict(self), "folder": str(self.folder)})

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` has written."""
        fields = json.loads(text)
        return cls(**{**fields, "folder": Path(fields["folder"])})


class Peer(Protocol):
    """One system that does a `Job`. Its process runs until SIGTERM; it may have children."""

    @property
    def name(self) -> str:
        """As people write it, with its version: ``Kafka Streams 4.3.0``."""

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Those that it can give, the best first."""

    @property
    def record_limit(self) -> int | None:
        """Records that it is given at most; None where it keeps up with all."""

    @property
    def keeps_timestamps(self) -> bool:
        """Whether what it writes has the timestamps that it had."""

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Get once what it needs: jars, classes, an environment; kept under `processor.paths.cache_dir`.

        Called once a benchmark, before anything is measured.

        Args:
            say: Told of what takes long, for a person to read.

        Returns:
            Why it cannot run here, or None.
        """

    def supports(self, job: Job) -> bool:
        """Tell whether it can do this job (all can do the standard case in each of their guarantees)."""

    def command(self, job: Job) -> list[str]:
        """Return the command line that does the job; the harness takes stdout and stderr into one log."""

    def environment(self, job: Job) -> dict[str, str]:
        """Return what the process needs in its environment besides what the harness has."""

    def settings(self, job: Job) -> Mapping[str, str]:
        """Return what was set other than by default, as the results show it: key by key."""


def find_peer(name: str) -> Peer:
    """Return the system with this module name.

    Raises:
        ValueError: It is none of `SEQMARK`, `RECEIPTS`, `BLOOM`, `PEERS` and `ID_PEERS`; says which there are.
    """
    if name not in (SEQMARK, RECEIPTS, *BLOOM, *PEERS, *ID_PEERS):
        raise ValueError(f"no system is called {name!r}; there are {', '.join(PEERS)}")
    return cast("Peer", import_module(f"{__name__}.{name}").PEER)
