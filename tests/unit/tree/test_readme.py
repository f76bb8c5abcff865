"""Is what README.md shows true? Its config examples load, its commands and links exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from processor.commands import cli
from processor.config.load import load, require_pipelines

ROOT = Path(__file__).parents[3]
PROGRAMS = (ROOT / "processor", ROOT / "spark_sink")
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shell_lines(program: str) -> list[list[str]]:
    """Return the shell lines that call ``program``, as words."""
    lines = [line for block in blocks("shell") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line for line in words if line and line[0] == program]


@pytest.mark.parametrize("example", blocks("toml"))
def test_a_config_example_loads_and_can_be_run(example: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(example)
    secrets = dict.fromkeys(re.findall(r"SEQMARK_\w+", example), "secret")

    settings = load(path, secrets)

    require_pipelines(settings)
    assert settings.pipelines


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"`seqmark ([a-z]+)", README))
    named |= {line[1] for line in shell_lines("seqmark")}

    assert {"broker", "check", "topics", "worker", "generate", "verify", "demo"} <= named
    for command in sorted(named):
        done = CliRunner().invoke(cli.main, [command, "-h"])
        assert done.exit_code == 0, (command, done.output)


def test_every_option_that_is_shown_exists() -> None:
    for line in shell_lines("seqmark"):
        shown = {word for word in line[2:] if word.startswith("-")}

        done = CliRunner().invoke(cli.main, [line[1], "-h"])

        for option in shown:
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", done.output), (line, option)


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z]+)`", README)) | {line[1] for line in shell_lines("make")}

    assert {"demo", "test", "bench"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name
)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize(
    "page",
    [
        *sorted(set(ROOT.glob("*.md")) - {ROOT / "CHANGELOG.md"}),
        *sorted(ROOT.glob("docs/**/*.md")),
        ROOT / "tests/README.md",
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_file_and_module_that_a_page_names_is_there(page: Path) -> None:
    """Files of an earlier commit are named with it; those of the changelog are those of its day."""
    text = page.read_text()
    for path in re.findall(r"`(\w+(?:/\w+)+\.(?:json|md|py|toml))`(?! of commit)", text):
        assert any((folder / path).exists() for folder in (ROOT, page.parent, *PROGRAMS)), path
    for module in re.findall(r"`((?:processor|schemas|spark_sink|tests|benchmarks)(?:\.[a-z_0-9]+)+)", text):
        assert any((ROOT / module.replace(".", "/")).with_suffix(suffix).exists() for suffix in ("", ".py")), (
            module
        )
