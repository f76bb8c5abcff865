"""Runs episodes from a seed on, until time is up or one fails: ``python -m tests.simulation --minutes 4``."""

from __future__ import annotations

import argparse
import secrets
import sys
import traceback

from processor.pipeline import warm
from tests.simulation.run import run


def main(arguments: list[str]) -> int:
    """Run, and say how many kills that were; 1 where an episode failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the first episode")
    parser.add_argument("--minutes", type=float, default=1.0, help="of CPU; 0: the seed's episode alone")
    asked = parser.parse_args(arguments)
    # What compiling draws would be missing from the first episode's random bytes.
    warm.main([])
    print(f"the first seed is {asked.seed}", flush=True)
    try:
        print(run(asked.seed, 60 * asked.minutes))
    except Exception:  # noqa: BLE001 - whatever it is, it is what an episode has found
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
