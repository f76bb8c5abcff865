"""README.md and the pages are true: configs load; commands, options, links and headings exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from processor.commands import cli
from processor.config.load import load, require_pipelines

ROOT = Path(__file__).parents[3]
PROGRAMS = (ROOT / "processor", ROOT / "spark_sink")
README = (ROOT / "README.md").read_text()
SHOWING = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/commands/*.md")))


def blocks(page: Path, language: str) -> list[str]:
    """Return a page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def shell_lines(page: Path, program: str) -> list[list[str]]:
    """Return the shell lines of a page that call ``program``, as words."""
    lines = [line for block in blocks(page, "shell") for line in block.replace("\\\n", "").splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line for line in words if line and line[0] == program]


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"{page.name}-{number}")
        for page in SHOWING
        for number, example in enumerate(blocks(page, "toml"))
        if "[kafka]" in example
    ],
)
def test_a_config_example_loads_and_can_be_run(example: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(example)
    secrets = dict.fromkeys(re.findall(r"SEQMARK_\w+PASSWORD", example), "secret")

    settings = load(path, secrets)

    require_pipelines(settings)
    assert settings.pipelines


@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`seqmark ([a-z]+)", page.read_text()))
    named |= {line[1] for line in shell_lines(page, "seqmark")}

    for command in sorted(named):
        done = CliRunner().invoke(cli.main, [command, "-h"])
        assert done.exit_code == 0, (command, done.output)


def test_the_page_of_commands_names_every_command() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    named = set(re.findall(r"^\| `seqmark ([a-z]+)`", page, re.MULTILINE))

    listed = set(cli.main.list_commands(click.Context(cli.main)))

    assert {"aggregate", "sink"} & named
    assert listed - {"aggregate", "sink"} == named - {"aggregate", "sink"}


@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.name)
def test_every_option_that_is_shown_exists(page: Path) -> None:
    for line in shell_lines(page, "seqmark"):
        shown = {word for word in line[2:] if re.match("--?[a-z]", word)}

        done = CliRunner().invoke(cli.main, [line[1], "-h"])

        for option in shown:
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", done.output), (line, option)


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z]+)`", README)) | {
        line[1] for line in shell_lines(ROOT / "README.md", "make")
    }

    assert {"demo", "test", "bench"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that a forge gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in texts}


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), ROOT / "tests/README.md"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_link_of_a_page_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    """As a forge reads it, in place; `test_site.py` follows the links of the site."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if re.match(r"https?:|mailto:", link):
            continue
        led = page.parent / path if path else page
        assert led.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(led), f"{page.name}: {link} has no such heading"


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
