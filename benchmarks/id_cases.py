"""Which cases with ids are measured, who takes part in each, and what has to come out?

The rows of issue 7, of ``make bench ARGS=ids``. Records are as those of the other cases, but for the id; the
window is seven days, in which all of a load lies and over which its timestamps are spread, so that in the end
eight daily buckets have a filter. In cases named by a number of ids the state is real: the same
process has taken in as many records before the million that is measured, and a resend repeats any of them, so
that no system finds what it needs among what it has just seen. That takes seconds for a million ids, and
minutes for a hundred million.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cases import Case
from benchmarks.load import DAY_MS, Load
from benchmarks.peers import ID_PEERS

HEADER = "ids-header"
"""The case that all take part in, the quicker ones in each round: what Seqmark and others are compared by."""
JSON = "ids-json"
SIZES = ("ids-1m", "ids-10m", "ids-100m")
"""Those that differ in the ids in the window only."""
FACTORS = {"kafka_streams": 7.0, "flink": 10.0}
"""By how much Seqmark is to be ahead, by records per CPU second, warm."""
LEAST = 500_000
"""At ten million ids; and so for the rows that have fewer."""
GROWN = 0.7
"""Share of the rate at ten million ids that is left at a hundred million."""
LEAST_CONFIRMED = 350_000
"""With Bloom filters that are confirmed."""
MEASURED = 1_000_000
SPREAD_MS = int(6.9 * DAY_MS)


def spread(load: Load) -> Load:
    """Return the load with timestamps over most of the window."""
    return replace(load, step_ms=int(SPREAD_MS // (load.share(0) * (1 - load.duplicates))))


def _load(millions: float) -> Load:
    """Return a load that leaves so many million ids in the window, random ones of 16 bytes."""
    records = int((millions * 1e6 + MEASURED) / 0.95)
    return spread(Load(records=records, ids="binary", far=True, measured=MEASURED))


ID_CASES = (
    Case(
        HEADER,
        "header, UUID of 36 B",
        spread(Load(ids="text")),
        least=LEAST,
        peers=ID_PEERS,
        rounds=(99, 99),
        # Minutes each, and so far behind that a second decimal tells nothing.
        once=("quix", "spark"),
        blooms=True,
    ),
    Case(
        "ids-binary",
        "header, 16 random bytes",
        spread(Load(ids="binary")),
        least=LEAST,
        quick=False,
    ),
    Case(
        JSON,
        "JSON, two parts",
        spread(Load(ids="json")),
        least=250_000,
        peers=("kafka_streams",),
    ),
    Case("ids-1m", "1 million ids before", _load(1), least=LEAST, peers=ID_PEERS, blooms=True),
    Case(
        "ids-10m",
        "10 million ids before",
        _load(10),
        least=LEAST,
        # Quix Streams would take a quarter of an hour.
        peers=("kafka_streams", "flink", "spark"),
        rounds=(2, 1),
        blooms=True,
        quick=False,
    ),
    Case(
        "ids-100m",
        "100 million ids before",
        _load(100),
        share=(GROWN, 1.0),
        rounds=(1, 0),
        quick=False,
        # The index takes 2.4 GB at most, and the pages of topics are better kept.
        memory_gib=8,
        # Source and sink take 6 GB each, local state and changelog 2.4 GB each.
        disk_gib=24,
    ),
)
