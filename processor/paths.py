"""Where do things live that are worth keeping between runs?"""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the user's cache folder of Seqmark, by the XDG convention; not created here."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "seqmark"
