"""Lists the cases, who takes part in each, and what has to come out.

Targets are for Seqmark with exactly once: records per CPU second of its whole process tree in the second half
of the run. The cases with ids are those of ``make bench ARGS=ids``: their window is seven days, over which a
load's timestamps are spread, so that in the end eight daily buckets have a filter. In those named by a number
of ids the state is real: the same process has taken in as many records before the million that is measured,
and a resend repeats any of them, so that no system finds what it needs among what it has just seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.load import DAY_MS, Load
from benchmarks.peers import BLOOM, ID_PEERS, PEERS, RECEIPTS, SEQMARK, SHIPPED, VERDICTS
from processor.wire.codec import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.peers import Guarantee, IdPlace, Scope
    from benchmarks.peers import Sequence as SequencePlace

STANDARD = "standard"
BESIDE = "kafka_streams"
"""The peer that takes part in each case with a target of its own, not in the standard one only."""
MANY = 0.5
"""From this share of duplicates on receipts are measured too."""
QUICK_DIVISOR = 8
"""`QUICK=1` measures an eighth of the records, once, peers in the standard case only: to see that it works."""
CLUSTERED = "duplicates-clustered"
"""The case in which resends come in runs."""
FACTORS = (
    (STANDARD, "kafka_streams", 8.0),
    (STANDARD, "flink", 4.0),
    (CLUSTERED, "kafka_streams", 10.0),
    (CLUSTERED, "flink", 5.0),
)
"""By how much Seqmark is to be ahead in a case, exactly once both, in the same run."""
COST_OF_EXACTNESS = 0.15
"""Exactly once may cost this share of at least once, at 4 partitions."""
LONG = "standard-16m"
"""The standard case four times as long: what is over before a second half can be told from its ends."""
LEAST_VERDICTS = 4_000_000
"""Records per CPU second, with verdicts in place of the sink, in that case; and what that may cost."""
MOST_BROKER_US = 0.15
MOST_WRITTEN_BYTES = 0.15
COLD_S, WARM_S = 10.0, 2.0
"""From a worker's start to its first record, at most: with an empty cache of kernels, and with a warm one."""
READY_S, RESTART_IDS = 2.5, 50_000_000
"""From a worker's start until it is ready, at most, with so many ids and an intact disk."""
SPARK_US, SINK_US, SPARK_FACTOR = 6.0, 4.5, 6.0
"""CPU µs of a record from a raw topic to an aggregate, at most: all of it, and Spark's part, both warm; and how
far that is to be ahead of Spark alone."""
EXECUTOR_FACTOR, EXECUTOR_CORES = 1.7, 4
"""Rate with a second executor, at least; with fewer cores, which driver and broker take too, by CPU."""
LATENCY_OVER_MS = 150
"""p99 from produce to visible at half load: at most the commit interval and this."""

ID_HEADER_CASE = "ids-header"
"""The case that all take part in, the quicker ones in each round: what Seqmark and others are compared by."""
SIZES = ("ids-1m", "ids-10m", "ids-100m")
"""Those that differ in the ids in the window only."""
FINGERPRINTS = "ids-fingerprint"
"""The case in which ids come again with other content."""
ID_FACTORS = (
    (ID_HEADER_CASE, "kafka_streams", 7.0),
    (ID_HEADER_CASE, "flink", 10.0),
    (FINGERPRINTS, "kafka_streams", 6.0),
)
"""By how much Seqmark is to be ahead in a case with ids, by records per CPU second, warm."""
LEAST_IDS = 500_000
"""Where nothing else is said."""
SHARES = {"ids-bytes": (0.85, ID_HEADER_CASE)}
"""Share of another case's rate that is left."""
LEAST_BLOOM = 1_200_000
"""At ten million ids with Bloom filters."""
VERDICTS_FACTOR = 1.4
"""By how much verdicts are to be ahead of records, with ids."""
MEASURED = 1_000_000
SPREAD_MS = int(6.9 * DAY_MS)


@dataclass(frozen=True, slots=True)
class Case:
    """One input and one way to judge it.

    Attributes:
        name: As in ``CASES=`` and in the results; ``title`` is for people.
        sequence: Where the sequence is read.
        scope: What has a sequence of its own.
        least: Target, in records per CPU second; None: none. ``aim`` would be better still.
        share: Target as a share of what the standard case reaches, in place of both; with ids see `SHARES`.
        beside: Whether `BESIDE` runs it too. The standard case has all peers.
        peers: Who takes part beside Seqmark: with ids in each of its rounds, without in the first.
        rounds: With ids: how many rounds there are at most, of Seqmark and of its peers.
        once: In the standard case and with ids: peers in the first round only, whatever `rounds` says.
        blooms: With ids: whether the Bloom filters are measured too.
        verdicts: Whether verdicts are measured too, as they are in the standard case.
        shipped: Whether a wheel's kernels are measured too; where a second half is long enough to tell.
        quick: Whether a quick run has it.
        memory_gib: Memory that must be free; ``disk_gib``: disk.
    """

    name: str
    title: str
    load: Load = field(default_factory=Load)
    sequence: SequencePlace = "header"
    scope: Scope = "partition"
    least: int | None = None
    aim: int | None = None
    share: tuple[float, float] | None = None
    beside: bool = False
    peers: tuple[str, ...] = ()
    rounds: tuple[int, int] = (99, 1)
    once: tuple[str, ...] = ()
    blooms: bool = False
    verdicts: bool = False
    shipped: bool = False
    quick: bool = True
    memory_gib: int = 0
    disk_gib: int = 0


def spread(load: Load) -> Load:
    """Return the load with timestamps over most of the window."""
    return replace(load, step_ms=int(SPREAD_MS // (load.share(0) * (1 - load.duplicates))))


def _ids(millions: float, ids: IdPlace = "binary", collisions: float = 0.0) -> Load:
    """Return a load that leaves so many million ids in the window, random ones of 16 bytes or contents."""
    records = int((millions * 1e6 + MEASURED) / 0.95)
    return spread(Load(records=records, ids=ids, collisions=collisions, far=True, measured=MEASURED))


# fmt: off
CASES = (
    # Those two are so far behind that a second decimal tells nothing, and take two minutes of three rounds.
    Case(STANDARD, "standard", least=1_200_000, aim=2_000_000, once=("quix", "faust")),
    Case(LONG, "16 million records", Load(records=16_000_000), verdicts=True, shipped=True, quick=False),
    Case("batch-16k", "16 KB batches", Load(batch_bytes=16 * 1024), least=600_000, aim=1_000_000, beside=True),
    # With fewer the second half is too short to be measured; each is a batch of its own to the broker too, so
    # that more take many minutes to produce.
    Case("batch-1", "one-record batches", Load(records=2_000_000, batch_bytes=0),
         least=100_000, aim=250_000, beside=True),
    Case("codec-none", "no compression", Load(codec=Codec.NONE)),
    Case("codec-zstd", "zstd", Load(codec=Codec.ZSTD)),
    Case("duplicates-0", "0 % duplicates", Load(duplicates=0.0), least=2_000_000, aim=3_500_000, beside=True),
    Case("duplicates-50", "50 % duplicates", Load(duplicates=0.5)),
    Case("duplicates-1", "1 % duplicates", Load(duplicates=0.01)),
    # What a producer sends again after it was restarted.
    Case(CLUSTERED, "5 % duplicates, in tails of 200 to 2,000", Load(tails=(200, 2_000)), beside=True,
         peers=("flink",)),
    Case("record-1k", "1 KB records", Load(records=2_000_000, note_bytes=870)),
    Case("json", "JSON-pointer sequence", sequence="json", least=400_000, aim=800_000, beside=True),
    Case("scope-key", "scope key, 1 million keys", Load(keys=1_000_000), scope="key",
         least=600_000, aim=1_000_000, beside=True),
    Case("partitions-16", "16 partitions", Load(partitions=16)),
    Case("partitions-64", "64 partitions", Load(partitions=64), share=(0.6, 0.9), beside=True),
)
ID_CASES = (
    # These three take minutes each, and are so far behind that a second decimal tells nothing.
    Case(ID_HEADER_CASE, "header, UUID of 36 B", spread(Load(ids="text")), least=LEAST_IDS, peers=ID_PEERS,
         rounds=(99, 99), once=("flink", "quix", "spark"), blooms=True),
    Case("ids-binary", "header, 16 random bytes", spread(Load(ids="binary")), least=LEAST_IDS, quick=False),
    Case("ids-json", "JSON, two parts", spread(Load(ids="json")), least=250_000, peers=("kafka_streams",)),
    Case(FINGERPRINTS, "fingerprint, 1 % collisions, 10 million ids before", _ids(10, "fingerprint", 0.01),
         least=450_000, peers=("kafka_streams",), rounds=(2, 1), quick=False),
    Case("ids-content", "content, 10 million ids before", _ids(10, "content"), least=LEAST_IDS,
         rounds=(2, 0), quick=False),
    Case("ids-bytes", "content as bytes", spread(Load(ids="bytes"))),
    Case(SIZES[0], "1 million ids before", _ids(1), least=LEAST_IDS, peers=ID_PEERS, blooms=True),
    # Quix Streams would take a quarter of an hour.
    Case(SIZES[1], "10 million ids before", _ids(10), least=1_100_000, rounds=(2, 1),
         peers=("kafka_streams", "flink", "spark"), blooms=True, verdicts=True, shipped=True, quick=False),
    # The index takes 2.4 GB at most, and the pages of topics are better kept. Source and sink take 6 GB each,
    # local state and changelog 2.4 GB each.
    Case(SIZES[2], "100 million ids before", _ids(100), least=750_000, rounds=(1, 0), quick=False,
         memory_gib=8, disk_gib=24),
    Case("ids-100m-near", "100 million ids before, resent within ten minutes",
         replace(_ids(100), far=False, within_ms=600_000),
         rounds=(1, 0), quick=False, memory_gib=8, disk_gib=24),
)
# fmt: on


class Turn(NamedTuple):
    """One run to be made: which case, by which system with which promise, and in which round, from 0."""

    case: Case
    system: str
    guarantee: Guarantee
    repetition: int


def named(names: str, among: Sequence[str], what: str) -> list[str]:
    """Return the names of a list separated by commas; all where there is none.

    Raises:
        ValueError: One is unknown; says which there are.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(among)
    if unknown := [name for name in wanted if name not in among]:
        raise ValueError(f"no {what} is called {', '.join(unknown)}; there are {', '.join(among)}")
    return wanted


def choose(names: str, *, quick: bool = False, among: tuple[Case, ...] = CASES) -> list[Case]:
    """Return the cases with these names; a quick run leaves out those that it does not have.

    Raises:
        ValueError: There is no such case; says which there are.
    """
    by_name = {case.name: case for case in among}
    cases = [by_name[name] for name in named(names, list(by_name), "case")]
    if not quick:
        return cases
    return [
        replace(scaled(case, case.load.records // QUICK_DIVISOR), beside=False) for case in cases if case.quick
    ]


def choose_peers(names: str, among: tuple[str, ...] = PEERS) -> list[str]:
    """Return the peers with these names, none by ``none``.

    Raises:
        ValueError: There is no such peer; says which there are.
    """
    return [] if names.strip() == "none" else named(names, among, "peer")


def scaled(case: Case, records: int) -> Case:
    """Return a case with so many records, of which those that are measured are half at most."""
    measured = case.load.measured
    if measured is not None:
        measured = min(measured, records // 2)
    # Ids go on being spread over the window.
    step_ms = case.load.step_ms * case.load.records // records if case.load.ids else case.load.step_ms
    return replace(case, load=replace(case.load, records=records, measured=measured, step_ms=step_ms))


def turns(case: Case, guarantees: Mapping[str, Sequence[Guarantee]], repetitions: int) -> list[Turn]:
    """Return the runs of a case in their order: systems take turns, and each round begins with another.

    In the standard case each system runs with each of its guarantees, some in the first round only; in the
    others Seqmark does with exactly
    once, verdicts and, once, `BESIDE` do where the case has them, and receipts are written where much is
    dropped. A case with ids says itself who takes part and how often; each gives the best that it can promise.

    ``guarantees`` says by system, Seqmark among them, what it can promise.
    """
    made: list[Turn] = []
    for repetition in range(repetitions):
        entries: list[tuple[str, Guarantee]] = []
        for system, each in guarantees.items():
            if case.name == STANDARD and system != SHIPPED:
                if not (repetition and system in case.once):
                    entries += [(system, guarantee) for guarantee in each]
            elif repetition < _rounds(case, system):
                entries.append((system, each[0]))
        first = repetition % max(1, len(entries))
        made += [Turn(case, *entry, repetition) for entry in entries[first:] + entries[:first]]
    return made


def _rounds(case: Case, system: str) -> int:
    """Return how many rounds of a case other than the standard one a system takes part in at most."""
    ours, theirs = case.rounds
    beside = {BLOOM: case.blooms, VERDICTS: case.verdicts, SHIPPED: case.shipped}
    if system == SEQMARK or beside.get(system):
        return ours
    if case.load.ids is None:
        peer = (system == BESIDE and case.beside) or system in case.peers
        return int(peer or (system == RECEIPTS and case.load.duplicates >= MANY))
    if system not in case.peers:
        return 0
    return min(1, theirs) if system in case.once else theirs
