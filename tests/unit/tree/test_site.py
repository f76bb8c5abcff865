"""The documentation site: it builds strictly, loads nothing from elsewhere, and has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "docs" / "website" / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once; with --strict a dead link, a missing anchor or an omitted page fails it."""
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [*command, "--config-file", str(CONFIG), "--site-dir", str(built)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return built


def test_every_page_is_in_the_navigation() -> None:
    """But the decisions: the site lists them by itself."""
    shown = set(re.findall(r"^ +- (\S+\.md)$", CONFIG.read_text(), re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}

    missing = {page for page in pages if not page.startswith("decisions/")} - shown

    assert not missing, f"no group of the navigation in docs/website/mkdocs.yml has {sorted(missing)}"


def test_the_landing_page_is_the_readme(site: Path) -> None:
    landing = (site / "index.html").read_text()

    for heading in re.findall(r"^## (\w[\w ]+)$", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert f">{heading}<" in landing, heading


def test_links_out_of_docs_lead_to_pages_of_the_site(site: Path) -> None:
    landing = (site / "index.html").read_text()

    assert 'href="guarantees.html#bloom-filters"' in landing
    assert 'href="examples.html#contenttoml"' in landing
    assert 'id="contenttoml"' in (site / "examples.html").read_text()
    assert 'href="decisions/index.html"' in landing
    assert 'src="images/' in landing
    assert 'href="guarantees.html' in (site / "changelog.html").read_text()


def test_an_inner_list_is_nested(site: Path) -> None:
    page = (site / "guarantees.html").read_text()

    inner = page.partition("Time is the partition")[2].partition("</ul>")[0]

    assert "<ul>" in inner
    assert "By timestamps" in inner


def test_a_list_right_below_a_paragraph_is_a_list(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.findall(r"<p>[^<]*\n *- ", page.read_text()), page.name
    assert "Rejected.</strong></p>\n<ul>" in (site / "decisions/0005-state-lags-kafka.html").read_text()


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    """Links may lead anywhere; what a browser fetches to show a page is the site's own."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text)
        fetched += re.findall(r'<link[^>]* rel="?(?:stylesheet|preconnect|icon|preload)"?[^>]*>', text)
        assert fetched
        assert not [each for each in fetched if "//" in each], page.name


def test_no_picture_is_heavy() -> None:
    for picture in ROOT.glob("docs/images/*"):
        assert picture.stat().st_size <= 200_000, picture.name


def test_a_search_finds_words_of_all_kinds_of_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()

    for page in (
        "index.html",
        "operations.html",
        "examples.html",
        "changelog.html",
        "decisions/0004-slots.html",
    ):
        assert f'"location":"{page}' in index, page


def rows_of_settings() -> Iterator[str]:
    """Yield what stands in the right columns of docs/coming-from.md as ``key = value``."""
    for line in (ROOT / "docs/coming-from.md").read_text().splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`(\w+ = [^`]+)`", line.rstrip(" |").rpartition(" | ")[2])


@pytest.mark.parametrize("setting", sorted(set(rows_of_settings())))
def test_a_setting_that_another_tool_is_led_to_exists(setting: str) -> None:
    (key,) = tomllib.loads(setting)

    assert (
        f"`{key}`" in (ROOT / "docs/configuration.md").read_text()
        or f"`{key}." in (ROOT / "docs/configuration.md").read_text()
    )
