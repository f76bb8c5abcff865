"""What is run as code is taken only from where nobody but this user and root can have put it."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from processor.engine import jit
from processor.engine.jit import COMPILERS, FOLDER, kernel_cache
from processor.paths import cache_dir, distrust, make_private
from tests.support.suite.closure import imported

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
NAMES = ("seqmark", "kernels", "1234")
SOMEBODY = 12_345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders to another user")
levels = pytest.mark.parametrize("level", range(len(NAMES)), ids=NAMES)

RUN = (
    "import numpy as np\n"
    "from processor.engine import jit; from processor.engine.bytes import siphash\n"
    "low, _ = siphash.end(*map(np.uint64, range(4)))\n"
    "print(int(low))\n"
)
"""Needs one kernel, of the smallest."""


class Planted:
    """Whoever loads it has a file made."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._mark,)


def run(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, with a cache and a temporary folder below ``folder``."""
    folder.mkdir(exist_ok=True)
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TMPDIR": str(folder),
        **env,
    }
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def plant(folder: Path, mark: Path) -> None:
    """Put code in the place of each kernel of a cache."""
    kernels = list(folder.rglob("*.nbi"))
    assert kernels
    for kernel in kernels:
        kernel.write_bytes(pickle.dumps(Planted(mark)))


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[Path, str]]:
    """A cache that holds the kernel, and what the script says.

    Not in pytest's folder, which each start of pytest closes to other users again.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "filled"
        done = run(RUN, folder)
        assert (done.returncode, done.stderr) == (0, "")
        yield folder / "cache" / "seqmark", done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_private(tmp_path, *NAMES)


def test_a_folder_that_only_this_user_can_write_to_is_trusted_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = make_private(tmp_path / "new", *NAMES)
    finally:
        os.umask(before)
    (tmp_path / "new").chmod(0o755)
    (folder / "file").touch(mode=0o666)  # nobody else could come to it
    assert [level.stat().st_mode & 0o777 for level in (folder, *folder.parents[:2])] == [0o700] * 3
    assert distrust(tmp_path / "new", *NAMES) is None


def test_what_is_not_there_yet_is_trusted_and_a_temporary_folder_of_all_users_is_too(tmp_path: Path) -> None:
    assert distrust(tmp_path / "not" / "there", *NAMES) is None
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    make_private(tmp_path / "tmp", *NAMES)
    assert distrust(tmp_path / "tmp", *NAMES) is None


@levels
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777], ids="{:o}".format)
def test_a_level_that_others_can_write_to_is_not(tmp_path: Path, folder: Path, level: int, mode: int) -> None:
    [*folder.parents[1::-1], folder][level].chmod(mode)
    assert f"{NAMES[level]} can be written by others (mode {mode:04o})" in str(distrust(tmp_path, *NAMES))


@levels
@as_root
def test_a_level_of_another_user_is_not(tmp_path: Path, folder: Path, level: int) -> None:
    os.chown([*folder.parents[1::-1], folder][level], SOMEBODY, -1)
    assert f"{NAMES[level]} belongs to the user with the number {SOMEBODY}" in str(distrust(tmp_path, *NAMES))


@levels
def test_a_level_that_is_a_symbolic_link_is_not(tmp_path: Path, folder: Path, level: int) -> None:
    link = [*folder.parents[1::-1], folder][level]
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    assert f"{link} is a symbolic link" in str(distrust(tmp_path, *NAMES))


def test_a_folder_above_that_all_can_write_to_is_not_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "open" / "home").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "home")
    make_private(tmp_path / "link", *NAMES)
    assert distrust(tmp_path / "link", *NAMES) is None
    (tmp_path / "open").chmod(0o777)
    assert "open can be written by others" in str(distrust(tmp_path / "link", *NAMES))


@as_root
def test_a_folder_above_of_another_user_is_not(tmp_path: Path) -> None:
    (tmp_path / "theirs" / "home").mkdir(parents=True)
    os.chown(tmp_path / "theirs", SOMEBODY, -1)
    assert "theirs belongs to" in str(distrust(tmp_path / "theirs" / "home", *NAMES))


def test_a_file_inside_that_others_could_have_written_or_put_there_is_not(tmp_path: Path, folder: Path) -> None:
    (folder / "deep").mkdir()
    file = folder / "deep" / "file"
    file.touch()
    file.chmod(0o666)
    folder.chmod(0o755)
    (folder / "deep").chmod(0o755)
    assert "file can be written by others" in str(distrust(tmp_path, *NAMES))
    file.chmod(0o644)
    assert distrust(tmp_path, *NAMES) is None
    file.unlink()
    file.symlink_to(ROOT / "README.md")
    assert "is no file" in str(distrust(tmp_path, *NAMES))


@as_root
def test_a_file_inside_of_another_user_is_not(tmp_path: Path, folder: Path) -> None:
    (folder / "file").touch()
    os.chown(folder / "file", SOMEBODY, -1)
    assert "file belongs to" in str(distrust(tmp_path, *NAMES))


def test_kernels_in_a_folder_that_others_can_write_to_are_not_loaded(
    tmp_path: Path, filled: tuple[Path, str]
) -> None:
    mark, cache = tmp_path / "ran", tmp_path / "cache" / "seqmark"
    shutil.copytree(filled[0], cache)
    plant(cache, mark)
    run(RUN, tmp_path)
    assert mark.exists(), "what is planted runs where it is trusted: else this test says nothing"
    mark.unlink()

    cache.chmod(0o777)
    done = run(RUN, tmp_path)

    assert (done.returncode, done.stdout) == (0, filled[1])
    assert not mark.exists()
    assert done.stderr.count("\n") == 1
    assert "kernels are compiled anew at each start" in done.stderr
    assert "seqmark can be written by others (mode 0777)" in done.stderr
    assert "XDG_CACHE_HOME" in done.stderr


def test_kernels_that_lie_ready_in_the_temporary_folder_are_not_loaded(
    tmp_path: Path, filled: tuple[Path, str]
) -> None:
    """The cache folder cannot be made, and somebody knew where this user looks then."""
    mark, ready = tmp_path / "ran", tmp_path / f"seqmark-{os.getuid()}"
    shutil.copytree(filled[0], ready)
    plant(ready, mark)
    ready.chmod(0o777)  # as good as another's, which only root could make here
    (tmp_path / "cache").touch()

    done = run(RUN, tmp_path)

    assert (done.returncode, done.stdout) == (0, filled[1])
    assert not mark.exists()
    assert f"{ready} can be written by others" in done.stderr


def test_where_the_cache_cannot_be_made_a_closed_temporary_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache = kernel_cache(COMPILERS)
    assert cache is not None
    assert cache.parents[1] == tmp_path / f"seqmark-{os.getuid()}"
    assert [level.stat().st_mode & 0o777 for level in (cache, *cache.parents[:2])] == [0o700] * 3
    cache.parents[1].rename(tmp_path / "theirs")
    (tmp_path / f"seqmark-{os.getuid()}").symlink_to(tmp_path / "theirs")
    assert kernel_cache(COMPILERS) is None
    assert "is a symbolic link" in capsys.readouterr().err


@as_root
def test_a_cache_of_an_image_is_read_by_any_user_and_what_it_lacks_is_compiled(
    filled: tuple[Path, str],
) -> None:
    cache, said = filled
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for above in cache.parents[:3]:  # those below the temporary folder
        above.chmod(0o755)
    # The interpreter may lie where only root can read: what it needs is loaded before.
    script = (
        "import __future__, contextlib, hashlib, numba.core.caching, os, pathlib, sys, tempfile, typing\n"
        "numba.njit(lambda x: x + 1)(1)\n"
        f"os.setgroups([]); os.setresgid(*[{SOMEBODY}] * 3); os.setresuid(*[{SOMEBODY}] * 3)\n"
        f"{RUN}"
        "print(sum(siphash.end.stats.cache_hits.values()))\n"
    )
    done = run(script, cache.parents[1])
    assert (done.stdout, done.stderr) == (f"{said}1\n", "")

    for kernel in cache.rglob("*.nbc"):
        kernel.unlink()
    done = run(script, cache.parents[1])
    assert (done.stdout, done.stderr) == (f"{said}0\n", "")


def test_a_kernel_is_named_by_its_module_and_all_that_this_imports_of_the_engine(
    tmp_path: Path,
) -> None:
    engine = ROOT / "processor" / "engine"
    for path in engine.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        wanted = {each for each in imported(ROOT, name, {"processor"}) if each.startswith("processor/engine/")}
        assert set(jit.imported(path.relative_to(engine).as_posix())) == {
            each.removeprefix("processor/engine/") for each in wanted
        }, name

    shutil.copytree(ROOT / "processor", tmp_path / "processor")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from processor.engine.jit import sources\n"
        "print(sources('bytes/siphash.py'), sources('verdict.py'))"
    )
    said = []
    for changed in ("ids/page.py", "bytes/siphash.py", "jit.py"):
        with (tmp_path / "processor" / "engine" / changed).open("a") as file:
            file.write("# more\n")
        said.append(run(script, tmp_path).stdout.split())
    hashes, verdicts = zip(*said, strict=True)
    assert len({*hashes}) == 3, "its own, and what it imports"
    assert len({*verdicts}) == 1, "what it does not import"


def test_the_cache_of_these_tests_is_the_users() -> None:
    assert FOLDER is None or FOLDER.is_relative_to(cache_dir())
