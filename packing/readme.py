"""Gives the metadata README.md with absolute links: a registry shows it without the files beside it.

Hatchling loads this file alone, so it imports nothing of the tree. Where the project lives says
`[project.urls]` in pyproject.toml, and nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Fills in ``readme``, which pyproject.toml declares as dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the text into the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        where = metadata["urls"]["Repository"]
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, where, f"v{metadata['version']}"),
        }


def absolute(text: str, repository: str, revision: str) -> str:
    """Return a page whose relative links and pictures lead to a revision of the repository."""

    def leads(link: re.Match[str]) -> str:
        image, shown, path = link.groups()
        shown = _LINK.sub(leads, shown)
        return f"{image}[{shown}]({repository}/{'raw' if image else 'blob'}/{revision}/{path})"

    return _LINK.sub(leads, text)
