"""A checkpoint that has counted something else is found without Spark."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from processor.inspection.check.machine import check_checkpoints
from processor.inspection.findings import Findings
from schemas.config import Settings
from schemas.event import EventModel
from spark_sink.query.definition import Definition, meaning, read_definition, write_definition

AGGREGATES = (Path(__file__).parents[4] / "examples" / "aggregates.toml").read_text(encoding="utf-8")


class Folder:
    """Writes where Spark would."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        Path(self.folder, name).write_text(text)

    def read(self, name: str) -> str:
        return Path(self.folder, name).read_text()


def settings(checkpoint: str, **changes: Any) -> Settings:
    raw = tomllib.loads(AGGREGATES)
    raw["aggregates"] = [raw["aggregates"][0] | {"checkpoint": checkpoint} | changes]
    return Settings.model_validate(raw)


def counted(config: Settings) -> None:
    """Leave beside the checkpoint what the Spark job leaves there."""
    (sink,) = config.aggregates
    files: Any = Folder(sink.checkpoint.removeprefix("file://"))
    write_definition(files, Definition(meaning(sink, EventModel.load(sink.event)), None))


def checked(config: Settings) -> Findings:
    found = Findings()
    check_checkpoints(config, found)
    return found


def test_a_checkpoint_that_is_not_there_yet_says_nothing(tmp_path: Path) -> None:
    assert checked(settings(str(tmp_path / "checkpoint"))) == Findings()


def test_a_checkpoint_of_the_same_aggregates_is_right(tmp_path: Path) -> None:
    for place in (str(tmp_path / "one"), f"file://{tmp_path / 'two'}"):
        counted(settings(place))
        found = checked(settings(place))
        assert (found.warnings, [each.key for each in found.of("ok")]) == ([], ["aggregates.0.checkpoint"])


@pytest.mark.parametrize("by_kernels", [True, False])
def test_by_what_a_checkpoint_sums_up_is_read_back(tmp_path: Path, *, by_kernels: bool) -> None:
    files: Any = Folder(str(tmp_path))
    write_definition(files, Definition({"topic": "clean"}, "id", by_kernels))
    assert read_definition(files) == Definition({"topic": "clean"}, "id", by_kernels)


def test_what_a_checkpoint_has_counted_otherwise_is_named_with_what_to_do(tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    counted(settings(place))
    (warning,) = checked(settings(place, topic="other.clean")).warnings
    assert warning.key == "aggregates.0.checkpoint"
    assert "topic was clicks.clean, is other.clean" in warning.message
    assert "name a new checkpoint and a new output" in warning.message


def test_a_checkpoint_that_cannot_be_read_or_is_elsewhere_is_said(tmp_path: Path) -> None:
    for text, said in (("{", "cannot be read"), ('{"version": 2}', "is of version 2")):
        (tmp_path / "seqmark.json").write_text(text)
        (warning,) = checked(settings(str(tmp_path))).warnings
        assert said in warning.message
    (note,) = checked(settings("s3a://key:hunter2@bucket/checkpoint")).of("info")
    assert (note.key, "hunter2" in note.message) == ("aggregates.0.checkpoint", False)
