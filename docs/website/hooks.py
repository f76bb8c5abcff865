"""Makes the site's pages of what lies outside `docs/`, and lets every link lead to a page of the site.

The sources stay as they are: on a forge they are read in place. README is the landing page; a link to a file
that the site does not have is shown as its text. MkDocs calls the functions by their names.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markdown.blockprocessors import build_block_parser
from markdown.extensions import Extension
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

if TYPE_CHECKING:
    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "SUPPORT.md": "support.md",
}
"""Pages of the site by the files of the repository that they are."""
EXAMPLES, DECISIONS = "examples.md", "decisions/index.md"

_FENCE = re.compile(r"^( *)```.*?^\1```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
_anchor = slugify(case="lower")


class NestedByTwo(Extension):  # type: ignore[misc] # Python-Markdown ships no types
    """Two spaces nest a list, as on a forge; Python-Markdown wants four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Python-Markdown's name
        """Take two spaces for a level, before other extensions add what they parse."""
        md.tab_length = 2
        md.parser = build_block_parser(md)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Nest lists and name headings as a forge does; list the decisions."""
    config.markdown_extensions.insert(0, NestedByTwo())
    config.mdx_configs["toc"]["slugify"] = _anchor
    for part in config.nav or []:
        if part.get("Decisions") == "decisions/":
            part["Decisions"] = [DECISIONS, *(f"decisions/{page.name}" for page in _decisions())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no file in `docs/`."""
    made = {page: (ROOT / name).read_text() for name, page in PAGES.items()}
    made[EXAMPLES] = _examples()
    made[DECISIONS] = _list_of_decisions()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to pages of the site, and let lists follow a paragraph; leave blocks of code as they are."""
    source = page.file.src_uri
    of_root = {made: name for name, made in PAGES.items()}
    folder = posixpath.dirname(of_root.get(source, f"docs/{source}"))

    def leads(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        if target.startswith("#") or ":" in target:
            return link[0]
        path, hash_, anchor = target.partition("#")
        found = _page_of(posixpath.normpath(posixpath.join(folder, path)))
        if found is None:
            return text
        way = posixpath.relpath(found.partition("#")[0], posixpath.dirname(source) or ".")
        return f"{image}[{text}]({way}{hash_ + anchor or ''.join(found.partition('#')[1:])})"

    written, at = [], 0
    for fence in _FENCE.finditer(markdown):
        written += [_parted(_LINK.sub(leads, markdown[at : fence.start()])), fence[0]]
        at = fence.end()
    return "".join([*written, _parted(_LINK.sub(leads, markdown[at:]))])


def _parted(text: str) -> str:
    """Put an empty line before a list that begins right below a paragraph: a forge needs none."""
    lines: list[str] = []
    in_paragraph = False
    for line in text.split("\n"):
        if in_paragraph and _ITEM.match(line):
            lines.append("")
        if not line.strip() or _ITEM.match(line):
            in_paragraph = False
        elif not lines or not lines[-1].strip():
            in_paragraph = True
        lines.append(line)
    return "\n".join(lines)


def _page_of(path: str) -> str | None:
    """Return the page of the site for a path from the root of the repository; None where there is none."""
    if path in PAGES:
        return PAGES[path]
    if path == "docs/decisions":
        return DECISIONS
    folder, _, name = path.partition("/")
    if folder == "docs":
        return name
    if folder == "examples":
        return f"{EXAMPLES}#{_anchor(name, '-')}" if name else EXAMPLES
    return None


def _examples() -> str:
    parts = ["# Examples", "Config files that can be run as they are; tests read each of them."]
    for file in sorted((ROOT / "examples").glob("*.toml")):
        parts += [f"## {file.name}", f"```toml\n{file.read_text()}```"]
    return "\n\n".join(parts) + "\n"


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def _list_of_decisions() -> str:
    lines = [
        "# Decisions\n",
        "What is hard to take back: why it is so, what was rejected, and what would change our mind.\n",
    ]
    for page in _decisions():
        title = page.read_text().splitlines()[0].removeprefix("# ")
        lines += [f"- [{title}]({page.name})"]
    return "\n".join(lines) + "\n"
