"""Which tests a run takes: each has a tier, and a run with ``--tier`` those of some.

    fast    needs no Java, and less than 5 s of a core; and a smoke of each real part
    core    a worker on a broker: one sentence of the contract, or one claim of the README
    long    kills, clusters, grids, a real Spark, whole demos

``--tier fast`` is `make test`; ``--tier ci`` is what `make test-ci` runs behind it: core, and a share of long
that `tests.support.suite.share` chooses; ``--tier all`` leaves nothing out, no kill and no planted mistake.
Without it a run takes all that it is asked for.

The tier of a test is that of its folder, or of its file or itself where these are marked, as in
``pytestmark = pytest.mark.long``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.suite.closure import ROOT

if TYPE_CHECKING:
    import pytest

FAST, CORE, LONG = TIERS = ("fast", "core", "long")
CI, ALL = "ci", "all"
RUNS = {FAST: {FAST}, CI: {CORE, LONG}, ALL: set(TIERS)}
"""The tiers that a run takes tests of."""
FOLDERS = {
    "tests/unit": FAST,
    "tests/property": FAST,
    "tests/simulation": FAST,
    "tests/broker": LONG,
    "tests/broker/contract": CORE,
    "tests/broker/worker": CORE,
    "tests/cluster": LONG,
    "tests/crash": LONG,
    "tests/install": LONG,
    "tests/postgres": LONG,
    "tests/spark": LONG,
}
"""The tier of what is below a folder; the longest name counts."""
OF_ITS_OWN_S = 5.0
"""CPU seconds that a fast test may take, in its process and in those that it waits for; kernels are warm."""
TOO_SLOW = 6
"""So many times as much is not the machine's fault: the run fails. A core that is shared does half as much."""
CPU_S = "cpu_s"
"""Of a test's properties, what it took."""
_MARK = re.compile(rf"\bmark\.({'|'.join(TIERS)})\b")


def of_folder(file: str) -> str:
    """Return the tier of the folder of a file, which is named by its path below the tree."""
    return next((FOLDERS[str(each)] for each in Path(file).parents if str(each) in FOLDERS), LONG)


def of_test(item: pytest.Item) -> str:
    """Return the tier of a test: by the nearest mark, or its folder."""
    marked = next((each.name for each in item.iter_markers() if each.name in TIERS), None)
    return marked or of_folder(item.nodeid.partition("::")[0])


@cache
def in_file(file: str) -> frozenset[str]:
    """Return the tiers that the tests of a file may have, by its text; nothing is imported."""
    return frozenset({of_folder(file), *_MARK.findall((ROOT / file).read_text(encoding="utf-8"))})


def took(reporter: pytest.TerminalReporter) -> dict[str, float]:
    """Return the CPU seconds of each test that takes too long for its tier, in a run of the fast ones."""
    if reporter.config.getoption("tier") != FAST:
        return {}
    reports = [each for some in reporter.stats.values() for each in some if getattr(each, "when", "") == "call"]
    seconds = {each.nodeid: dict(each.user_properties).get(CPU_S, 0.0) for each in reports}
    return {nodeid: cpu_s for nodeid, cpu_s in seconds.items() if cpu_s > OF_ITS_OWN_S}
