"""Says what is measured (a `Job`), and what each system has in common (a `Peer`).

A `Job` says what is to be done, a `Peer` how one system does it as a process of its own. The harness makes the
topics, starts the process, watches it from outside and ends it by SIGTERM; it knows nothing else of a system.

The job: read ``source`` with the consumer group ``group`` from its beginning; keep the last sequence of each
source partition (or of each key in a source partition) in state that survives a crash; drop each record whose
sequence is not greater; write the others to ``sink`` as they came (key, value, headers, timestamp), in the
partition of the same number, in order. Of a job with ids the state is each id of the last seven days of each
source partition, and a record whose id is among them is dropped. Progress is what the group has **committed**
on the source, so a system that commits in some other place also has to commit there. With ``exactly_once`` the
sink is read with read_committed; with ``at_least_once`` it may hold records twice but must lose none.

Each system has a module here with a ``PEER``, imported when it is asked for, so that a system whose parts are
missing stands in nobody's way. This module needs the standard library only: programs of peers run in
environments of their own and read their `Job` by it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Guarantee = Literal["exactly_once", "at_least_once"]
Sequence = Literal["header", "json"]
Scope = Literal["partition", "key"]
IdPlace = Literal["text", "binary", "json", "fingerprint", "content", "bytes"]
"""Header `ID_HEADER` with a UUID of 36 characters or of 16 bytes; or the fields `ID_FIELDS` of the value.

With ``fingerprint`` the 16 bytes, and a record is dropped only if one whose JSON value has the same content has
passed with its id; with ``content`` the content of the JSON value is the id, with ``bytes`` all its bytes.
"""

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
CHECKPOINTS = "checkpoints"
"""Folder of a job for what a state is restored from where that is no topic."""

SEQMARK = "seqmark"
RECEIPTS = "seqmark_receipts"
"""Seqmark that also writes a receipt for each dropped record."""
VERDICTS = "seqmark_verdicts"
"""Seqmark that says which offsets to skip, in place of writing the others again."""
BLOOM = "seqmark_bloom"
"""Seqmark with Bloom filters, for ids only."""
SHIPPED = "seqmark_shipped"
"""Seqmark with the kernels of a wheel in place of those compiled for exactly this machine."""
OWN = (SEQMARK, RECEIPTS, VERDICTS, BLOOM, SHIPPED)
"""All of them; they are never ahead of themselves."""
PEERS = ("kafka_streams", "flink", "quix", "confluent", "faust")
"""Modules here, which are optional, unlike `SEQMARK` and its variants."""
ID_PEERS = ("kafka_streams", "flink", "quix", "spark")
"""Those that keep ids; each has a module here too."""

ROOT = Path(__file__).parents[2]
BOTH: tuple[Guarantee, ...] = ("exactly_once", "at_least_once")


class FailedError(Exception):
    """A system did not do the job; the message quotes its log."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one system.

    Attributes:
        source: Its topic; exists, is full, has no transactions in it.
        sink: Topic to write; exists, is empty, has as many partitions as the source. Used by no other run.
        group: Consumer group, and prefix of whatever else needs a name; used by no other run.
        folder: Exists and is empty; state, logs and checkpoints go there.
        sequence: Where the sequence is: the header `HEADER` or the field `FIELD` of the value.
        scope: What has a sequence of its own: the source partition, or each key in it.
        ids: Where the id is, in place of a sequence; `sequence` and `scope` say nothing then.
        expected: Ids per day and partition, for systems that reserve room.
    """

    bootstrap_servers: str
    source: str
    sink: str
    group: str
    partitions: int
    guarantee: Guarantee
    folder: Path
    sequence: Sequence = "header"
    scope: Scope = "partition"
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


class Peer:
    """One system that does a `Job`, by a program in Python unless it says otherwise.

    Its process runs until SIGTERM; it may have children.

    Attributes:
        name: As people write it, with its version: ``Kafka Streams 4.3.0``.
        program: Module under `benchmarks.peers.programs`; takes the job as its argument.
        guarantees: Those that it can give, the best first.
        record_limit: Records that it is given at most; None where it keeps up with all.
        keeps_timestamps: Whether what it writes has the timestamps that it had.
    """

    name: str
    program: str = ""
    guarantees: tuple[Guarantee, ...] = BOTH
    record_limit: int | None = None
    keeps_timestamps: bool = True

    def prepare(self, say: Callable[[str], None]) -> str | None:  # noqa: ARG002 - most need nothing
        """Get once what it needs: jars, classes, an environment; kept under `processor.paths.cache_dir`.

        Called once per benchmark, before anything is measured; ``say`` is told of what takes long.

        Returns:
            Why it cannot run here, or None.
        """
        return None

    def supports(self, job: Job) -> bool:
        """Tell whether it can do this job: without more, those in its guarantees that have no ids."""
        return job.ids is None and job.guarantee in self.guarantees

    def command(self, job: Job) -> list[str]:
        """Return the command line that does the job; the harness takes stdout and stderr into one log."""
        return [self.python(), "-m", f"benchmarks.peers.programs.{self.program}", job.to_json()]

    def python(self) -> str:
        """Return the interpreter of its program."""
        return sys.executable

    def environment(self, job: Job) -> dict[str, str]:  # noqa: ARG002 - one of them takes its job by it
        """Return what the process needs in its environment: this checkout."""
        return {"PYTHONPATH": str(ROOT)}

    def settle(self, job: Job) -> None:
        """Write what the sink still lacks, once all is measured, before it is checked: nothing here."""

    def settings(self, job: Job) -> Mapping[str, str]:
        """Return what was set other than by default, as the results show it: key by key."""
        raise NotImplementedError


def find_peer(name: str) -> Peer:
    """Return the system with this name.

    Raises:
        ValueError: There is none; says which there are.
    """
    if name in OWN:
        peer: Peer = import_module(f"{__name__}.{SEQMARK}").PEERS[name]
    elif name in (*PEERS, *ID_PEERS):
        peer = import_module(f"{__name__}.{name}").PEER
    else:
        raise ValueError(f"no system is called {name!r}; there are {', '.join(PEERS)}")
    return peer
