"""A release: changelog, version, links and workflows; what `make release` tries out is not repeated."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from packing.matrix import PYTHONS
from packing.readme import absolute
from packing.release import FILL_INS, ReleaseError, notes, pack, set_version
from packing.subject import fault

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_a_release_has_a_section_of_its_own_and_nothing_is_left_above_it() -> None:
    assert (
        notes("# C\n\n## Unreleased\n\n## 1.0.0 - 2026-12-01\n\nAll.\n\n## 0.1.0\n\nOld.\n", "1.0.0") == "All."
    )
    with pytest.raises(ReleaseError, match=r"no section `## 1\.1\.0`"):
        notes("## Unreleased\n\n## 1.0.0\n\nAll.\n", "1.1.0")
    with pytest.raises(ReleaseError, match="under `## Unreleased`"):
        notes("## Unreleased\n\n- More.\n\n## 1.0.0\n\nAll.\n", "1.0.0")


def test_the_version_is_set_in_the_project_and_in_the_chart(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "deploy/helm/seqmark/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)

    set_version("7.8.9rc1", tmp_path)

    chart = yaml.safe_load((tmp_path / "deploy/helm/seqmark/Chart.yaml").read_text())
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert {chart["version"], chart["appVersion"], project["project"]["version"]} == {"7.8.9rc1"}
    del project["project"]["version"]
    assert project == {
        **PROJECT,
        "project": {key: value for key, value in PROJECT["project"].items() if key != "version"},
    }
    with pytest.raises(ReleaseError, match="is not a version"):
        set_version("v1", tmp_path)


def test_links_and_pictures_of_the_metadata_lead_to_the_repository() -> None:
    text = "[![a](docs/a.png)](docs/a.md) [b](#b) [c](https://c) ![d](docs/d.svg)"

    made = absolute(text, "https://h/o/seqmark", "v1")

    raw, blob = "https://h/o/seqmark/raw/v1/docs", "https://h/o/seqmark/blob/v1/docs"
    assert made == f"[![a]({raw}/a.png)]({blob}/a.md) [b](#b) [c](https://c) ![d]({raw}/d.svg)"


def test_an_archive_is_the_same_each_time_and_has_one_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    for name in ("one.tgz", "two.tgz"):
        pack(tmp_path / "in", tmp_path / name, "seqmark")
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(tmp_path / "one.tgz") as archive:
        assert archive.getnames() == ["seqmark/a.txt"]


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("Say why a slot waits\n\nIt did not.\n", None),
        ("# only a comment\n", "no subject"),
        ("x" * 71, "71 characters"),
        ("Say it\nat once\n", "an empty line"),
        ("Revert " + "x" * 80, None),
    ],
)
def test_a_subject_fits_a_line(message: str, wrong: str | None) -> None:
    found = fault(message)
    assert found is None if wrong is None else wrong in (found or "")


def test_pythons_and_tools_are_the_same_wherever_they_stand() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    assert {f"Programming Language :: Python :: {each}" for each in PYTHONS} <= set(classifiers)
    for name in ("ci.yml", "release.yml"):
        assert str(list(PYTHONS)).replace("'", '"') in (ROOT / ".github/workflows" / name).read_text()
    groups, lock = PROJECT["dependency-groups"], (ROOT / "packing/requirements.lock").read_text()
    assert PROJECT["build-system"]["requires"][0] in groups["build"]
    for pinned in (*groups["build"], *(each for each in PROJECT["project"]["dependencies"] if "==" in each)):
        assert f"\n{pinned} \\\n" in lock
    assert set(groups["build"]) - set(groups["dev"]) == {"cyclonedx-bom==7.5.0", "twine==7.0.0"}


def test_readme_and_the_newest_section_of_the_changelog_are_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 150
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[2]
    assert newest.count("\n") <= 150


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_the_token_reads_unless_a_job_says_more(workflow: Path) -> None:
    text = workflow.read_text()
    for action in re.findall(r"uses: (.*)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action), action
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert all((ROOT / name).exists() for name in FILL_INS)


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint") or shutil.which("actionlint", path=str(Path.home() / "go/bin"))
    if program is None:
        pytest.skip("no actionlint: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12")
    done = subprocess.run([program, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
