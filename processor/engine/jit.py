"""Where do compiled kernels live, and how is a function made one?

Invariant: a kernel on disk was compiled from exactly the sources that run. numba's cache looks at the
file of the compiled function only and misses a change in a callee that lives elsewhere (trap 15), so the
cache folder is named by a hash over all engine sources, set before the first function is compiled.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np

from processor.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
Int = int | np.integer[Any]
"""What kernels hand each other: compiled ones machine integers, plain ones numpy's."""


def _sources_hash() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    digest.update(f"{numba.__version__}/{sys.version_info[:2]}".encode())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def kernel_cache() -> Path:
    """Return the folder of this version's kernels; a private temporary one if the cache is read-only."""
    name = Path("kernels") / _sources_hash()
    preferred = cache_dir() / name
    if _writable(preferred):
        return preferred
    # A read-only cache that was filled when an image was built is still good to read from.
    if preferred.is_dir() and any(preferred.iterdir()):
        return preferred
    fallback = Path(tempfile.gettempdir()) / f"seqmark-{os.getuid()}" / name
    fallback.mkdir(parents=True, exist_ok=True, mode=0o700)
    return fallback


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(kernel_cache())


def kernel(function: F) -> F:
    """Compile ``function`` on first call and keep the result on disk; it releases the GIL.

    ``NUMBA_DISABLE_JIT=1`` runs it as plain Python. ``error_model="numpy"`` keeps divisions from
    raising inside compiled code; kernels never divide by what they read.
    """
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def inlined(function: F) -> F:
    """Compile ``function`` for use inside kernels only."""
    compiled: F = numba.njit(inline="always", error_model="numpy")(function)
    return compiled
