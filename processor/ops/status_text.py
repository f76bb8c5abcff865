"""Writes a worker's status: a line for the log, fields for programs, a table for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from processor.ops.metrics import State
from processor.ops.status import KEEPS_UP_S, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from processor.ops.metrics import Doing
    from processor.ops.status import Reading, StatusLine

COMPILING = "compiling kernels for this machine, once"
_WORDS = {
    "pass": "passed",
    "duplicate": "duplicate",
    "late": "late",
    "collision": "collision",
    "quarantine": "quarantined",
}


def text(line: StatusLine) -> str:
    """Return a line of the log."""
    reading = line.reading
    lag = "lag unknown" if line.lag is None else f"lag {line.lag:,}{_ahead(line)}"
    parts = [
        f"{line.pipeline}: {_state(line)}",
        f"{line.records_per_s:,.0f} records/s, {line.passed_per_s:,.0f} passed/s",
        f"{count(reading.records, 'record')}: {_shares(reading, reading.verdicts[1:])}",
        lag,
    ]
    if (commit := _commit(line)) != "-":
        parts.append(f"commit {commit}")
    kept = count(reading.scopes, "scope") if reading.ids is None else count(reading.ids, "id")
    parts.append(f"{kept}, {size(reading.state_bytes)}")
    return "; ".join(parts)


def fields(line: StatusLine) -> dict[str, Any]:
    """Return the same for programs; what is not known is left out."""
    known = {
        "restored": line.restored,
        "drained": line.drained,
        "lag_records": line.lag,
        "catch_up_s": line.catch_up_s,
        "commit_s": line.commit_s,
        "since_commit_s": line.quiet_s,
    }
    reading = line.reading
    return {
        "pipeline": line.pipeline,
        "state": line.state,
        "partitions": reading.assigned,
        "partitions_ready": line.ready,
        "records_per_s": round(line.records_per_s, 1),
        "passed_per_s": round(line.passed_per_s, 1),
        **_counted(reading),
        **{name: round(value, 3) for name, value in known.items() if value not in {None, math.inf}},
        **({"scopes": reading.scopes} if reading.ids is None else {"ids": reading.ids}),
        "state_bytes": reading.state_bytes,
    }


def doing(now: Doing) -> str:
    """Return what a worker does before it is ready, with a bar where it is known how far it is."""
    if not now.total:
        return now.text
    full = _BAR_CELLS * now.done // now.total
    return f"{now.text}  {'━' * full}{'─' * (_BAR_CELLS - full)}  {now.done} of {now.total}"


def totals(ended: tuple[float, Mapping[str, Reading]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each pipeline a text and fields about the whole run, from `Status.end`."""
    seconds, readings = ended
    for name, reading in readings.items():
        whole = f"{count(reading.records, 'record')} in {duration(seconds)}"
        yield (
            f"{name}: in all {whole}: {_shares(reading, reading.verdicts)}",
            {"pipeline": name, "state": "ended", "seconds": round(seconds, 3), **_counted(reading)},
        )


_BAR_CELLS = 24
TITLES = (
    "pipeline",
    "state",
    "in/s",
    "passed/s",
    "duplicate",
    "late",
    "collision",
    "quarantined",
    "lag",
    "commit",
    "scopes, ids",
    "state size",
)
_LEFT = 2
"""So many columns hold words; numbers stand to the right."""
_LEAST = (0, 0, 5, 8, 11, 11, 11, 11, 5, 8, 11, 10)
"""Widths for what numbers are mostly, so that columns do not jump with each digit."""
_GIVEN_UP = ("state size", "scopes, ids", "commit", "passed/s")
"""What a narrow window does without, in this order."""


def table(lines: Sequence[StatusLine], width: int) -> list[str]:
    """Return the table's rows, titles first, in at most ``width`` columns as far as leaving some out helps.

    Collisions have a column where a pipeline can have some.
    """
    rows = [TITLES, *map(_cells, lines)]
    collisions = any("collision" in line.reading.counts for line in lines)
    shown = [column for column, title in enumerate(TITLES) if collisions or title != "collision"]
    widths = [max(_LEAST[column], *(len(row[column]) for row in rows)) for column in range(len(TITLES))]
    for title in _GIVEN_UP:
        if sum(widths[column] + 2 for column in shown) - 2 <= width:
            break
        shown.remove(TITLES.index(title))
    return [
        "  ".join(
            row[column].ljust(widths[column]) if column < _LEFT else row[column].rjust(widths[column])
            for column in shown
        )
        for row in rows
    ]


def _cells(line: StatusLine) -> tuple[str, ...]:
    reading = line.reading
    return (
        line.pipeline,
        _state(line),
        short(line.records_per_s),
        short(line.passed_per_s),
        *(_counted_share(reading, verdict) for verdict in VERDICTS[1:]),
        "-" if line.lag is None else f"{short(line.lag)}{_ahead(line)}",
        _commit(line),
        short(reading.scopes) if reading.ids is None else f"{short(reading.ids)} ids",
        size(reading.state_bytes),
    )


def _counted_share(reading: Reading, verdict: str) -> str:
    if verdict not in reading.counts:
        return "-"
    return f"{short(reading.counts[verdict])} {_percent(reading, verdict)}"


def _state(line: StatusLine) -> str:
    if not line.reading.assigned:
        return line.state
    share = line.restored if line.state is State.RESTORING else line.drained
    done = "" if share is None else f" {int(share * 100)} %"  # 100 % is all of it
    return f"{line.state}{done}, {line.ready} of {count(line.reading.assigned, 'partition')}"


def _ahead(line: StatusLine) -> str:
    if line.catch_up_s is None or line.state not in {State.READY, State.DRAINING}:
        return ""
    if line.catch_up_s == math.inf:
        return ", not shrinking"
    return "" if line.catch_up_s < KEEPS_UP_S else f", done in {duration(line.catch_up_s)}"


def _commit(line: StatusLine) -> str:
    if line.commit_s is not None:
        return f"{line.commit_s * 1000:,.0f} ms"
    return "-" if line.quiet_s is None else f"{duration(line.quiet_s)} ago"


def _percent(reading: Reading, verdict: str) -> str:
    records = reading.records
    return f"{100 * reading.counts[verdict] / records if records else 0:.1f} %"


def _shares(reading: Reading, verdicts: Iterable[str]) -> str:
    """Return ``late 1,200 (0.1 %)`` for each verdict."""
    return ", ".join(
        f"{_WORDS[verdict]} {reading.counts[verdict]:,} ({_percent(reading, verdict)})" for verdict in verdicts
    )


def _counted(reading: Reading) -> dict[str, int]:
    return {
        "records": reading.records,
        **{_WORDS[verdict]: reading.counts[verdict] for verdict in reading.verdicts},
    }


def count(number: int, word: str) -> str:
    """Return ``1 scope`` or ``2,000 scopes``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def short(number: float) -> str:
    """Return three digits or so: 999, 53.1k, 1.27M."""
    for unit, above in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= above * 0.9995:
            value = number / above
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{unit}"
    return f"{number:.0f}"


def size(number_bytes: int) -> str:
    """Return bytes as people write them: 32 B, 12.3 MB."""
    for unit, above in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number_bytes >= above:
            return f"{number_bytes / above:.1f} {unit}"
    return f"{number_bytes} B"


def duration(seconds: float) -> str:
    """Return the two largest units: 2 s, 1 min 12 s, 3 h 5 min, 2 d 4 h."""
    whole = round(seconds)
    for unit, long_s, small, short_s in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= long_s:
            return f"{whole // long_s} {unit} {whole % long_s // short_s} {small}"
    return f"{whole} s"


def duration_ms(time_ms: int) -> str:
    """Return the same of milliseconds, and these below a second."""
    return f"{time_ms} ms" if time_ms < 1_000 else duration(time_ms / 1_000)
