"""Each worker on a host has a folder of its own, and finds it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processor.errors import StopError
from processor.state import home as homes
from processor.state.home import Home
from processor.state.kv.rocks import RocksStore
from tests.support.worker.disk import open_to_others

ROOT = Path(__file__).parents[3]


def test_the_first_worker_gets_the_first_folder(tmp_path: Path) -> None:
    home = Home(tmp_path, "clicks")
    assert home.folder == tmp_path / "clicks" / "home-0"
    assert home.folder.is_dir()
    assert home.partition("events", 7) == home.folder / "events" / "7"
    home.release()


def test_workers_at_the_same_time_get_different_folders_and_applications_do_not_meet(tmp_path: Path) -> None:
    homes_held = [Home(tmp_path, "clicks"), Home(tmp_path, "clicks"), Home(tmp_path, "other")]
    names = [home.folder.relative_to(tmp_path).as_posix() for home in homes_held]
    assert names == ["clicks/home-0", "clicks/home-1", "other/home-0"]
    for home in homes_held:
        home.release()


def test_a_folder_that_was_given_free_is_taken_again_with_what_it_holds(tmp_path: Path) -> None:
    first, second = Home(tmp_path, "clicks"), Home(tmp_path, "clicks")
    (first.folder / "state").write_text("kept")
    first.release()
    third = Home(tmp_path, "clicks")
    assert third.folder == first.folder
    assert (third.folder / "state").read_text() == "kept"
    second.release()
    third.release()


def test_the_folder_of_a_killed_worker_is_free(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from processor.state.home import Home\n"
        "home = Home(sys.argv[1], 'clicks')\n"
        "print(home.folder.name, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"home-0\n"
        while_it_lives = Home(tmp_path, "clicks")
        other.kill()
    after = Home(tmp_path, "clicks")
    assert (while_it_lives.folder.name, after.folder.name) == ("home-1", "home-0")
    while_it_lives.release()
    after.release()


def test_a_child_process_does_not_hold_its_parents_folder(tmp_path: Path) -> None:
    home = Home(tmp_path, "clicks")
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"  # files that are not inherited are closed by then
        home.release()
        again = Home(tmp_path, "clicks")
        assert again.folder == home.folder
        again.release()
        child.communicate()


def test_a_folder_that_cannot_be_made_stops_with_the_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StopError, match=r"state_dir .*file.*worker\.state_dir"):
        Home(tmp_path / "file", "clicks")


def test_what_an_earlier_version_left_open_to_others_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "clicks"
    deep = root / "home-3" / "p" / "0"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    (deep / "link").symlink_to(tmp_path / "theirs")
    (tmp_path / "theirs").touch(mode=0o644)
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    state_dir_mode = tmp_path.stat().st_mode

    home = Home(tmp_path, "clicks")

    assert open_to_others(root) == []
    assert (tmp_path.stat().st_mode, (tmp_path / "theirs").stat().st_mode & 0o777) == (state_dir_mode, 0o644)
    home.release()


def test_whatever_the_umask_is_folders_are_made_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path / "var" / "state", "clicks")
        RocksStore(home.partition("p", 0)).close()
    finally:
        os.umask(before)
    folders = [path for path in (tmp_path / "var" / "state").rglob("*") if path.is_dir()]
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "var" / "state", *folders)] == [0o700] * 5
    home.release()


def test_a_folder_of_another_user_is_worked_in_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(path: Path, mode: int) -> None:
        raise PermissionError(1, f"Operation not permitted: {mode:o}", str(path))

    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks").chmod(0o770)
    monkeypatch.setattr(Path, "chmod", refused)
    home = Home(tmp_path, "clicks")
    assert "can be read by other users" in caplog.text
    home.release()


def test_too_many_workers_on_a_host_are_refused_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "MOST_HOMES", 1)
    held = Home(tmp_path, "clicks")
    open_before = open_files()
    with pytest.raises(StopError, match="1 workers hold a folder"):
        Home(tmp_path, "clicks")
    assert open_files() == open_before
    held.release()


def open_files() -> int:
    """Count this process's open files, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
