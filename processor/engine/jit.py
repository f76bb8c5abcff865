"""Compiles kernels, and keeps them on disk where nobody else can write.

Invariants: a kernel on disk was compiled from exactly the sources that run. numba's cache looks at the file
of the compiled function only and misses a change in a callee that lives elsewhere (trap 15), so a kernel's
file is named by a hash over its module and all that this imports of the engine. And it was put there by this
user or by root: loading a kernel runs what is in the file, so a folder that others can write to, or could
have, is not read (`processor.paths`).

    the user's cache folder         made where it is missing; one that can only be read is read only
    a folder in the temporary one   where the first cannot be made
    none                            where others could write to it: compiled at each start, which is said

What is in none of them is looked for among the kernels that came with the package (`processor.engine.shipped`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import make_array

from processor.engine.shipped import processor, shipped_kernels
from processor.paths import cache_dir, distrust, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

A = TypeVar("A", bound="NDArray[Any]")
F = TypeVar("F", bound="Callable[..., Any]")
COMPILES = not numba.config.DISABLE_JIT
"""Whether kernels are compiled; False with ``NUMBA_DISABLE_JIT=1``, which runs them as plain Python."""
Int = int | np.integer[Any]
"""What kernels hand each other: compiled ones machine integers, plain ones numpy's."""


_ENGINE = Path(__file__).parent
_PACKAGE = __name__.rpartition(".")[0]
_IMPORT = re.compile(
    rf"^ *(?:from|import) +{re.escape(_PACKAGE)}([.\w]*)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE
)
_SOURCES = {each.relative_to(_ENGINE).as_posix(): each.read_bytes() for each in sorted(_ENGINE.rglob("*.py"))}


@cache
def _imports(file: str) -> tuple[str, ...]:
    """Return the engine's files that one of them imports itself."""
    found: set[str] = set()
    for module, names in _IMPORT.findall(_SOURCES[file].decode()):
        folder = module.replace(".", "/").strip("/")
        found.update(f"{folder}/{name}" for name in re.findall(r"\w+", names))
        found.add(folder)
    files = (end for each in found for end in (f"{each}.py", f"{each}/__init__.py"))
    return tuple(each.strip("/") for each in files if each.strip("/") in _SOURCES)


def imported(file: str) -> set[str]:
    """Return a file of the engine and all that it imports there, directly or not, by paths below the engine."""
    found: set[str] = set()
    ahead = [file]
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += _imports(name)
    return found


@cache
def sources(file: str) -> str:
    """Return the hash of a file of the engine and of all that it imports there."""
    return _hash(imported(file))


def _hash(files: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode())
        digest.update(hashlib.sha256(_SOURCES[name]).digest())
    return digest.hexdigest()[:16]


def kernel_cache(name: str) -> Path | None:
    """Return the user's folder of that name; None, and a line on stderr, where none may be used."""
    try:
        preferred = cache_dir()
        if (folder := _made(preferred, "kernels", name)) is not None:
            return folder
        why = f"{preferred} cannot be written"
    except RuntimeError as error:  # this user has no home
        why = str(error)
    except _UntrustedError as error:
        return _without(str(error))
    temporary = Path(tempfile.gettempdir()) / f"seqmark-{os.getuid()}"
    try:
        if (folder := _made(temporary, "kernels", name)) is not None:
            return folder
    except _UntrustedError as error:
        return _without(f"{why}; {error}")
    return _without(f"{why}, and neither can {temporary}")


class _UntrustedError(Exception):
    """Others than this user and root could have written, or could write, what would be loaded."""


def _made(ours: Path, *names: str) -> Path | None:
    """Return the folder ``names`` below ``ours``; None where there is none to read from or to write to."""
    root, names = ours.parent, (ours.name, *names)
    folder = root.joinpath(*names)
    try:
        _require_trust(root, *names)  # nothing is made behind somebody's link
        with contextlib.suppress(OSError):
            make_private(root, *names)
        # Once it is made: from here on nobody else can change what is found.
        _require_trust(root, *names)
        # One that can only be read was filled when an image was built.
        return folder if os.access(folder, os.W_OK | os.X_OK) or any(folder.iterdir()) else None
    except OSError:
        return None


def _require_trust(root: Path, *names: str) -> None:
    if (why := distrust(root, *names)) is not None:
        raise _UntrustedError(why)


def _without(why: str) -> Path | None:
    which = "kernels are" if SHIPPED is None else "kernels that did not come with Seqmark are"
    sys.stderr.write(
        f"seqmark: {which} compiled anew at each start, which takes up to a minute: {why}. What others can "
        "write to is not run. Remove it, or set XDG_CACHE_HOME to a folder that only this user can write to\n"
    )
    return None


class _Locator(UserProvidedCacheLocator):  # type: ignore[misc]  # numba is untyped
    """Names the one folder that `kernel_cache` has looked at; numba's own would try others."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(FOLDER)
        path = Path(file)
        inside = path.is_relative_to(_ENGINE)
        self.sources = sources(path.relative_to(_ENGINE).as_posix()) if inside else _hash(_SOURCES)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def ensure_cache_path(self) -> None:
        """Do nothing: it is there."""


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]  # numba is untyped
    _locator_classes = (_Locator,)

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        """Return what a kernel's files are called: by its name and its sources."""
        name = re.sub("[<>]", "", fullname)
        return f"{name}-{self.locator.get_disambiguator()}-{self.locator.sources}{abiflags}"


class _Cache(FunctionCache):  # type: ignore[misc]  # numba is untyped
    """numba's cache in that folder, before the kernels that came along."""

    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a kernel that somebody has compiled; None: nobody has."""
        found = super().load_overload(sig, target_context) if FOLDER is not None else None
        return self._load_shipped(sig, target_context) if found is None and SHIPPED is not None else found

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        system, _, _ = target_context.codegen().magic_tuple()
        signature, _, code = self._index_key(sig, target_context.codegen())
        kept = IndexDataCacheFile(
            cache_path=str(SHIPPED),
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )
        data = kept.load((signature, (system, *_SHIPPED_FOR), code))
        return None if data is None else self._impl.rebuild(target_context, data)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that can be written: it runs all the same."""
        if FOLDER is not None:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)


_OWN_CHOICE = "NUMBA_CACHE_DIR" in os.environ
"""The user has named a folder to numba: whoever does that answers for it."""
COMPILERS = f"numba-{numba.__version__}-python-{sys.version_info[0]}.{sys.version_info[1]}"
"""Names the folders of kernels."""
SHIPPED = None if _OWN_CHOICE else shipped_kernels(COMPILERS)
FOLDER = None if _OWN_CHOICE else kernel_cache(COMPILERS)
_SHIPPED_FOR = (known.name, known.more) if (known := processor()) else ("", "")


def kernel(function: F) -> F:
    """Compile ``function`` on first call and keep the result on disk; it releases the GIL.

    ``NUMBA_DISABLE_JIT=1`` runs it as plain Python. ``error_model="numpy"`` keeps divisions from
    raising inside compiled code; kernels never divide by what they read.
    """
    if not COMPILES:
        return np.errstate(over="ignore")(function)  # integers wrap on purpose, and only numpy's warn of it
    compiled: F = numba.njit(cache=_OWN_CHOICE, nogil=True, error_model="numpy")(function)
    if FOLDER is not None or SHIPPED is not None:
        # As its `enable_caching` does, which knows numba's own folders only.
        compiled._cache = _Cache(function)  # type: ignore[attr-defined]  # noqa: SLF001 - a dispatcher of numba's
    return compiled


def inlined(function: F) -> F:
    """Compile ``function`` for use inside kernels only."""
    compiled: F = numba.njit(inline="always", error_model="numpy")(function)
    return compiled


def are_kept(mark: str) -> bool:
    """Return whether all kernels are there of which a mark says so, or none can be kept."""
    folders = [folder for folder in (FOLDER, SHIPPED) if folder is not None]
    return not (COMPILES and folders) or any((folder / _marked(mark)).exists() for folder in folders)


def note_kept(mark: str) -> None:
    """Mark that all kernels of a kind are kept."""
    if FOLDER is not None:
        with contextlib.suppress(OSError):  # filled when an image was built, and read only since
            (FOLDER / _marked(mark)).touch()


def _marked(mark: str) -> str:
    return f"{mark}-{_hash(_SOURCES)}"


def borrowed(data: A) -> A:
    """Return an array's elements for use in a kernel that holds the array: numba counts no references to them.

    It does so for each array that an inlined kernel is given, by atomic operations that take longer than
    hashing a short text. What is borrowed has no size, and its indexes are unsigned.
    """
    return data


def _pointer(_context: Any) -> Callable[[Any], Any]:
    return lambda data: numba.types.CPointer(data.dtype)


def _borrow(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return make_array(signature.args[0])(context, builder, values[0]).data


type_callable(borrowed)(_pointer)
lower_builtin(borrowed, numba.types.Array)(_borrow)
