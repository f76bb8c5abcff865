"""Writes the figures into the pages: ``python -m benchmarks.pages.publish``.

Between ``<!-- bench:NAME -->`` and ``<!-- /bench -->`` a page has what `block` makes of
``benchmarks/results/latest.json``, or, of ids, ``benchmarks/results/ids.json``, or, of files at rest,
``benchmarks/results/rest.json``; nobody else writes there. A test compares them. The picture is drawn again
beside the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases import SIZES, STANDARD
from benchmarks.pages import (
    durations,
    executor_tables,
    id_tables,
    promises,
    spark_tables,
    start_tables,
    tables,
)
from benchmarks.pages.picture import draw
from benchmarks.rest import pages
from benchmarks.rest.results import read as read_rest
from benchmarks.results import RESULTS, Results, median
from processor.commands.console import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.rest.results import RestResult

ROOT = Path(__file__).parents[2]
PAGES = ("docs/benchmarks.md", "README.md")
PICTURE = ROOT / "docs" / "images" / "bench-systems.svg"
LATEST = RESULTS / "latest.json"
LATEST_IDS = RESULTS / "ids.json"
_BLOCK = re.compile(r"(<!-- bench:(?P<name>[a-z-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def machine(results: Results) -> str:
    """Say when and where it was measured."""
    found = results.machine
    part = "" if results.kind in {"latest", "ids"} else f"**Only a part, from a {results.kind} run.** "
    made = f", of commit {results.commit}, in {results.minutes:.0f} minutes," if results.commit else ""
    return part + (
        f"Measured on {results.at[:10]}{made} with {found['cores']} cores ({found['cpu']}), "
        f"{found['memory_bytes'] / 2**30:.0f} GiB of memory, Python {found['python']}, broker on the same "
        f"machine; {results.repetitions} repetitions, medians with their range."
    )


def short(results: Results, case: str) -> tables.Rows:
    """Return the README's form of a case: a line for each system and guarantee."""
    rows = []
    for system, guarantee in results.entries(case):
        rate = median(results.of(case, system, guarantee), tables.half)
        rows.append((results.title(system), tables.WORDS[guarantee], tables.rounded(rate)))
    return tables.Rows(("system", "guarantee", "records per CPU second"), rows, 2)


def missing(results: Results) -> str:
    """Say who did not take part and what failed, each with its reason."""
    lines = [f"- {system} did not take part: {why}" for system, why in results.missing.items()]
    lines += [
        f"- {run.case}, {results.title(run.system)}, {tables.WORDS[run.guarantee]}, "
        f"repetition {run.repetition + 1}, failed: {run.failure}"
        for run in results.runs
        if run.failure
    ]
    return "\n".join(lines) or "All systems took part, and no run failed."


IDS = "ids-"
"""Blocks whose names begin so are made of the results with ids."""
_BLOCKS: dict[str, Callable[[Results], str | tables.Rows]] = {
    "machine": machine,
    "noise": tables.noise,
    "missing": missing,
    "settings": tables.settings,
    "short": lambda results: short(results, STANDARD),
    "standard": tables.standard,
    "cases": tables.cases,
    "promises": promises.promises,
    "latency": tables.latency,
    "spark": spark_tables.ways,
    "starts": start_tables.starts,
    "kernels": start_tables.kernels,
    "executors": executor_tables.executors,
    "aggregates": executor_tables.aggregates,
    "durations": durations.durations,
    "ids-machine": machine,
    "ids-noise": tables.noise,
    "ids-missing": missing,
    "ids-settings": tables.settings,
    "ids-short": lambda results: short(results, SIZES[1]),
    "ids-rates": id_tables.all_rates,
    "ids-bytes": id_tables.sizes,
    "ids-promises": id_tables.promises,
    "ids-restarts": start_tables.restarts,
    "ids-kernels": start_tables.kernels,
    "ids-durations": durations.durations,
}


REST = "rest-"
"""Blocks whose names begin so are made of the results of files at rest."""
_REST_BLOCKS: dict[str, Callable[[Sequence[RestResult]], str | tables.Rows]] = {
    "rest-machine": pages.machine,
    "rest-costs": pages.costs,
    "rest-goals": pages.goals,
    "rest-missing": pages.missing,
}


def block(name: str, results: Results, ids: Results | None = None, rest: Sequence[RestResult] = ()) -> str:
    """Return what stands between a block's marks.

    Args:
        name: Of the block.
        results: Of the standard cases.
        ids: Those with ids, where there are any.
        rest: Those of files at rest.

    Raises:
        KeyError: There is no such block.
    """
    made: str | tables.Rows
    if name.startswith(REST):
        made = _REST_BLOCKS[name](rest)
    else:
        source = ids if name.startswith(IDS) else results
        made = _BLOCKS[name](source) if source else ""
    return (made if isinstance(made, str) else tables.markdown(made)) or "Not measured yet."


def filled(page: str, results: Results, ids: Results | None = None, rest: Sequence[RestResult] = ()) -> str:
    """Return a page with all its blocks made again."""
    return _BLOCK.sub(
        lambda found: f"{found[1]}\n{block(found['name'], results, ids, rest)}\n\n{found[3]}", page
    )


def read_ids() -> Results | None:
    """Return the results of cases with ids; None where there are none yet."""
    return Results.read(LATEST_IDS) if LATEST_IDS.is_file() else None


def main() -> None:
    """Write the pages and the picture."""
    results, ids, rest = Results.read(LATEST), read_ids(), read_rest()
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text(), results, ids, rest))
    PICTURE.parent.mkdir(exist_ok=True)
    draw(results, PICTURE)
    say(f"written: {', '.join(PAGES)}, {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
