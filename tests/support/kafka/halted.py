"""Is a process, a broker's or a worker's, stopped by SIGSTOP?"""

from __future__ import annotations

from pathlib import Path


def halted(pid: int) -> bool:
    """Whether each thread of a process is stopped by a signal (Linux).

    On a busy machine a signal reaches one after the other, and some do another thing before.
    """
    try:
        stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # a thread that ends is not halted
        return False
    return bool(stats) and all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
