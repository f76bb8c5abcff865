"""Says how a demo has ended: what is wrong, where its pictures are, and whether all agrees with the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.commands.console import say

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def tell_verdict(wrong: Iterable[str], picture: Path, report: Path, *, ok: bool, drawn: bool) -> None:
    """Tell people on stderr, the verdict last."""
    for difference in wrong:
        say(f"WRONG: {difference}", "bold red")
    if drawn:
        say(f"raw against clean over event time: {picture}")
        say(f"the report, for a browser: {report}")
    if ok:
        say("everything agrees with the truth", "bold green")
    else:
        say("not everything agrees with the truth", "bold red")
