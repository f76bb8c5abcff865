"""Wheel and sdist hold one package, all that it needs, and say truly what they ask for."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from tests.support.suite.installed import ROOT, build, distributions, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.suite.installed import Built, Installed

EXACT = {"aiokafka", "faust-streaming", "llvmlite", "numba", "rocksdict", "pyspark"}
"""Whose internals we lean on, or what they compile or store."""
# Imports every module, and prints which cannot be for want of what, and what came with the worker's.
IMPORT_ALL = """
import importlib, pkgutil, sys
import seqmark
light = sorted({"pydantic", "numpy", "numba", "aiokafka"} & set(sys.modules))
import seqmark.processor.worker.app, seqmark.processor.commands.run.worker, seqmark.processor.verify.certificate
extras = {"pyspark", "pyarrow", "matplotlib", "psycopg", "opentelemetry", "jgo", "pytest"}
heavy = sorted(extras & set(sys.modules))
lacking = {}
for found in pkgutil.walk_packages(seqmark.__path__, "seqmark.", onerror=lambda name: None):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        lacking.setdefault(error.name.partition(".")[0], []).append(found.name)
bare = sorted({"processor", "schemas", "spark_sink", "packing", "tests"} & set(sys.modules))
print({"light": light, "heavy": heavy, "lacking": lacking, "bare": bare})
"""


def test_the_wheel_has_one_package_with_all_its_files_and_the_licence(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        entry = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()

    tops = {name.split("/")[0] for name in names}
    assert {top.partition("-")[0] for top in tops} == {"seqmark"}
    assert sorted(top for top in tops if not top.endswith(".dist-info")) == ["seqmark"]
    programs = [path for top in ("processor", "schemas", "spark_sink") for path in (ROOT / top).rglob("*.*")]
    wanted = {
        path.relative_to(ROOT).as_posix() for path in programs if path.is_file() and path.suffix != ".pyc"
    }
    assert {f"seqmark/{path}" for path in wanted} <= names
    assert {"seqmark/py.typed", "seqmark/testing.py"} <= names
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"} <= names
    assert "seqmark = seqmark.__main__:main" in entry


def test_the_metadata_name_licence_extras_and_ranges_that_hold_what_is_tested(built: Built) -> None:
    told = metadata(built.wheel)

    assert (told["License-Expression"], told["Requires-Python"]) == ("Apache-2.0", "<3.15,>=3.11")
    assert set(told.get_all("Provides-Extra", [])) == {"spark", "report", "postgres", "otel", "all"}
    for text in told.get_all("Requires-Dist", []):
        asked = Requirement(text)
        exact = {each.operator for each in asked.specifier} == {"=="}
        assert exact is (asked.name in EXACT), text
        assert exact or {each.operator for each in asked.specifier} == {">=", "<"}, text
    # Fails where what is installed here is out of range.
    base = {each.name for each in distributions(told, [])}
    everything = {each.name for each in distributions(told, ["all"])}
    assert not base & {"pyspark", "pyarrow", "matplotlib", "psycopg", "pytest"}
    assert {"pyspark", "pyarrow", "matplotlib", "psycopg", "psycopg-binary", "opentelemetry-sdk"} <= everything


def test_the_sdist_builds_the_same_wheel_and_says_what_may_be_done_with_it(
    built: Built, tmp_path: Path
) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()

    (again,) = build(tmp_path / "dist", source, "wheel").glob("*.whl")

    assert again.read_bytes() == built.wheel.read_bytes()
    assert {"LICENSE", "NOTICE", "SECURITY.md", "README.md", "CHANGELOG.md"} <= {
        each.name for each in source.iterdir()
    }
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    assert project["version"] in built.sdist.name


def test_a_base_install_imports_all_but_what_its_extras_bring(base: Installed, tmp_path: Path) -> None:
    done = base.run("python", "-c", IMPORT_ALL, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    told = eval(done.stdout)  # noqa: S307 - what the line above printed
    assert (told["light"], told["heavy"], told["bare"]) == ([], [], [])
    assert told["lacking"].keys() <= {"pyspark", "py4j", "pyarrow", "psycopg", "opentelemetry", "pytest"}


def test_with_all_extras_every_module_imports_by_its_name_in_the_wheel(
    base: Installed, extras: Mapping[str, str], tmp_path: Path
) -> None:
    done = base.run("python", "-c", IMPORT_ALL, folder=tmp_path, env=extras)

    assert done.returncode == 0, done.stderr
    told = eval(done.stdout)  # noqa: S307 - what the line above printed
    assert (told["heavy"], told["bare"]) == ([], [])
    assert told["lacking"].keys() <= {"pytest"}
