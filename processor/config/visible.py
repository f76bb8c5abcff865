"""Escapes in a text whatever a terminal could take for a command."""

from __future__ import annotations


def visible(raw: bytes | str, kept: str = "") -> str:
    """Return text in which whatever is not printable is escaped, as Python does it, but characters ``kept``."""
    text = raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text
    )


def visible_json(text: str) -> str:
    r"""Return JSON on one line with each character that is not printable as ``\uXXXX``: the same JSON."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _utf16(each) for each in text)


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
