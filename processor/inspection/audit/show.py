"""Says what an audit has found: ten lines and two tables for people, fields for programs, a page with plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.inspection.audit.audit import WINDOWS_MS
from processor.inspection.report.markup import bullets, document, element, table
from processor.inspection.simulate.page import PLOT_STYLE, curve_figure
from processor.ops.status_text import count, duration_ms, size
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.inspection.audit.audit import Audit
    from processor.inspection.audit.trial import RuleOutcome

_PARTITIONS = 5
"""Named, those with the most copies."""


class PricePer(NamedTuple):
    """What bytes cost: so much for so many."""

    amount: float
    unit: str
    unit_bytes: int


def sentences(found: Audit, price: PricePer | None = None) -> list[str]:
    """Return what there is, line by line."""
    percent = 100 * found.copies.count / max(1, found.records)
    share = f"{percent:.{0 if percent >= 10 else 1}f} %"
    read = "all that is retained"
    if not found.whole:
        read = f"of {found.retained:,} offsets the oldest, the newest, and some between"
    there = f"{count(found.records, 'record')} in {count(found.partitions, 'partition')}"
    lines = [f"{found.topic}: {there} were read, {read}"]
    if not found.copies.count:
        return [*lines, "no record came twice"]
    near = found.copies.count - found.exact
    differ = f", {near:,} differ in {', '.join(found.changing)}" if near and found.changing else ""
    about = "about " if found.copies.rate < 1 else ""
    copies = f"{about}{count(found.copies.count, 'record')} ({share}) came before"
    lines.append(f"{copies}: {found.exact:,} are equal in all{differ}")
    gaps = found.gaps_ms
    when = "they have no timestamps"
    if gaps.size:
        middle, longest = (duration_ms(int(each)) for each in (gaps[gaps.size // 2], gaps[-1]))
        when = f"half of them came within {middle} of the first, all within {longest}"
    lines.append(f"{when}; {_where(found)}")
    cost = f"they take {size(found.copies_bytes)} of {size(found.records_bytes)}"
    if price is not None:
        amount = found.copies_bytes / price.unit_bytes * price.amount
        cost += f", which is {amount:,.2f} at {price.amount:g} per {price.unit}"
    lines.append(cost)
    lines += [f"{each.copies:,} {each.text} ({each.example} is {each.original} again)" for each in found.causes]
    return lines


def verdict(found: Audit) -> str:
    """Return the rule that is proposed, or why there is none."""
    if found.chosen is None:
        return f"no rule is safe here: {found.why_none}"
    seen = "" if found.copies.count else " (no copies were seen, so what it would catch is a guess)"
    return f"the rule that loses nothing{seen}: {rule(found.chosen)}"


def rule(outcome: RuleOutcome) -> str:
    """Return a rule in a few words."""
    dedup = outcome.proposal.dedup
    if dedup["mode"] == "insert-id":
        more = [name for name in ("fingerprint", "route") if name in dedup]
        return ", ".join([f"id {' + '.join(map(_part, dedup['id']))}", *more])
    scope = dedup.get("scope", "partition")
    whose = scope.removeprefix("header:") if isinstance(scope, str) else _part(scope)
    wraps = dedup["sequence"].get("wraps")
    begins = f", begins again at {wraps:,}" if wraps else ""
    return f"sequence {_part(dedup['sequence'])} per {whose}{begins}"


def _part(part: dict[str, Any]) -> str:
    """Return a part of an id or a sequence in a word or two."""
    match part["from"]:
        case "value":
            return str(part["pointer"])
        case "header":
            return f"header {part['name']}"
        case "column":
            return f"column {part['number']}"
        case _:
            return str(part["from"])


RULE_TITLES = "", "rule", "drops", "loses", "misses", "faults"
WINDOW_TITLES = "window", "catches", "share", "by-id route"


def rule_rows(found: Audit) -> list[list[str]]:
    """Return what each rule would do with the records that it was tried on, the chosen one marked."""
    return [
        [
            "→" if each is found.chosen else "",
            rule(each),
            *(
                f"{number:,}"
                for number in (each.caught + each.lost, each.lost, each.missed, sum(each.faults.values()))
            ),
        ]
        for each in found.outcomes
    ]


def window_rows(found: Audit) -> list[list[str]]:
    """Return what each window would catch."""
    return [
        [window, f"{one:,}", f"{100 * one / max(1, found.copies.count):.1f} %", f"{both:,}"]
        for window, one, both in _windows(found)
    ]


def _windows(found: Audit) -> Iterator[tuple[str, int, int]]:
    """Yield each window, and how many copies it would catch: per partition, and in all together."""
    here, everywhere = (found.copies.caught(WINDOWS_MS, route=route) for route in (False, True))
    yield from zip(map(duration_text, WINDOWS_MS), here, everywhere, strict=True)


def fields(found: Audit, price: PricePer | None = None) -> dict[str, Any]:
    """Return all of it for programs."""
    gaps = found.gaps_ms.tolist()
    cost = {} if price is None else {"cost": found.copies_bytes / price.unit_bytes * price.amount}
    return {
        "topic": found.topic,
        "partitions": found.partitions,
        "records": found.records,
        "bytes": found.records_bytes,
        "whole": found.whole,
        "copies": found.copies.count,
        "exact": found.exact,
        "near": found.copies.count - found.exact,
        "counted_share": found.copies.rate,
        "differ_in": list(found.changing),
        "copies_bytes": found.copies_bytes,
        **cost,
        "median_gap_ms": gaps[len(gaps) // 2] if gaps else None,
        "longest_gap_ms": gaps[-1] if gaps else None,
        "copies_by_partition": dict(_by_partition(found)),
        "causes": [each._asdict() for each in found.causes],
        "windows": [
            {"window": window, "caught": one, "caught_with_route": both}
            for window, one, both in _windows(found)
        ],
        "tried_on": found.tried,
        "rules": [_rule_fields(each) for each in found.outcomes],
        "recommended": None if found.chosen is None else found.chosen.proposal.dedup,
        "why_none": found.why_none or None,
        "notes": found.notes,
        "cpu_s": round(found.cpu_s, 3),
    }


def page(found: Sequence[Audit], price: PricePer | None = None) -> str:
    """Return a page of its own about some topics."""
    body: list[object] = [element("header", element("h1", "What topics hold twice"))]
    for each in found:
        body += [element("h2", each.topic), bullets(sentences(each, price))]
        if each.gaps_ms.size:
            body += [
                curve_figure(_curve(each), "against the time since the first", None),
                table("windows", WINDOW_TITLES, window_rows(each)),
            ]
        body += [
            element("p", verdict(each)),
            table("rules", RULE_TITLES, rule_rows(each), texts=2),
            bullets(each.notes),
        ]
    return document("Seqmark: an audit", body, PLOT_STYLE)


class _Point(NamedTuple):
    window_ms: int
    share: float


def _curve(found: Audit) -> list[_Point]:
    """Return the share of copies that came within a time."""
    gaps = np.maximum(found.gaps_ms, 1)
    at = np.unique(np.geomspace(1, max(10, int(gaps[-1])), 60).astype(np.int64))
    shares = np.searchsorted(gaps, at, side="right") / gaps.size
    return [_Point(*each) for each in zip(at.tolist(), shares.tolist(), strict=True)]


def _rule_fields(outcome: RuleOutcome) -> dict[str, Any]:
    return {
        "dedup": outcome.proposal.dedup,
        "why": outcome.proposal.reasons["mode"],
        "caught": outcome.caught,
        "lost": outcome.lost,
        "missed": outcome.missed,
        "caught_with_route": outcome.caught + outcome.crossing,
        "faults": outcome.faults,
    }


def _by_partition(found: Audit) -> list[tuple[int, int]]:
    """Return the partitions with copies and how many, the most first."""
    numbers, counts = np.unique(found.copies.rows.partition[found.copies.places], return_counts=True)
    both = zip(numbers.tolist(), (counts / found.copies.rate).round().astype(int).tolist(), strict=True)
    return sorted(both, key=lambda each: -each[1])


def _where(found: Audit) -> str:
    there = _by_partition(found)
    named = ", ".join(f"{number} ({copies:,})" for number, copies in there[:_PARTITIONS])
    more = f" and {len(there) - _PARTITIONS} others" if len(there) > _PARTITIONS else ""
    return f"in partition{'' if len(there) == 1 else 's'} {named}{more}"
