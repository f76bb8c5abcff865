"""Makes HTML of values; no text of data gets out unescaped. Pure.

`Html` is text that is markup already; everything else is escaped on its way in. So a topic's name or a group's
value can hold what it likes, and a place that forgets to escape does not exist.
"""

from __future__ import annotations

import html
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STYLE = Path(__file__).with_name("report.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Tells the browser what holds anyway: nothing is loaded, nothing runs."""
DIGITS = 6
"""Significant digits of a float in a table: what a person compares."""
_LONGEST = 120
"""Characters of a text in a table cell; a group may be a whole page's address."""


class Html(str):
    """Markup."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return ``value`` as markup: itself if it is that already, else its text, escaped."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def element(name: str, *children: object, **attributes: str) -> Html:
    """Return an element; attributes' values are escaped, ``class_`` means class, ``aria_label`` aria-label."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(text)}"' for key, text in attributes.items()
    )
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[object]) -> Html:
    """Return all one after the other."""
    return Html("".join(map(escaped, children)))


def document(title: str, body: Iterable[object], style: str = "") -> str:
    """Return a page that needs nothing else; ``style`` is added to that of all pages."""
    head = [
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", title),
        element("style", Html(_STYLE.read_text(encoding="utf-8") + style)),
    ]
    return f'<!doctype html>\n<html lang="en">\n{element("head", *head)}\n{element("body", *body)}\n</html>\n'


def bullets(sentences: Sequence[str]) -> Html:
    """Return a list of sentences; nothing where there is none."""
    if not sentences:
        return Html("")
    return element("ul", *(element("li", each) for each in sentences), class_="notes")


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    foot: Sequence[object] = (),
    texts: int = 1,
) -> Html:
    """Return a table that scrolls where it is long; ``foot`` is a last row that stands out.

    The first ``texts`` columns hold text, the others numbers; ``caption`` is for people who do not see where it
    stands.
    """

    def cells(kind: str, row: Sequence[object]) -> Html:
        shown = [cell if isinstance(cell, Html) else shown_value(cell) for cell in row]
        left = (element(kind, cell, class_="text") for cell in shown[:texts])
        return element("tr", *left, *(element(kind, cell) for cell in shown[texts:]))

    parts = [element("thead", cells("th", head)), element("tbody", *(cells("td", row) for row in rows))]
    if foot:
        parts.append(element("tfoot", cells("td", foot)))
    whole = element("table", *parts, aria_label=caption)
    return element("div", whole, class_="scroll", tabindex="0")


def shown_value(value: object) -> str:
    """Return a value as a person reads it."""
    match value:
        case None:
            text = "\u2013"
        case bool():
            text = "true" if value else "false"
        case int():
            text = f"{value:,}"
        case Decimal():
            text = f"{value:,f}"
        case float():
            text = f"{value:,.{DIGITS}g}" if abs(value) < 10**DIGITS else f"{value:,.0f}"
        case datetime():
            text = f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
        case date():
            text = value.isoformat()
        case _:
            text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def shown_time(time_ms: int) -> str:
    """Return a time in UTC, to the minute, or to the second where it has some."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M}" if not moment.second else f"{moment:%Y-%m-%d %H:%M:%S}"
