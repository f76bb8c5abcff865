"""Kernels that came with the wheel are loaded where they fit, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.engine import shipped
from processor.engine.shipped import Processor, shipped_kernels, shipped_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.suite.installed import Installed

END = (
    "import numpy as np\n"
    "from seqmark.processor.engine import jit; from seqmark.processor.engine.bytes import crc32c\n"
    "data = np.arange(100, dtype=np.uint8)\n"
    "print(int(crc32c.crc32c(data, 0, 100, np.uint64(0))), jit.SHIPPED is not None)\n"
)
"""Runs one kernel, of the smallest."""


def end(base: Installed, folder: Path, **env: str) -> tuple[int, bool, int]:
    """Return what the kernel says, whether any came along, and how many were compiled."""
    folder.mkdir()
    done = base.run("python", "-c", END, folder=folder, env={"XDG_CACHE_HOME": str(folder), **env})
    assert (done.returncode, done.stderr) == (0, "")
    value, came = done.stdout.split()
    return int(value), came == "True", len(list(folder.rglob("*.nbc")))


def test_they_are_loaded_and_say_what_those_say_that_are_compiled(base: Installed, tmp_path: Path) -> None:
    value, *rest = end(base, tmp_path / "shipped")
    assert rest == [True, 0]
    # A processor that is named is what is compiled for.
    assert end(base, tmp_path / "generic", NUMBA_CPU_NAME="generic") == (value, False, 1)
    assert end(base, tmp_path / "less", NUMBA_CPU_FEATURES="-avx512f") == (value, False, 1)
    own = str(tmp_path / "own")
    assert end(base, tmp_path / "own", NUMBA_CACHE_DIR=own) == (value, False, 1)
    assert end(base, tmp_path / "plain", NUMBA_DISABLE_JIT="1")[::2] == (value, 0)


def test_they_are_loaded_also_where_the_cache_is_open_to_others(base: Installed, tmp_path: Path) -> None:
    (tmp_path / "seqmark").mkdir()
    (tmp_path / "seqmark").chmod(0o777)
    done = base.run("python", "-c", END, folder=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout.split()[1]) == (0, "True")
    assert "kernels that did not come with Seqmark are compiled anew at each start" in done.stderr
    assert "can be written by others" in done.stderr
    loaded = END + "print(crc32c.crc32c.stats.cache_hits.total(), crc32c.crc32c.stats.cache_misses.total())\n"
    done = base.run("python", "-c", loaded, folder=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.stdout.splitlines()[1] == "1 0"


def test_those_of_other_sources_are_not(base: Installed, tmp_path: Path) -> None:
    (engine,) = base.bin.parent.glob("lib/python*/site-packages/seqmark/processor/engine")
    source = engine / "bytes" / "crc32c.py"
    before = source.read_bytes()
    source.write_bytes(before + b"\n# changed\n")
    try:
        _, _, compiled = end(base, tmp_path / "changed")
    finally:
        source.write_bytes(before)
    assert compiled == 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels of the compilers "1234" for this machine."""
    monkeypatch.setattr(shipped, "COMPILED", tmp_path)
    folder = tmp_path / shipped_name("1234")
    folder.mkdir()
    return folder


def test_a_machine_that_can_less_compiles_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped_kernels("1234") == folder
    assert shipped_kernels("4321") is None
    less = Processor("more", "", frozenset({"a feature that no machine has"}))
    monkeypatch.setattr(shipped, "processor", lambda: less)
    assert shipped_kernels("1234") is None
    monkeypatch.setattr(shipped, "processor", lambda: None)
    assert shipped_kernels("1234") is None
