"""Writes the files that a command is told to, whole or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of a file that cannot be written why, in the words of the system.

    Raises:
        StopError: The block raised OSError.
    """
    try:
        yield
    except OSError as error:
        # So says mkdir of a file where a folder should be.
        why = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror
        raise StopError(f"{path} cannot be written: {why}") from error


def replace_text(path: Path, text: str) -> None:
    """Write beside the place first: who has an older one open keeps a whole one.

    Raises:
        StopError: The file cannot be written; what was there before still is.
    """
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        except OSError:
            with suppress(OSError):  # the first one says why
                partial.unlink(missing_ok=True)
            raise
