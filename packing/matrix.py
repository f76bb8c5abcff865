"""Compiles the kernels of a wheel for several Pythons: ``python3 -m packing.matrix FOLDER [PYTHON ...]``.

Needs nothing installed: each Python gets an environment of its own from `packing/requirements.lock`. Without
names those that this machine has are taken. The release workflow calls it with one Python on each kind of
machine; here it makes what can be made, and says what is missing: such a machine compiles its own at its start.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
LOCK = ROOT / "packing" / "requirements.lock"
_ASK = "import platform, sys; print('%d.%d' % sys.version_info[:2], platform.machine())"


def version_of(python: str) -> str | None:
    """Return ``3.12 x86_64`` for a Python that runs; None where it does not."""
    try:
        asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)  # noqa: S603 - as named
    except OSError:
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def compile_for(python: str, folder: Path) -> None:
    """Compile the kernels with one Python, in an environment that has what the lock holds.

    Raises:
        subprocess.CalledProcessError: It did not work; what it said is on stderr.
    """
    place = ROOT / "build" / f"venv-{(version_of(python) or '').partition(' ')[0]}"
    inside = str(place / "bin" / "python")
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
        str(LOCK),
    ]
    for command in (
        [python, "-m", "venv", str(place)],
        [inside, *install],
        [inside, "-m", "packing.kernels", str(folder)],
    ):
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - Pythons as named, and programs of ours


def main(folder: str, *pythons: str) -> int:
    """Compile for each Python; say what was made and what is missing."""
    candidates = pythons or tuple(f"python{version}" for version in PYTHONS)
    found = {version: python for python in candidates if (version := version_of(python))}
    wanted = {f"{version} {machine}" for version in PYTHONS for machine in MACHINES}
    for version, python in found.items():
        if version in wanted:
            compile_for(python, Path(folder).resolve())
    for version in sorted(wanted):
        state = "made" if version in found else "not made: there is no such Python here"
        sys.stderr.write(f"kernels for Python {version}: {state}\n")
    if unknown := sorted(found.keys() - wanted):
        sys.stderr.write(f"not a Python that Seqmark supports: {', '.join(unknown)}\n")
    sys.stderr.write(f"this machine: {sys.platform}, {platform.machine()}\n")
    return 0 if found.keys() & wanted else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
