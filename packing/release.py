"""Makes a release in `dist/` and looks at it as a stranger would: ``make release VERSION=1.0.0``.

Nothing here needs an account. The version is set in pyproject.toml, and in the chart with it; the changelog has
to have its section. What is made is installed from scratch, by pip and its index, and has to run. The workflow
`.github/workflows/release.yml` calls this on a tag and publishes what comes out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
OWNER = "OWNER"
"""Stands where whoever publishes has to put a name: `fill_ins`."""
FILL_INS = ("pyproject.toml", "SECURITY.md", "CODE_OF_CONDUCT.md", ".github/CODEOWNERS")
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_SPELLED = {
    "pyproject.toml": r'(?m)^(version = ")[^"]+(")',
    "deploy/helm/seqmark/Chart.yaml": r'(?m)^((?:version: |appVersion: "))[^"\n]+("?)$',
}
_FORMULA = """\
# For a tap: brew install OWNER/tap/seqmark. Built by `make release`.
class Seqmark < Formula
  desc "{summary}"
  homepage "{repository}"
  url "{repository}/releases/download/v{version}/{wheel}", using: :nounzip
  version "{version}"
  sha256 "{sha256}"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    system Formula["python@3.13"].opt_bin/"python3.13", "-m", "venv", libexec
    system libexec/"bin/pip", "install", "--disable-pip-version-check", "./{wheel}"
    bin.install_symlink libexec/"bin/seqmark"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/seqmark --version")
  end
end
"""


class ReleaseError(Exception):
    """Something has to be done before this can be released; says what."""


def notes(changelog: str, version: str) -> str:
    """Return what the changelog says of a version.

    Raises:
        ReleaseError: It has no section for it, an empty one, or still something above it that is unreleased.
    """
    sections: dict[str, str] = dict(re.findall(r"(?ms)^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", changelog))
    if not sections.get(version, "").strip():
        raise ReleaseError(f"CHANGELOG.md has no section `## {version}`: write what its readers need to know")
    if sections.get("Unreleased", "").strip():
        raise ReleaseError(f"CHANGELOG.md has lines under `## Unreleased`: move them below `## {version}`")
    return sections[version].strip()


def set_version(version: str, root: Path = ROOT) -> None:
    """Write the version where it stands.

    Raises:
        ReleaseError: It is not a version, or a file does not have one.
    """
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a version such as 1.0.0 or 1.1.0rc1")
    for name, pattern in _SPELLED.items():
        text = (root / name).read_text(encoding="utf-8")
        new, count = re.subn(pattern, rf"\g<1>{version}\g<2>", text)
        if not count:
            raise ReleaseError(f"{name} has no version")
        if new != text:
            (root / name).write_text(new, encoding="utf-8")


def fill_ins(root: Path = ROOT) -> list[str]:
    """Return the files in which somebody still has to put a name in place of ``OWNER``."""
    return [name for name in FILL_INS if re.search(rf"\b{OWNER}\b", (root / name).read_text(encoding="utf-8"))]


def pack(folder: Path, archive: Path, inside: str) -> None:
    """Pack a folder, byte for byte the same each time."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for file in sorted(folder.rglob("*")):
            tar.add(file, f"{inside}/{file.relative_to(folder).as_posix()}", recursive=False, filter=plain)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def check_metadata(wheel: Path, version: str) -> None:
    """Look at what a registry would show.

    Raises:
        ReleaseError: A link is relative, an address or the command is missing, or the version is another.
    """
    with zipfile.ZipFile(wheel) as archive:
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        read = HeaderParser().parsestr(archive.read(info).decode())
        entry = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    text = str(read.get_payload())
    relative = re.findall(r"\]\((?!\w+:|#)([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```$", "", text))
    urls = {line.partition(",")[0] for line in read.get_all("Project-URL", [])}
    for fault, found in (
        (f"version {read['Version']} in place of {version}", read["Version"] != version),
        (f"relative links in the description: {', '.join(relative)}", relative),
        ("no address of the repository, documentation or issues", not {"Repository", "Documentation"} <= urls),
        ("no command `seqmark`, by which `uvx seqmark` starts", "seqmark = " not in entry),
    ):
        if found:
            raise ReleaseError(f"{wheel.name}: {fault}")


def try_out(wheel: Path, version: str, folder: Path) -> Path:
    """Install the wheel into an empty environment and run the first commands; return the environment.

    Raises:
        ReleaseError: What was installed is another version, or has compiled kernels that it should bring.
        subprocess.CalledProcessError: A command did not work; what it said is on stderr.
    """
    place, work = folder / "env", folder / "work"
    venv.create(place, with_pip=True)
    work.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
    environment["XDG_CACHE_HOME"] = str(folder / "cache")

    def run(*command: str | Path) -> str:
        done = subprocess.run(  # noqa: S603 - what was just installed
            [place / "bin" / command[0], *command[1:]],
            cwd=work,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
        )
        return done.stdout.decode()

    run("pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    run("pip", "check")
    if (said := run("seqmark", "--version").strip()) != f"seqmark {version}":
        raise ReleaseError(f"`seqmark --version` says {said!r}")
    run("seqmark", "init", "--help")
    if shutil.which("java"):
        run("seqmark", "demo", "--records", "1000", "--json")
        if compiled := list((folder / "cache").rglob("*.nbc")):
            raise ReleaseError(
                f"the demo compiled {len(compiled)} kernels: the wheel lacks those of this Python"
            )
    else:
        sys.stderr.write("no Java here: the demo of the installed wheel was left out\n")
    return place


def run_tool(*command: str | Path, **environment: str) -> None:
    """Run a tool of the build environment in the tree."""
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **environment}, check=True)  # noqa: S603 - tools of the lock


def project() -> dict[str, Any]:
    """Return the table ``[project]``."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def make(version: str, kernels: str) -> None:
    """Make everything, in the order in which it can fail cheaply.

    Raises:
        ReleaseError: Something has to be done first.
    """
    said = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    set_version(version)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    run_tool("hatchling", "build", "-d", str(DIST), SEQMARK_KERNELS=kernels)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run_tool("twine", "check", "--strict", wheel, sdist)
    check_metadata(wheel, version)
    with tempfile.TemporaryDirectory(prefix="seqmark-release-") as name:
        folder = Path(name)
        site = folder / "site"
        config = ("--config-file", "docs/website/mkdocs.yml")
        run_tool("mkdocs", "build", "--quiet", "--strict", *config, "-d", site, NO_MKDOCS_2_WARNING="1")
        pack(site, DIST / f"seqmark-docs-{version}.tar.gz", f"seqmark-docs-{version}")
        pack(ROOT / "deploy" / "helm" / "seqmark", DIST / f"seqmark-chart-{version}.tgz", "seqmark")
        place = try_out(wheel, version, folder)
        bill = DIST / f"seqmark-{version}.cdx.json"
        run_tool("cyclonedx_py", "environment", "--output-reproducible", "-o", bill, place / "bin" / "python")
    table = project()
    formula = _FORMULA.format(
        summary=table["description"].partition(":")[0],
        repository=table["urls"]["Repository"],
        version=version,
        wheel=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
    (DIST / "seqmark.rb").write_text(formula, encoding="utf-8")
    (DIST / "NOTES.md").write_text(said + "\n", encoding="utf-8")
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def main(version: str, kernels: str, *options: str) -> int:
    """Make a release; with ``--publish`` refuse while a name is missing."""
    open_places = fill_ins()
    if open_places and "--publish" in options:
        sys.stderr.write(f"release: put a name in place of {OWNER} in {', '.join(open_places)}\n")
        return 1
    try:
        make(version, str(Path(kernels).resolve()))
    except (ReleaseError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    for file in sorted(DIST.iterdir()):
        sys.stderr.write(f"dist/{file.name}: {file.stat().st_size / 1e6:.2f} MB\n")
    if open_places:
        sys.stderr.write(f"before this is published: a name in place of {OWNER} in {', '.join(open_places)}\n")
    sys.stderr.write(f"released in dist/: commit, then `git tag v{version}`; its push publishes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
