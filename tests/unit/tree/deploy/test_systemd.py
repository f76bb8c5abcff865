"""The systemd units say what a worker needs, and systemd understands them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from processor.config.load import load
from processor.errors import EXIT_CONFIG
from processor.worker.app import STOP_S

ROOT = Path(__file__).parents[4]
UNITS = [ROOT / "deploy/systemd" / name for name in ("seqmark.service", "seqmark@.service")]

Settings = dict[str, list[str]]


def service(unit: Path) -> Settings:
    """Return the section [Service]: some keys stand there more than once."""
    lines = unit.read_text().partition("[Service]\n")[2].partition("\n[")[0].splitlines()
    found: Settings = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_wrong_config_is_not_tried_again_and_a_stop_has_time(unit: Path) -> None:
    said = service(unit)

    assert said["Restart"] == ["on-failure"]
    assert said["RestartPreventExitStatus"] == [str(EXIT_CONFIG)]
    assert int(said["TimeoutStopSec"][0]) > STOP_S + 3
    assert said["ExecStart"][0].startswith("/opt/seqmark/bin/seqmark worker -c ")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_variables_are_keys_of_the_config_and_its_folders_are_the_ones_it_may_write_to(unit: Path) -> None:
    said = service(unit)
    environ = dict(
        value.replace("%l", "host").replace("%i", "1").split("=", 1) for value in said["Environment"]
    )

    settings = load(ROOT / "examples/insert-id.toml", environ)

    assert str(settings.worker.state_dir) == f"/var/lib/{said['StateDirectory'][0]}"
    assert settings.worker.group_instance_id in {"host", "host-1"}
    assert f"{environ['XDG_CACHE_HOME']}/seqmark" == f"/var/cache/{said['CacheDirectory'][0]}"
    assert environ.get("CONFIG", "/etc/seqmark/seqmark.toml") == "/etc/seqmark/seqmark.toml"


def test_both_units_are_hardened_alike() -> None:
    one, several = map(service, UNITS)
    apart = {"Environment", "EnvironmentFile", "ExecStart"}

    assert {key: one[key] for key in one.keys() - apart} == {
        key: several[key] for key in several.keys() - apart
    }


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit_and_finds_it_closed(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    # Neither the program nor its user is on this machine.
    here = unit.read_text().replace("/opt/seqmark/bin/seqmark", sys.executable)
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(here.replace("User=seqmark", "User=daemon").replace("Group=seqmark", "Group=daemon"))

    verified = subprocess.run(
        [program, "verify", "--man=no", copy], capture_output=True, text=True, timeout=60, check=False
    )
    closed = subprocess.run(
        [program, "security", "--offline=true", "--threshold=25", "--no-pager", copy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (verified.returncode, verified.stderr) == (0, "")
    assert closed.returncode == 0, closed.stdout + closed.stderr
