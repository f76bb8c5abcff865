"""Asks for the certificate of the demo's topics as a user would: by the command line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import EXIT_DONE, EXIT_VIOLATION, StopError

if TYPE_CHECKING:
    from processor.demo.plan import DemoPlan

_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class DemoCertificate:
    """What ``seqmark verify`` printed, and whether all is proved."""

    ok: bool
    text: str


def certify(plan: DemoPlan) -> DemoCertificate:
    """Run ``seqmark verify``.

    Raises:
        StopError: Nothing was certified; quotes what it said.
    """
    done = subprocess.run(  # noqa: S603 - our own interpreter, no shell
        (sys.executable, "-m", "processor", "verify", "-c", str(plan.config)),
        env=dict(plan.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode not in {EXIT_DONE, EXIT_VIOLATION}:
        raise StopError(f"seqmark verify ended with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
    return DemoCertificate(done.returncode == EXIT_DONE, done.stdout.strip())
