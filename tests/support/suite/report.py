"""Prints by folder which tests are proven as they are: ``python -m tests.support.suite.report``."""

from __future__ import annotations

import sys
from collections import defaultdict

from tests.support.suite import share, tiers
from tests.support.suite.closure import ROOT


def table() -> list[str]:
    """Return a line per folder: files, those proven and those proven whole, since when, seconds."""
    proofs = share.read()
    folders: defaultdict[str, list[share.Proof | None]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = str(path.relative_to(ROOT))
        proof = proofs.get(file)
        fits = proof is not None and proof.digest == share.digest(file)
        folders["/".join(file.split("/")[1:-1][:2])].append(proof if fits else None)
    lines = [
        f"{'folder':<24} {'tier':<5} {'files':>6} {'proven':>7} {'whole':>6} {'oldest':>11} {'seconds':>8}"
    ]
    for folder, files in folders.items():
        proven = [each for each in files if each is not None]
        lines.append(
            f"{folder:<24} {tiers.of_folder(f'tests/{folder}/test_.py'):<5} {len(files):>6} {len(proven):>7} "
            f"{sum(each.whole for each in proven):>6} {min((each.day for each in proven), default='-'):>11} "
            f"{sum(each.seconds for each in proven):>8.0f}"
        )
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
