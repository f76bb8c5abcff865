"""Reads the dashboard, one HTML file, and says by which policy a browser may run it.

Its one script and its one style are allowed by their hashes, and may talk to this worker only: what anything
else put into the page would neither run, nor be loaded, nor be sent anywhere. Strings cannot become markup
either (Trusted Types).
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("page.html")


class Page(NamedTuple):
    """An HTML page and its Content-Security-Policy."""

    body: bytes
    policy: str


@cache
def dashboard() -> Page:
    """Return the dashboard."""
    html = _FILE.read_text(encoding="utf-8")
    script, style = (_hashes(html, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Page(html.encode(), policy)


def _hashes(html: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = (hashlib.sha256(text.encode()).digest() for text in found)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
