"""Finds the cache folder, and tells whether what lies there may be run as code.

Kernels and jars in the cache are executed. So they are taken only from folders and files that nobody but this
user and root can have put there, or could put others in their place. Two kinds of levels are looked at:

    /  home  user  .cache       above: of root or this user, and closed to all others' writing, or with the
                                sticky bit, as /tmp has; symbolic links are followed, each level of theirs too
    seqmark  kernels  3f2a...   ours: of root or this user, closed to all others' writing, no symbolic links

What is found so stays so: to change a level somebody has to be allowed to write in the one above it. Therefore
a folder is made first, closed from its beginning, and looked at afterwards.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS = 0o077
_MOST_LINKS = 40
"""As many as Linux follows."""


def cache_dir() -> Path:
    """Return the user's cache folder of Seqmark, by the XDG convention; not created here."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "seqmark"


def make_private(root: Path, *names: str) -> Path:
    """Make the folders ``names`` below ``root``, each in the one before, open to this user only.

    So is what is missing of ``root``, as the XDG convention asks. What is there already stays as it is.

    Raises:
        OSError: One cannot be made.
    """
    folder = root.joinpath(*names)
    missing = [level for level in (folder, *folder.parents) if not level.exists()]
    for level in reversed(missing):
        level.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises where it is no folder
    return folder


def distrust(root: Path, *names: str) -> str | None:
    """Say why nothing in the folder ``names`` below ``root`` is to be run; None: it may be.

    The root is chosen by the user or by the system, the names are of our folders; what is missing is in order.

    Raises:
        OSError: It cannot be looked at.
    """
    try:
        for level, found in _levels(root):
            if reason := _open_above(level, found):
                return reason
        folder = root
        for name in names:
            folder /= name
            if reason := _open_ours(folder, folder.lstat()):
                return reason
        return _open_inside(folder) if names else None
    except FileNotFoundError:
        return None


def _levels(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every folder and link that is gone through on the way to ``path``, itself included."""
    at, links = Path("/"), 0
    todo = list(path.absolute().parts[1:])
    yield at, at.lstat()
    while todo:
        name = todo.pop(0)
        if name == "..":
            at = at.parent
            continue
        level = at / name
        found = level.lstat()
        yield level, found
        if not stat.S_ISLNK(found.st_mode):
            at = level
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(0, "too many symbolic links", str(path))
        target = level.readlink()
        todo[:0] = target.parts[1:] if target.is_absolute() else target.parts
        at = Path("/") if target.is_absolute() else at


def _open_above(level: Path, found: os.stat_result) -> str | None:
    # Where root is not known by its number, in some containers, the root folder is root's all the same.
    if found.st_uid not in {0, os.getuid(), Path("/").lstat().st_uid}:
        return f"{level} belongs to the user with the number {found.st_uid}"
    if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
        return None
    open_to = found.st_mode & OTHERS_WRITE
    if open_to == stat.S_IWGRP and found.st_uid == found.st_gid == 0:
        return None  # root's group
    return _said_open(level, found) if open_to else None


def _open_ours(folder: Path, found: os.stat_result) -> str | None:
    if stat.S_ISLNK(found.st_mode):
        return f"{folder} is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is no folder"
    return _open_to_others(folder, found)


def _open_inside(folder: Path) -> str | None:
    """Say what is wrong inside, at any depth: others may have written there when a folder was open to them."""
    closed = not folder.lstat().st_mode & OTHERS
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            try:
                found = path.lstat()
                if stat.S_ISDIR(found.st_mode):
                    reason = _open_to_others(path, found) or _open_inside(path)
                elif not stat.S_ISREG(found.st_mode):
                    reason = f"{path} is no file"
                else:
                    reason = _open_to_others(path, found, closed=closed)
            except FileNotFoundError:
                continue  # another process has just put the whole file in its place
            if reason:
                return reason
    return None


def _open_to_others(path: Path, found: os.stat_result, *, closed: bool = False) -> str | None:
    if found.st_uid not in {0, os.getuid()}:
        return f"{path} belongs to the user with the number {found.st_uid}"
    return _said_open(path, found) if found.st_mode & OTHERS_WRITE and not closed else None


def _said_open(path: Path, found: os.stat_result) -> str:
    return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
