"""Compiles the kernels that a wheel brings along: ``python -m packing.kernels FOLDER [MODE ...]``.

The tree is written as it stands in the wheel, for kernels belong to exactly these sources, and compiles itself
there, for `processor.engine.shipped.processor`. The folder then has a folder of kernels for the Python and the
system that this ran on; others may add theirs. With modes it has theirs only, as tests do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packing.hook import FACE, write_packed
from processor.engine.shipped import processor, shipped_name

ROOT = Path(__file__).parents[1]
READABLE = 0o644


def compile_kernels(folder: Path, modes: list[str]) -> Path | None:
    """Compile kernels into a folder of their own in ``folder``.

    Args:
        folder: Made where it is missing.
        modes: Whose kernels; none: all.

    Returns:
        Their folder; None where nothing is compiled for machines of this kind.

    Raises:
        subprocess.CalledProcessError: It did not work; what it said is on stderr.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = processor()
    if known is None:
        return None
    with tempfile.TemporaryDirectory(prefix="seqmark-kernels-") as name:
        tree, cache = Path(name, "tree"), Path(name, "cache")
        write_packed(ROOT, tree / FACE)
        cache.mkdir(mode=0o700)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
        environment |= {
            "PYTHONPATH": str(tree),
            "XDG_CACHE_HOME": str(cache),
            "NUMBA_CPU_NAME": known.name,
            "NUMBA_CPU_FEATURES": known.more,
        }
        command = [sys.executable, "-m", f"{FACE}.processor.pipeline.warm", *modes]
        # Twice: two processes that keep a kernel's variants at once may lose one of them.
        for _ in range(2):
            subprocess.run(command, cwd=tree, env=environment, check=True)  # noqa: S603 - this program
        (made,) = (cache / FACE / "kernels").iterdir()
        kept = folder / shipped_name(made.name)
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        for file in sorted(made.iterdir()):
            shutil.copyfile(file, kept / file.name)
            (kept / file.name).chmod(READABLE)
    return kept


def main(folder: str, *modes: str) -> None:
    """Compile into the folder, and say what was made."""
    kept = compile_kernels(Path(folder), list(modes))
    if kept is None:
        sys.stderr.write("no kernels are compiled for machines of this kind: each compiles its own\n")
        return
    files = list(kept.iterdir())
    size = sum(file.stat().st_size for file in files)
    sys.stderr.write(f"{kept}: {len(files)} files, {size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
