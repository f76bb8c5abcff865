"""Finds the kernels that came with the package, so that a machine's first start compiles nothing.

`make dist` compiles them (`packing.kernels`) for a processor that nearly all machines are at least. They lie
beside the sources that they were compiled from: who could change them could change those as well.

    processor/engine/compiled/<numba and Python>-<platform>/<kernel>-<sources>.nbi, .nbc

A machine that is less than that processor, another Python or another system compiles its own, as an editable
install does. Who names a processor to numba, or its features, gets what is compiled for that.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import NamedTuple

import numba
from llvmlite.binding import get_host_cpu_features

COMPILED = Path(__file__).parent / "compiled"
_LEVEL_3 = "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave"
"""Of the x86-64 psABI, by LLVM's names."""


class Processor(NamedTuple):
    """What kernels are compiled for."""

    name: str
    """LLVM's name."""
    more: str
    """What ``NUMBA_CPU_FEATURES`` has: never empty, or numba takes what this machine has."""
    features: frozenset[str]
    """What a machine needs to run them."""

    def runs_here(self) -> bool:
        """Return whether this machine can run what was compiled for the processor."""
        here = get_host_cpu_features()
        return all(here.get(feature, False) for feature in self.features)


_ARM = Processor("generic", "+crc", frozenset({"crc"}))
_PROCESSORS = {
    "x86_64": Processor("x86-64-v3", "+sse4.2", frozenset(_LEVEL_3.split())),
    "aarch64": _ARM,
    "arm64": _ARM,
}


def can_use(feature: str) -> bool:
    """Return whether what is compiled now runs only where the processor has a feature, by LLVM's name."""
    config, known = numba.config, processor()
    if config.DISABLE_JIT:
        return False
    if not (config.CPU_NAME or config.CPU_FEATURES):
        return bool(get_host_cpu_features().get(feature))
    chosen = config.CPU_NAME, config.CPU_FEATURES
    return known is not None and chosen == (known.name, known.more) and feature in known.features


def processor() -> Processor | None:
    """Return the processor that kernels are compiled for on machines of this kind; None: there are none."""
    return _PROCESSORS.get(platform.machine())


def shipped_name(compilers: str) -> str:
    """Return the name of the folder of such kernels; ``compilers`` names numba and Python."""
    return f"{compilers}-{sys.platform}-{platform.machine()}"


def shipped_kernels(compilers: str) -> Path | None:
    """Return the folder with the kernels that came along, if there is one and this machine can run them."""
    folder, known = COMPILED / shipped_name(compilers), processor()
    named = numba.config.CPU_NAME is not None or numba.config.CPU_FEATURES is not None
    if known is None or named or not folder.is_dir():
        return None
    return folder if known.runs_here() else None
