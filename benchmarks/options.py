"""Reads what to measure from variables of the environment, as `make bench` hands them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, ID_CASES, QUICK_DIVISOR, RESTART_IDS, choose, choose_peers, scaled
from benchmarks.peers import ID_PEERS, PEERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.cases import Case

QUICK_PEERS = ("kafka_streams", "flink")
"""In five minutes there is no time for the slow ones."""
SPARK_RECORDS = 4_000_000
"""Fewer show how a JVM starts: with a million Spark's own start is half of what both ways cost."""
EXECUTOR_RUNS = 2
"""So many times as many for one and two executors: what a record costs is a small part of a run there."""
REDIS_IDS = 1_000_000
"""More take as many bytes each, but for the size of a hash table, which is a power of two."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure.

    Attributes:
        kind: Name of the results' file.
        quick: An eighth of the records, once; peers, and delays, with each system's best guarantee only.
        cases: With the number of records that they are to have.
        repetitions: Of each system in the standard case, of Seqmark in all.
        latency: Whether delays are measured too.
        spark_records: Records for the comparison with Spark alone; 0: it is left out.
        redis_ids: How many ids are put into Redis; 0: none.
        starts: How often a worker is started in each way; 0: not at all.
        restart_ids: With how many ids it is started in those cases; 0: it is not.
    """

    kind: str
    quick: bool
    ids: bool
    cases: tuple[Case, ...]
    peers: tuple[str, ...]
    repetitions: int
    latency: bool
    spark_records: int
    redis_ids: int
    starts: int
    restart_ids: int

    @property
    def executor_records(self) -> int:
        """Records in the topic with many of them, of which executors are told apart by."""
        return EXECUTOR_RUNS * self.spark_records

    @classmethod
    def read(cls, environ: Mapping[str, str], *, ids: bool = False) -> Options:
        """Read the variables; with ``ids`` the cases with ids are asked for, in place of the others.

        Raises:
            ValueError: One of them is wrong; says which and what would be right.
        """
        quick = _switch(environ, "QUICK", default=False)
        records = _number(environ, "RECORDS")
        cases = choose(environ.get("CASES", ""), quick=quick, among=ID_CASES if ids else CASES)
        if records is not None:
            cases = [scaled(case, min(case.load.records, records)) for case in cases]
        known = ID_PEERS if ids else PEERS
        peers = choose_peers(environ.get("PEERS", ",".join(QUICK_PEERS if quick else known)), known)
        names = ("CASES", "RECORDS", "REPEAT", "PEERS", "SPARK", "LATENCY", "STARTS")
        kind = "partial" if any(map(environ.get, names)) else "quick" if quick else ""
        # Starting Spark three times alone takes a minute and a half.
        spark = _switch(environ, "SPARK", default=not quick and not ids)
        repetitions = _number(environ, "REPEAT") or (1 if quick else 3)
        # Compiling all kernels takes two minutes, each time, and so does taking in many ids.
        starts = _switch(environ, "STARTS", default=not quick)
        return cls(
            kind=("ids-" + kind).rstrip("-") if ids else kind or "latest",
            quick=quick,
            ids=ids,
            cases=tuple(cases),
            peers=tuple(peers),
            repetitions=repetitions,
            latency=_switch(environ, "LATENCY", default=not ids),
            spark_records=min(SPARK_RECORDS, records or SPARK_RECORDS) if spark else 0,
            redis_ids=min(REDIS_IDS, records or REDIS_IDS) if ids and peers else 0,
            starts=repetitions if starts else 0,
            restart_ids=min(RESTART_IDS, records or RESTART_IDS) if ids and starts else 0,
        )

    def limit(self, record_limit: int | None) -> int | None:
        """Return how many records a system with such a limit is given at most."""
        return record_limit // QUICK_DIVISOR if record_limit and self.quick else record_limit


def _switch(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {text!r}")
    return text == "1" if text else default


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if text and (not text.isdecimal() or int(text) < 1):
        raise ValueError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text) if text else None
