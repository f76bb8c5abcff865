"""What of the figures stands in the pages? ``python -m benchmarks.publish`` writes it there, nobody else does.

Between ``<!-- bench:NAME -->`` and ``<!-- /bench -->`` a page has what `block` makes of
``benchmarks/results/latest.json``. ``--check`` writes nothing and exits 1 where a page says something else.
Pictures are drawn anew beside the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import tables
from benchmarks.cases import STANDARD
from benchmarks.plots import draw
from benchmarks.results import RESULTS, Results, median
from processor.commands.console import say
from processor.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
PAGES = ("docs/benchmarks.md", "README.md")
PICTURES = ROOT / "docs" / "images"
LATEST = RESULTS / "latest.json"
_BLOCK = re.compile(r"(<!-- bench:(?P<name>[a-z-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def machine(results: Results) -> str:
    """Say when and where it was measured."""
    found = results.machine
    part = "" if results.kind == "latest" else f"**Only a part, from a {results.kind} run.** "
    return part + (
        f"Measured on {results.at[:10]} with {found['cores']} cores ({found['cpu']}), "
        f"{found['memory_bytes'] / 2**30:.0f} GiB of memory, Python {found['python']}, broker on the same "
        f"machine; {results.repetitions} repetitions, medians with their range."
    )


def short(results: Results) -> str:
    """Return the README's form: each system at its best guarantee, a line each."""
    rows = []
    for system, guarantee in tables.entries(results):
        rate = median(results.of(STANDARD, system, guarantee), tables.half)
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
    "short": short,
    "missing": missing,
    "standard": lambda results: tables.markdown(tables.standard(results)),
    "cases": lambda results: tables.markdown(tables.cases(results)),
    "promises": lambda results: tables.markdown(tables.promises(results)),
    "latency": lambda results: tables.markdown(tables.latency(results)),
    "spark": lambda results: tables.markdown(tables.spark(results)),
    "delays": lambda results: tables.markdown(tables.delays(results)),
    "settings": lambda results: tables.markdown(tables.settings(results)),
}


def block(name: str, results: Results) -> str:
    """Return what stands between a block's marks.

    Raises:
        KeyError: There is no such block.
    """
    return _BLOCKS[name](results) or "Not measured yet."


def filled(page: str, results: Results) -> str:
    """Return a page with all its blocks anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{block(found['name'], results)}\n\n{found[3]}", page)


def main(*, check: bool) -> int:
    """Write the pages, or say which would change."""
    results = Results.read(LATEST)
    stale = []
    for name in PAGES:
        page = ROOT / name
        text = page.read_text()
        made = filled(text, results)
        if made != text:
            stale.append(name)
            if not check:
                page.write_text(made)
    if check:
        for name in stale:
            say(f"{name} does not say what {LATEST.name} does: run python -m benchmarks.publish", "bold red")
        return EXIT_FAILED if stale else 0
    PICTURES.mkdir(exist_ok=True)
    for each in draw(results, PICTURES, "bench"):
        say(f"drawn: {each.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
