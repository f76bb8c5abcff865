"""Looks at the subject of a commit message: ``python3 packing/subject.py FILE``, a hook of pre-commit."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 70


def fault(message: str) -> str | None:
    """Return what is wrong with a message's first lines; None: nothing."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the commit has no subject"
    if subject.startswith(("fixup! ", "squash! ", "Merge ", "Revert ")):
        return None
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters, {LONGEST} at most"
    if len(lines) > 1 and lines[1].strip():
        return "an empty line belongs between the subject and the body"
    return None


if __name__ == "__main__":
    wrong = fault(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(wrong)
