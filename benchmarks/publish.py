"""What of the figures stands in the pages? ``python -m benchmarks.publish`` writes it there, nobody else does.

Between ``<!-- bench:NAME -->`` and ``<!-- /bench -->`` a page has what `block` makes of
``benchmarks/results/latest.json``, or, of ids, ``benchmarks/results/ids.json``. ``--check`` writes nothing
and exits 1 where a page says something else. Pictures are drawn anew beside the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import id_tables, tables
from benchmarks.cases import STANDARD
from benchmarks.id_cases import SIZES
from benchmarks.plots import draw, windows
from benchmarks.results import RESULTS, Results, median
from processor.commands.console import say
from processor.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
PAGES = ("docs/benchmarks.md", "README.md")
PICTURES = ROOT / "docs" / "images"
LATEST = RESULTS / "latest.json"
LATEST_IDS = RESULTS / "ids.json"
TEN_MILLION = SIZES[1]
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


def short(results: Results, case: str, entries: Iterable[tuple[str, str]]) -> str:
    """Return the README's form of a case: a line for each system and guarantee."""
    rows = []
    for system, guarantee in entries:
        rate = median(results.of(case, system, guarantee), tables.half)
        rows.append((results.systems.get(system, system), tables.WORDS[guarantee], tables.rounded(rate)))
    return tables.markdown(tables.Rows(("system", "guarantee", "records per CPU second"), rows, 2))


def missing(results: Results) -> str:
    """Say who did not take part and what failed, each with its reason."""
    lines = [f"- {system} did not take part: {why}" for system, why in results.missing.items()]
    lines += [
        f"- {run.case}, {results.systems.get(run.system, run.system)}, {tables.WORDS[run.guarantee]}, "
        f"repetition {run.repetition + 1}, failed: {run.failure}"
        for run in results.runs
        if run.failure
    ]
    return "\n".join(lines) or "All systems took part, and no run failed."


_BLOCKS: dict[str, Callable[[Results], str]] = {
    "machine": machine,
    "noise": tables.noise,
    "short": lambda results: short(results, STANDARD, tables.entries(results)),
    "missing": missing,
    "standard": lambda results: tables.markdown(tables.standard(results)),
    "cases": lambda results: tables.markdown(tables.cases(results)),
    "promises": lambda results: tables.markdown(tables.promises(results)),
    "latency": lambda results: tables.markdown(tables.latency(results)),
    "spark": lambda results: tables.markdown(tables.spark(results)),
    "delays": lambda results: tables.markdown(tables.delays(results)),
    "settings": lambda results: tables.markdown(tables.settings(results)),
}


def ids_plot(results: Results) -> str:
    """Return the picture of rates against ids, where there is one."""
    title = "Records per CPU second against ids in the window, by system"
    return f"![{title}](images/bench-ids.svg)" if windows(results) else ""


_ID_BLOCKS: dict[str, Callable[[Results], str]] = {
    "ids-machine": machine,
    "ids-noise": tables.noise,
    "ids-missing": missing,
    "ids-plot": ids_plot,
    "ids-rates": lambda results: tables.markdown(id_tables.rates(results)),
    "ids-bytes": lambda results: tables.markdown(id_tables.sizes(results)),
    "ids-promises": lambda results: tables.markdown(id_tables.promises(results)),
    "ids-short": lambda results: short(results, TEN_MILLION, id_tables.systems(results, TEN_MILLION)),
    "ids-settings": lambda results: tables.markdown(tables.settings(results)),
}


def block(name: str, results: Results, ids: Results | None = None) -> str:
    """Return what stands between a block's marks; ``ids`` are the results with ids, where there are any.

    Raises:
        KeyError: There is no such block.
    """
    made = ""
    if name not in _ID_BLOCKS:
        made = _BLOCKS[name](results)
    elif ids is not None:
        made = _ID_BLOCKS[name](ids)
    return made or "Not measured yet."


def filled(page: str, results: Results, ids: Results | None = None) -> str:
    """Return a page with all its blocks anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{block(found['name'], results, ids)}\n\n{found[3]}", page)


def read_ids() -> Results | None:
    """Return the results of cases with ids; None where there are none yet."""
    return Results.read(LATEST_IDS) if LATEST_IDS.is_file() else None


def main(*, check: bool) -> int:
    """Write the pages, or say which would change."""
    results, ids = Results.read(LATEST), read_ids()
    stale = []
    for name in PAGES:
        page = ROOT / name
        text = page.read_text()
        made = filled(text, results, ids)
        if made != text:
            stale.append(name)
            if not check:
                page.write_text(made)
    if check:
        for name in stale:
            say(
                f"{name} does not say what the results do: run python -m benchmarks.publish",
                "bold red",
            )
        return EXIT_FAILED if stale else 0
    PICTURES.mkdir(exist_ok=True)
    for each in (*draw(results, PICTURES, "bench"), *(draw(ids, PICTURES, "bench") if ids else ())):
        say(f"drawn: {each.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
