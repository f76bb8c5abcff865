"""Writes a worker's status: a line for the log, fields for programs, a table for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from processor.ops.status import KEEPS_UP_S, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from processor.ops.status import Reading, StatusLine


def text(line: StatusLine) -> str:
    """Return a line of the log."""
    records = sum(line.counts.values())
    lag = "lag unknown" if line.lag is None else f"lag {line.lag:,}{_ahead(line)}"
    parts = [
        f"{line.pipeline}: {_state(line)}",
        f"{line.records_per_s:,.0f} records/s, {line.passed_per_s:,.0f} passed/s",
        f"{count(records, 'record')}: {_dropped(line.counts, records)}",
        lag,
    ]
    if (commit := _commit(line)) != "-":
        parts.append(f"commit {commit}")
    kept = count(line.scopes, "scope") if line.ids is None else count(line.ids, "id")
    parts.append(f"{kept}, {size(line.state_bytes)}")
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
    return {
        "pipeline": line.pipeline,
        "state": line.state,
        "partitions": line.assigned,
        "partitions_ready": line.ready,
        "records_per_s": round(line.records_per_s, 1),
        "passed_per_s": round(line.passed_per_s, 1),
        **_counted(line.counts),
        **{name: round(value, 3) for name, value in known.items() if value not in {None, math.inf}},
        **({"scopes": line.scopes} if line.ids is None else {"ids": line.ids}),
        "state_bytes": line.state_bytes,
    }


def totals(ended: tuple[float, Mapping[str, Reading]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each pipeline a text and fields about the whole run, from `Status.end`."""
    seconds, readings = ended
    for name, reading in readings.items():
        counts, records = reading.counts, reading.records
        passed = share_of("passed", counts["pass"], records)
        whole = f"{count(records, 'record')} in {duration(seconds)}"
        yield (
            f"{name}: in all {whole}: {passed}, {_dropped(counts, records)}",
            {"pipeline": name, "state": "ended", "seconds": round(seconds, 3), **_counted(counts)},
        )


TITLES = (
    "pipeline",
    "state",
    "in/s",
    "passed/s",
    "duplicate",
    "late",
    "quarantined",
    "lag",
    "commit",
    "scopes, ids",
    "state size",
)
_LEFT = 2
"""So many columns hold words; numbers stand to the right."""
_LEAST = (0, 0, 5, 8, 11, 11, 11, 5, 8, 11, 10)
"""Widths for what numbers are mostly, so that columns do not jump with each digit."""
_GIVEN_UP = ("state size", "scopes, ids", "commit", "passed/s")
"""What a narrow window does without, in this order."""


def table(lines: Sequence[StatusLine], width: int) -> list[str]:
    """Return the table's rows, titles first, in at most ``width`` columns as far as leaving some out helps."""
    rows = [TITLES, *map(_cells, lines)]
    shown = list(range(len(TITLES)))
    widths = [max(_LEAST[column], *(len(row[column]) for row in rows)) for column in shown]
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
    records = sum(line.counts.values())
    return (
        line.pipeline,
        _state(line),
        short(line.records_per_s),
        short(line.passed_per_s),
        *(_part(line.counts[verdict], records) for verdict in VERDICTS[1:]),
        "-" if line.lag is None else f"{short(line.lag)}{_ahead(line)}",
        _commit(line),
        short(line.scopes) if line.ids is None else f"{short(line.ids)} ids",
        size(line.state_bytes),
    )


def _state(line: StatusLine) -> str:
    if not line.assigned:
        return line.state
    share = line.restored if line.state == "restoring" else line.drained
    done = "" if share is None else f" {int(share * 100)} %"  # 100 % is all of it
    return f"{line.state}{done}, {line.ready} of {count(line.assigned, 'partition')}"


def _ahead(line: StatusLine) -> str:
    if line.catch_up_s is None or line.state not in {"ready", "draining"}:
        return ""
    if line.catch_up_s == math.inf:
        return ", not shrinking"
    return "" if line.catch_up_s < KEEPS_UP_S else f", done in {duration(line.catch_up_s)}"


def _commit(line: StatusLine) -> str:
    if line.commit_s is not None:
        return f"{line.commit_s * 1000:,.0f} ms"
    return "-" if line.quiet_s is None else f"{duration(line.quiet_s)} ago"


def _part(number: int, of: int) -> str:
    return f"{short(number)} {100 * number / of if of else 0:.1f} %"


def share_of(what: str, number: int, of: int) -> str:
    """Return ``late 1,200 (0.1 %)``."""
    return f"{what} {number:,} ({100 * number / of if of else 0:.1f} %)"


def _dropped(counts: Mapping[str, int], records: int) -> str:
    words = {"duplicate": "duplicate", "late": "late", "quarantine": "quarantined"}
    return ", ".join(share_of(word, counts[verdict], records) for verdict, word in words.items())


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {
        "records": sum(counts.values()),
        "passed": counts["pass"],
        "duplicate": counts["duplicate"],
        "late": counts["late"],
        "quarantined": counts["quarantine"],
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
