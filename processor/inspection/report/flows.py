"""Writes the section of a pipeline: how many records came, where they are now, and whether that adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.report.hours import HOUR_MS, Fate
from processor.inspection.report.markup import Html, bullets, element, joined, shown_time, table
from processor.inspection.report.plots import KEPT_OUT, MOST_HOURS, draw_flow

if TYPE_CHECKING:
    from processor.inspection.report.hours import Flow

TABLE_HOURS = 168
"""A week: longer tables are not read; their beginning is one row."""


def flow_section(name: str, flow: Flow) -> Html:
    """Return the section of one pipeline; ``name`` is its anchor."""
    parts = [
        element("h2", "Pipeline ", element("code", flow.name)),
        element(
            "p",
            element("code", flow.source),
            _where(" \u2192 ", flow.sink),
            _where(" \u00b7 receipts ", flow.duplicates),
            _where(" \u00b7 quarantine ", flow.quarantine),
            class_="soft",
        ),
        _tiles(flow),
        _balance(flow),
        element("p", _meanings(flow), class_="soft"),
        bullets([*flow.problems, *flow.notes]),
    ]
    if flow.hours:
        parts += [_picture(name, flow), element("h3", "By the hour"), _hours_table(flow)]
    parts += [element("h3", "What was read"), _stretches(flow)]
    return element("section", *parts, id=name)


def _where(what: str, topic: str | None) -> Html:
    return joined([what, element("code", topic)]) if topic else Html("")


def _tiles(flow: Flow) -> Html:
    raw = flow.raw.total
    tiles = [_tile("raw", raw, "raw records")]
    for fate in flow.told_apart:
        count = flow.fates[fate].total
        share = f"{count / raw:.2%}" if raw else ""
        tiles.append(_tile(fate.name.lower(), count, flow.fate_words(fate), share))
    for fate in flow.collided_in:
        count = flow.collided[fate].total
        share = f"{count / raw:.2%}" if raw else ""
        tiles.append(_tile("collision", count, flow.collided_name(fate), share))
    return element("ul", *tiles, class_="tiles")


def _meanings(flow: Flow) -> str:
    """Say what the words on the tiles mean; the first look is not the place to know them."""
    said = ["clean: passed on"]
    if flow.duplicates is None:
        said.append("dropped: sent again" + (", or out of order" if flow.by_sequence else ""))
    else:
        said.append("duplicate: sent again, dropped")
    if Fate.LATE in flow.told_apart:
        said.append(
            "late: its number is below the sequence watermark, because it was sent again (or for the first "
            "time, by a producer that does not keep to the order), dropped"
        )
    if Fate.COLLISION in flow.told_apart:
        said.append("collision: came with the id of other content, dropped")
    if flow.quarantine is not None:
        said.append("quarantined: cannot be judged")
    said += [
        f"{flow.collided_name(fate)}: came with the id of other content, and are counted there"
        for fate in flow.collided_in
    ]
    return "; ".join([*said, "not judged yet: no worker has come to it"]).capitalize() + "."


def _tile(kind: str, count: int, what: str, share: str = "") -> Html:
    parts = element("span", what), element("span", share, class_="soft")
    return element("li", element("b", f"{count:,}"), *parts, class_=kind)


def _balance(flow: Flow) -> Html:
    raw, fates = flow.raw.total, flow.told_apart
    if not raw and not any(flow.fates[fate].total for fate in fates):
        return element("p", "There is no record in these topics.", class_="verdict good")
    total = " + ".join(f"{flow.fates[fate].total:,} {flow.fate_name(fate)}" for fate in fates)
    if flow.problems:
        return _verdict("bad", "Not whole.", "Not everything could be read: see below.")
    if flow.unexplained:
        return _verdict("bad", "It does not add up.", _reasons(flow, flow.unexplained, total))
    if flow.duplicates is not None:
        return _verdict("good", "\u2713 It adds up.", f"{raw:,} raw = {total}.")
    rest = "what was dropped is the difference, for there are no receipts"
    return _verdict("good", "Counted.", f"{raw:,} raw = {total}; {rest}.")


def _verdict(kind: str, what: str, text: str) -> Html:
    return element("p", element("b", what), text, class_=f"verdict {kind}")


def _reasons(flow: Flow, rest: int, total: str) -> str:
    said = f"{flow.raw.total:,} raw, but {total}. "
    if rest > 0:
        return said + (
            f"{rest:,} raw records are in no other topic: the pipeline began behind them, receipts were "
            "switched on later, or retention has removed the others."
        )
    return said + (
        f"{-rest:,} more than came: retention has removed them from the source, or a worker with at_least_once "
        "was killed and wrote records twice."
    )


def _picture(name: str, flow: Flow) -> Html:
    hours = flow.hours
    shown = hours[-MOST_HOURS:]
    busiest = max(shown, key=lambda hour: flow.raw.counts[hour])
    alt = (
        f"Records of pipeline {flow.name} by the hour from {shown_time(shown[0] * HOUR_MS)} to "
        f"{shown_time((shown[-1] + 1) * HOUR_MS)} UTC: {flow.raw.total:,} raw, "
        f"{flow.fates[Fate.CLEAN].total:,} clean, {flow.dropped:,} dropped, "
        f"{flow.fates[Fate.QUARANTINED].total:,} quarantined"
        + "".join(f", {flow.collided[fate].total:,} {flow.collided_name(fate)}" for fate in flow.collided_in)
        + "; most in the hour of "
        f"{shown_time(busiest * HOUR_MS)}. The table below has every number."
    )
    caption = f"Above: the grey area was {KEPT_OUT}. Below: why."
    if flow.collided_in:
        caption += " Dotted: records with the id of other content, which are in another area as well."
    if len(shown) < len(hours):
        caption += f" The newest {len(shown):,} of {len(hours):,} hours."
    picture = element("div", Html(draw_flow(flow, name)), role="img", aria_label=alt)
    return element("figure", picture, element("figcaption", caption))


def _hours_table(flow: Flow) -> Html:
    fates = flow.told_apart
    hours = flow.hours
    shown = hours[-TABLE_HOURS:]
    collided = flow.collided_in
    columns = [flow.raw, *(flow.fates[fate] for fate in fates), *(flow.collided[fate] for fate in collided)]
    rows: list[list[object]] = []
    if len(shown) < len(hours):
        before = (sum(count for hour, count in each.counts.items() if hour < shown[0]) for each in columns)
        rows.append([f"before {shown_time(shown[0] * HOUR_MS)}", *before])
    rows += [[shown_time(hour * HOUR_MS), *(each.counts[hour] for each in columns)] for hour in shown]
    if any(each.without for each in columns):
        rows.append(["without a plausible time", *(each.without for each in columns)])
    head = ["hour (UTC)", "raw", *map(flow.fate_name, fates), *map(flow.collided_name, collided)]
    foot = ["all", *(each.total for each in columns)]
    return table(f"Records of {flow.name} by the hour", head, rows, foot=foot)


def _stretches(flow: Flow) -> Html:
    head = ["topic", "partition", "from offset", "before offset", "records"]
    rows = [
        (element("code", each.topic), each.partition, each.start, each.stop, each.records)
        for each in flow.stretches
    ]
    said = "Transaction markers and aborted records take offsets too: a partition may hold fewer records."
    return joined([table(f"What was read for {flow.name}", head, rows), element("p", said, class_="soft")])
