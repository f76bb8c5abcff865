"""Reads what to measure from variables of the environment, as `make bench` hands them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, ID_CASES, QUICK_DIVISOR, choose, choose_peers, scaled
from benchmarks.peers import ID_PEERS, PEERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.cases import Case

QUICK_PEERS = ("kafka_streams", "flink")
"""In five minutes there is no time for the slow ones."""
SPARK_RECORDS = 4_000_000
"""Fewer show how a JVM starts: with a million Spark's own start is half of what both ways cost."""
REDIS_IDS = 1_000_000
"""More take as many bytes each, but for the size of a hash table, which is a power of two."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure.

    Attributes:
        quick: An eighth of the records, once; peers, and delays, with each system's best guarantee only.
        cases: With the number of records that they are to have.
        peers: Module names.
        records: At most so many in any case; None: as the cases say.
        repetitions: Of each system in the standard case, of Seqmark in all.
        spark: Whether the comparison with Spark alone is made too.
        latency: Whether delays are measured too.
        whole: Whether nothing was left out.
        ids: Whether the cases are those with ids, see `benchmarks.cases`.
        redis_ids: How many ids are put into Redis; 0: none.
    """

    quick: bool
    cases: tuple[Case, ...]
    peers: tuple[str, ...]
    records: int | None
    repetitions: int
    spark: bool
    latency: bool
    whole: bool
    ids: bool = False
    redis_ids: int = 0

    @property
    def kind(self) -> str:
        """Name of the results' file."""
        kind = "partial" if not self.whole else "quick" if self.quick else ""
        return "-".join(["ids", *([kind] if kind else [])]) if self.ids else kind or "latest"

    @property
    def spark_records(self) -> int:
        """Records for the comparison with Spark alone."""
        return min(SPARK_RECORDS, self.records or SPARK_RECORDS)

    @classmethod
    def read(cls, environ: Mapping[str, str], *, ids: bool = False) -> Options:
        """Read the variables; with ``ids`` the cases with ids are asked for, in place of the others.

        Raises:
            ValueError: One of them is wrong; says which and what would be right.
        """
        quick = _switch(environ, "QUICK", default=False)
        cases = choose(environ.get("CASES", ""), quick=quick, among=ID_CASES if ids else CASES)
        records = _number(environ, "RECORDS")
        if records is not None:
            cases = [scaled(case, min(case.load.records, records)) for case in cases]
        known = ID_PEERS if ids else PEERS
        peers = choose_peers(environ.get("PEERS", ",".join(QUICK_PEERS if quick else known)), known)
        left_out = any(
            environ.get(name) for name in ("CASES", "RECORDS", "REPEAT", "PEERS", "SPARK", "LATENCY")
        )
        return cls(
            quick=quick,
            cases=tuple(cases),
            peers=tuple(peers),
            records=records,
            repetitions=_number(environ, "REPEAT") or (1 if quick else 3),
            # Starting Spark three times alone takes a minute and a half.
            spark=_switch(environ, "SPARK", default=not quick and not ids),
            latency=_switch(environ, "LATENCY", default=not ids),
            whole=not left_out,
            ids=ids,
            redis_ids=min(REDIS_IDS, records or REDIS_IDS) if ids and peers else 0,
        )

    def limit(self, record_limit: int | None) -> int | None:
        """Return how many records a system with such a limit is given at most."""
        if record_limit is None:
            return None
        return record_limit // QUICK_DIVISOR if self.quick else record_limit


def _switch(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {text!r}")
    return text == "1" if text else default


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text)
