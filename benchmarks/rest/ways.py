"""Lists the ways that are compared, and gets what each needs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.environment import PeerEnvironment
from processor.engine.rest import warm_rest
from processor.errors import BrokerError
from spark_sink.session import LAKES, lake_jars, lake_package

if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT = PeerEnvironment("rest", Path(__file__).with_name("requirements.lock"))
OURS, PRINTS = "seqmark", "seqmark_fingerprints"


@dataclass(frozen=True, slots=True)
class CleaningWay:
    """One way to make files clean.

    Attributes:
        name: As in ``--ways`` and in the results.
        title: For people, with its version.
        program: Module in `benchmarks.rest.programs`.
        kind: ``ours``, ``spark`` or ``alone``: what the goals compare.
        fingerprints: Whether it keeps events whose id collides.
    """

    name: str
    title: str
    program: str
    kind: str
    fingerprints: bool = False

    @property
    def python(self) -> str:
        """The interpreter of its program."""
        return str(ENVIRONMENT.python) if self.kind == "alone" else sys.executable

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Get once what it needs; return why it cannot take part, or None."""
        try:
            if self.name in LAKES:
                lake_jars(self.name, say)
            elif self.kind == "ours":
                warm_rest()
        except BrokerError as error:
            return str(error)
        return ENVIRONMENT.make("DuckDB and Polars", say) if self.kind == "alone" else None


def _ways() -> dict[str, CleaningWay]:
    seqmark, spark = f"Seqmark {version('seqmark')}", f"Spark {version('pyspark')}"
    delta, iceberg = (lake_package(each).rpartition(":")[2] for each in ("delta", "iceberg"))
    listed = (
        CleaningWay(OURS, seqmark, "seqmark", "ours"),
        CleaningWay(PRINTS, f"{seqmark}, fingerprints", "seqmark", "ours", fingerprints=True),
        CleaningWay("join", f"{spark}, dropDuplicates and anti-join", "join", "spark"),
        CleaningWay("delta", f"Delta {delta}, MERGE", "delta", "spark"),
        CleaningWay("iceberg", f"Iceberg {iceberg}, manifest", "iceberg", "spark"),
        CleaningWay("duckdb", f"DuckDB {ENVIRONMENT.version('duckdb')}", "duckdb", "alone"),
        CleaningWay("polars", f"Polars {ENVIRONMENT.version('polars')}", "polars", "alone"),
    )
    return {each.name: each for each in listed}


WAYS = _ways()
