"""Which cases are measured, who takes part in each, and what has to come out?

The table of issue 6. Targets are for Seqmark with exactly once: records per CPU second of its whole process
tree in the second half of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.load import Load
from benchmarks.peers import BLOOM, PEERS, RECEIPTS, SEQMARK
from processor.wire.codec import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.peers import Guarantee, Scope
    from benchmarks.peers import Sequence as SequencePlace

STANDARD = "standard"
BESIDE = "kafka_streams"
"""The peer that takes part in each case with a target of its own, not in the standard one only."""
MANY = 0.5
"""From this share of duplicates on receipts are measured too."""
QUICK_DIVISOR = 8
"""`QUICK=1` measures an eighth of the records, once, peers in the standard case only: to see that it works."""


@dataclass(frozen=True, slots=True)
class Case:
    """One input and one way to judge it.

    Attributes:
        name: As in ``CASES=`` and in the results.
        title: For people.
        load: The input.
        sequence: Where the sequence is read.
        scope: What has a sequence of its own.
        least: Target, in records per CPU second; None: none.
        aim: What would be better still.
        share: Target as a share of what the standard case reaches, in place of ``least`` (and of ``aim``).
        beside: Whether `BESIDE` runs it too. The standard case has all peers.
        peers: Of a case with ids: who takes part beside Seqmark.
        rounds: Of a case with ids: how many rounds there are at most, of Seqmark and of its peers.
        once: Of a case with ids: peers that are in the first round only, whatever `rounds` says.
        blooms: Of a case with ids: whether the Bloom filters are measured too.
        quick: Whether a quick run has it.
        memory_gib: Memory that must be free.
        disk_gib: Disk that must be free.
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
    quick: bool = True
    memory_gib: int = 0
    disk_gib: int = 0


CASES = (
    Case(STANDARD, "standard", least=1_200_000, aim=2_000_000),
    Case("batch-16k", "16 KB batches", Load(batch_bytes=16 * 1024), least=600_000, aim=1_000_000, beside=True),
    Case(
        "batch-1",
        "one-record batches",
        # With fewer the second half is too short to be measured; each is a batch of its own to the broker too,
        # so that more take many minutes to produce.
        Load(records=2_000_000, batch_bytes=0),
        least=100_000,
        aim=250_000,
        beside=True,
    ),
    Case("codec-none", "no compression", Load(codec=Codec.NONE)),
    Case("codec-zstd", "zstd", Load(codec=Codec.ZSTD)),
    Case("duplicates-0", "0 % duplicates", Load(duplicates=0.0), least=2_000_000, aim=3_500_000, beside=True),
    Case("duplicates-50", "50 % duplicates", Load(duplicates=0.5)),
    Case("record-1k", "1 KB records", Load(records=2_000_000, note_bytes=870)),
    Case("json", "JSON-pointer sequence", sequence="json", least=400_000, aim=800_000, beside=True),
    Case(
        "scope-key",
        "scope key, 1 million keys",
        Load(keys=1_000_000),
        scope="key",
        least=600_000,
        aim=1_000_000,
        beside=True,
    ),
    Case("partitions-16", "16 partitions", Load(partitions=16)),
    Case("partitions-64", "64 partitions", Load(partitions=64), share=(0.6, 0.9), beside=True),
)
FACTORS = {"kafka_streams": 6.0, "flink": 4.0}
"""By how much Seqmark is to be ahead in the standard case, exactly once both, in the same run."""
COST_OF_EXACTNESS = 0.15
"""Exactly once may cost this share of at least once, at 4 partitions."""
LATENCY_OVER_MS = 150
"""p99 from produce to visible at half load: at most the commit interval and this."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to be made.

    Attributes:
        case: What.
        system: Module name of who does it.
        guarantee: With which promise.
        repetition: From 0.
    """

    case: Case
    system: str
    guarantee: Guarantee
    repetition: int


def choose(names: str, *, quick: bool = False, among: tuple[Case, ...] = CASES) -> list[Case]:
    """Return the cases with these names, separated by commas; all where there is none.

    A quick run leaves out those that it does not have.

    Raises:
        ValueError: There is no such case; says which there are.
    """
    by_name = {case.name: case for case in among}
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(by_name)
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise ValueError(f"no case is called {', '.join(unknown)}; there are {', '.join(by_name)}")
    cases = [by_name[name] for name in wanted]
    if not quick:
        return cases
    return [
        replace(scaled(case, case.load.records // QUICK_DIVISOR), beside=False) for case in cases if case.quick
    ]


def scaled(case: Case, records: int) -> Case:
    """Return a case with so many records, of which those that are measured are half at most."""
    measured = case.load.measured
    if measured is not None:
        measured = min(measured, records // 2)
    # Ids go on being spread over the window.
    step_ms = case.load.step_ms * case.load.records // records if case.load.ids else case.load.step_ms
    return replace(case, load=replace(case.load, records=records, measured=measured, step_ms=step_ms))


def choose_peers(names: str, among: tuple[str, ...] = PEERS) -> list[str]:
    """Return the peers with these names, separated by commas; all where there is none, none by ``none``.

    Raises:
        ValueError: There is no such peer; says which there are.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(among)
    if wanted == ["none"]:
        return []
    unknown = [name for name in wanted if name not in among]
    if unknown:
        raise ValueError(f"no peer is called {', '.join(unknown)}; there are none and {', '.join(among)}")
    return wanted


def turns(
    case: Case,
    guarantees: Mapping[str, Sequence[Guarantee]],
    repetitions: int,
) -> list[Turn]:
    """Return the runs of a case in their order: systems take turns, and each round begins with another.

    In the standard case each system runs with each of its guarantees; in the others Seqmark does with exactly
    once, `BESIDE` does, once, where the case has it, and receipts are written where much is dropped. A case
    with ids says itself who takes part and how often; each gives the best that it can promise.

    Args:
        case: Which.
        guarantees: By system, Seqmark among them, what it can promise.
        repetitions: Of each.
    """
    made: list[Turn] = []
    for repetition in range(repetitions):
        entries: list[tuple[str, Guarantee]] = []
        for system, each in guarantees.items():
            if case.load.ids is not None:
                if repetition < _rounds(case, system):
                    entries.append((system, each[0]))
            elif case.name == STANDARD:
                entries += [(system, guarantee) for guarantee in each]
            elif system == SEQMARK or (repetition == 0 and _takes_part(case, system)):
                entries.append((system, "exactly_once"))
        first = repetition % max(1, len(entries))
        made += [Turn(case, *entry, repetition) for entry in entries[first:] + entries[:first]]
    return made


def _rounds(case: Case, system: str) -> int:
    """Return how many rounds of a case with ids a system takes part in at most."""
    ours, theirs = case.rounds
    if system == SEQMARK or (case.blooms and system in BLOOM):
        return ours
    if system not in case.peers:
        return 0
    return min(1, theirs) if system in case.once else theirs


def _takes_part(case: Case, system: str) -> bool:
    """Tell who runs beside Seqmark in a case other than the standard one."""
    return (system == BESIDE and case.beside) or (system == RECEIPTS and case.load.duplicates >= MANY)
