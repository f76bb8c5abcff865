"""What a state folder is and holds is compared with the config, without a broker and without a worker."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.check import machine
from processor.inspection.check.machine import KEY, check_state_folder
from processor.inspection.findings import Findings
from processor.judges.factory import mode_of
from processor.paths import PRIVATE_FOLDER
from processor.state.kv.rocks import RocksStore, peek
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY
from schemas.config import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

CLICKS = (Path(__file__).parents[4] / "examples" / "clicks.toml").read_text(encoding="utf-8")


def settings(folder: Path, application: str = "clicks", **pipeline: Any) -> Settings:
    raw = tomllib.loads(CLICKS)
    raw["worker"] |= {"state_dir": str(folder), "application_id": application}
    raw["pipelines"][0] |= pipeline
    return Settings.model_validate(raw)


def checked(config: Settings) -> Findings:
    found = Findings()
    check_state_folder(config, found)
    assert not found.problems, "another user's machine may be the worker's"
    return found


def write_state(config: Settings) -> Path:
    """Write what a worker of this config leaves behind."""
    (pipeline,) = config.pipelines
    application = str(config.worker.application_id)
    folder = config.worker.state_dir / application / "home-0" / pipeline.name / "3"
    folder.parents[2].mkdir(mode=PRIVATE_FOLDER)
    store = RocksStore(folder)
    state = Position(7, -1, 0, mode_of(pipeline).definition(), b"s" * 16, 4)
    store.write({POSITION_KEY: state.encode()})
    store.close()
    return folder


def test_a_folder_that_is_not_there_yet_is_right_where_it_can_be_made(tmp_path: Path) -> None:
    found = checked(settings(tmp_path / "var" / "state"))
    assert (found.warnings, found.of("info")) == ([], [])
    assert [each.key for each in found.of("ok")] == [KEY]
    assert "will be made, writable, " in found.of("ok")[0].message
    assert not (tmp_path / "var").exists()


def test_a_state_that_these_rules_have_made_is_right(tmp_path: Path) -> None:
    config = settings(tmp_path)
    write_state(config)
    found = checked(config)
    assert (found.warnings, found.of("info")) == ([], [])
    assert [each.key for each in found.of("ok")] == [KEY, "pipelines.0.dedup"]


@pytest.mark.parametrize(
    "dedup",
    [
        {"mode": "insert-id", "id": [{"from": "key"}], "window": "7d"},
        {"mode": "watermark", "sequence": {"from": "header", "name": "other"}},
    ],
    ids=["mode", "sequence"],
)
def test_a_definition_that_was_changed_over_a_state_is_said_with_what_to_do(
    tmp_path: Path, dedup: dict[str, Any]
) -> None:
    folder = write_state(settings(tmp_path))
    (warning,) = checked(settings(tmp_path, dedup=dedup)).warnings
    assert warning.key == "pipelines.0.dedup"
    for said in (str(folder), "Set it back", "another worker.application_id", "seqmark reset -c FILE"):
        assert said in warning.message


def test_a_state_is_looked_into_while_a_worker_has_it_and_nothing_is_left_there(tmp_path: Path) -> None:
    folder = write_state(settings(tmp_path))
    store = RocksStore(folder)
    before = set(folder.iterdir())
    assert Position.decode(peek(folder, POSITION_KEY) or b"").next_offset == 7
    assert peek(folder, b"nothing") is None
    assert set(folder.iterdir()) == before
    store.close()


def test_a_state_that_is_not_whole_is_left_to_the_worker_which_rebuilds_it(tmp_path: Path) -> None:
    folder = write_state(settings(tmp_path))
    (folder / "CURRENT").write_text("nonsense")
    assert checked(settings(tmp_path)).warnings == []


def test_a_state_of_another_application_is_not_found_again_under_a_new_name(tmp_path: Path) -> None:
    write_state(settings(tmp_path, "before"))
    (warning,) = checked(settings(tmp_path, "after")).warnings
    assert warning.key == "worker.application_id"
    assert "holds no state of application after, but of before" in warning.message
    write_state(settings(tmp_path, "after"))
    assert checked(settings(tmp_path, "after")).warnings == [], "applications may share a folder"


def test_a_state_of_a_pipeline_that_is_not_in_the_config_is_noted(tmp_path: Path) -> None:
    write_state(settings(tmp_path))
    (note,) = checked(settings(tmp_path, name="renamed")).of("info")
    assert "holds state of clicks, which is no pipeline of this config" in note.message


def as_file(folder: Path) -> None:
    folder.write_text("")


def open_to_others(folder: Path) -> None:
    (folder / "clicks").mkdir(parents=True)
    (folder / "clicks").chmod(0o755)


@pytest.mark.parametrize(
    ("prepare", "said"), [(as_file, "is no folder"), (open_to_others, "can be read by other users")]
)
def test_a_folder_that_is_none_or_open_is_said(
    tmp_path: Path, prepare: Callable[[Path], None], said: str
) -> None:
    prepare(tmp_path / "state")
    found = checked(settings(tmp_path / "state"))
    assert said in [*found.warnings, *found.of("info")][0].message


def test_a_disk_with_little_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_BYTES", 1 << 62)
    (warning,) = checked(settings(tmp_path)).warnings
    assert f"MB are free in {tmp_path}" in warning.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_said() -> None:
    with TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent) / "state"
        config, found = settings(folder), Findings()
        os.seteuid(65534)
        try:
            check_state_folder(config, found)
        finally:
            os.seteuid(0)
    (warning,) = found.warnings
    assert f"cannot be made: {parent} is not writable for user 65534 (it is of user 0)" in warning.message
