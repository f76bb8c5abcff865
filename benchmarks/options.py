"""What is asked for? Variables of the environment, as `make bench` hands them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cases import QUICK_DIVISOR, choose, choose_peers, scaled
from benchmarks.peers import PEERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.cases import Case

QUICK_PEERS = ("kafka_streams", "flink")
"""In five minutes there is no time for the slow ones."""
SPARK_RECORDS = 4_000_000
"""Fewer show how a JVM starts: with a million Spark's own start is half of what both ways cost."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure.

    Attributes:
        quick: A quarter of everything, once.
        cases: With the number of records that they are to have.
        peers: Module names.
        records: At most so many in any case; None: as the cases say.
        repetitions: Of each system in the standard case, of Seqmark in all.
        spark: Whether issue 5's comparison is made too.
        latency: Whether delays are measured too.
        whole: Whether nothing was left out.
    """

    quick: bool
    cases: tuple[Case, ...]
    peers: tuple[str, ...]
    records: int | None
    repetitions: int
    spark: bool
    latency: bool
    whole: bool

    @property
    def kind(self) -> str:
        """Name of the results' file."""
        if not self.whole:
            return "partial"
        return "quick" if self.quick else "latest"

    @property
    def spark_records(self) -> int:
        """Records for the comparison with Spark alone."""
        return min(SPARK_RECORDS, self.records or SPARK_RECORDS)

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Options:
        """Read the variables.

        Raises:
            ValueError: One of them is wrong; says which and what would be right.
        """
        quick = _switch(environ, "QUICK", default=False)
        cases = choose(environ.get("CASES", ""), quick=quick)
        records = _number(environ, "RECORDS")
        if records is not None:
            cases = [scaled(case, min(case.load.records, records)) for case in cases]
        peers = choose_peers(environ.get("PEERS", ",".join(QUICK_PEERS if quick else PEERS)))
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
            spark=_switch(environ, "SPARK", default=not quick),
            latency=_switch(environ, "LATENCY", default=True),
            whole=not left_out,
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
