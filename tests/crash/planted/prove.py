"""Looks at the planted mistakes that may have changed; writes `lock.json` and the table of `tests/README.md`.

    python -m tests.crash.planted.prove [--all] [--limit-s SECONDS]

What is caught is written at once, so that whatever ends this loses nothing; what is not is named at the end,
taken out of the lock, and exit code 1. Past the limit nothing new is begun.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from processor.broker.embedded import find_broker
from tests.crash.planted.mistakes import MISTAKES, Mistake
from tests.crash.planted.proof import PASSED, NotCaughtError, Tree, changed, proven, write, write_rows


def main() -> int:
    """Prove what is to be proven; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.planted.prove", description=__doc__)
    parser.add_argument(
        "--all", action="store_true", help="look at all of them, also where nothing has changed"
    )
    parser.add_argument("--limit-s", type=float, default=3000.0, help="begin none after so many seconds")
    asked = parser.parse_args()
    write_rows()
    wanted = list(MISTAKES) if asked.all else changed()
    print(f"{len(wanted)} of {len(MISTAKES)} planted mistakes to be looked at", flush=True)
    if not wanted:
        write(proven())
        return 0
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="seqmark-planted-"))
        tree = stack.enter_context(Tree(Path(folder)))
        bootstrap = stack.enter_context(find_broker(None)) if any(each.broker for each in wanted) else ""
        open_ones = _prove(tree, wanted, bootstrap, time.monotonic() + asked.limit_s)
    for name, why in open_ones.items():
        print(f"\nNOT PROVEN: {name}\n{why}")
    print(f"\n{len(wanted) - len(open_ones)} proven, {len(open_ones)} not; the lock is written")
    return 1 if open_ones else 0


def _prove(tree: Tree, wanted: list[Mistake], bootstrap: str, deadline: float) -> dict[str, str]:
    """Return what is not proven, and why."""
    code, said = tree.run(sorted({each.test for each in wanted if not each.broker}) or ["--version"])
    before = proven()
    found: dict[str, str] = {}
    for number, mistake in enumerate(wanted, 1):
        began = time.monotonic()
        if began > deadline:
            found[mistake.name] = "there was no time left"
            continue
        before.pop(mistake.name, None)
        if code != PASSED and not mistake.broker and _failed(mistake.test, said):
            found[mistake.name] = f"its test fails without it too:\n{said[-3000:]}"
        else:
            try:
                tree.prove(mistake, bootstrap if mistake.broker else "")
                before[mistake.name] = tree.digest(mistake)
            except NotCaughtError as error:
                found[mistake.name] = str(error)[-3000:]
        write(before)
        word = "NOT PROVEN" if mistake.name in found else "caught"
        print(f"{number:3}/{len(wanted)} {time.monotonic() - began:6.1f} s  {word}: {mistake.name}", flush=True)
    return found


def _failed(test: str, said: str) -> bool:
    """Say whether a test failed in a run that failed; where that names no test, all of it did."""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return not lines or any(test in line for line in lines)


if __name__ == "__main__":
    sys.exit(main())
