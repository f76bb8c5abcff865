"""Reads out of a page or an example what it tells to type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SHELL = re.compile(r"^```(?:shell|sh|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OF_EXAMPLE = re.compile(r"^#   ((?:seqmark|export) .*)$", re.MULTILINE)
# Of an example's line what stands apart, and is no option, says what it does.
_SAID = re.compile(r"\s{3,}(?! *-).*$")


def typed(page: Path) -> list[str]:
    """Return the lines to type of a page's shell blocks, or of an example's head, without comments.

    A line that goes on in the next is one, and what ``&&`` joins are several.
    """
    text = page.read_text()
    if page.suffix == ".md":
        lines = "\n".join(_SHELL.findall(text)).replace("\\\n", " ").splitlines()
    else:
        lines = [_SAID.sub("", line) for line in _OF_EXAMPLE.findall(text)]
    parts = [part for line in lines for part in re.sub(r"(^|\s+)#.*$", "", line).split(" && ")]
    return [" ".join(part.split()) for part in parts if part.strip()]
