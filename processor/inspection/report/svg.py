"""Makes matplotlib's SVG fit for a page: small, with ids of its own, and readable in the dark. Pure.

matplotlib writes six decimals, a list of fonts per text and a fixed colour per line: most of a page's bytes.
Here the colour `#00568c` becomes the variable `--c00568c` with that colour as its default. `dark_colours` gives
the variables other values where the reader's system is dark. Only what stands inside tags is edited: outside,
where `<` and `>` are escaped, is text of the data.
"""

from __future__ import annotations

import colorsys
import re

_DROPPED = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
_COLOUR = re.compile(r"(?<=[ \"])#([0-9a-f]{6})(?=[;\"])")
_FILL = re.compile(r'fill="(var[^"]*)"')
"""A variable is taken in a style only."""
_FONT = re.compile(r"font-family: [^;\"]*;? ?")
_UPRIGHT = re.compile(r' transform="rotate\(-0 [^"]*"')
_PATH = re.compile(r'\bd="([^"]*)"')
_NUMBER = re.compile(r"(?<=[\" (,])-?\d+\.\d+")
_STEP = re.compile(r"[A-Za-z]|-?\d+(?:\.\d+)?")
_DOT = re.compile(r"M [^A-Z]*(?:C [^A-Z]*){8}z")
_POINT = "P"
"""Stands for a line of no length, which is a dot where caps are round."""
_ARGUMENTS = {"M": 2, "L": 2, "Q": 4, "C": 6, "z": 0, _POINT: 0}
_USED = re.compile(r"var\(--c([0-9a-f]{6}),")


def for_page(svg: str, name: str, kind: str) -> str:
    """Return an ``svg`` element for a page.

    Args:
        svg: What matplotlib wrote, with text as text.
        name: Begins all its ids, so that no other picture of the page has them.
        kind: The element's class.
    """
    text = re.sub(r">\s+<", "><", _DROPPED.sub("", svg[svg.index("<svg") :]))
    text = re.sub(r"<[^>]*>", lambda found: _tag(found[0], name), text)
    # The page scales it, and says beside it what it is.
    head, rest = text.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    return f'{head} class="{kind}" aria-hidden="true">{rest.strip()}'


def _tag(tag: str, name: str) -> str:
    if tag.startswith("<g "):
        tag = re.sub(r' id="[^"]*"', "", tag)
    tag = _PATH.sub(lambda found: f'd="{_shorter(found[1])}"', _UPRIGHT.sub("", tag))
    tag = _NUMBER.sub(lambda found: _short(found[0]), tag)
    tag = _FILL.sub(r'style="fill:\1"', _COLOUR.sub(r"var(--c\1,#\1)", _FONT.sub("", tag)))
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", tag)
    if "h0" in tag:
        tag = tag.replace("stroke-linecap: butt", "stroke-linecap: round")
        tag = re.sub(r"stroke-width: [\d.]+", "stroke-width: 1.2", tag)
    return re.sub(r"(?<=[:;]) ", "", tag)


def dark_colours(page: str) -> str:
    """Return the style by which the colours of a page's pictures are light on dark where that is preferred."""
    used = sorted(set(_USED.findall(page)))
    values = " ".join(f"--c{colour}: {_dark(colour)};" for colour in used)
    return f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {values} }} }}\n" if used else ""


def _dark(colour: str) -> str:
    """Return the same hue for a dark page: what stood out from white stands out from black.

    Lightness 0 becomes 0.93, and 1 becomes 0.18, which still differs from the page's 0.1.
    """
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    changed = colorsys.hls_to_rgb(hue, 0.93 - 0.75 * light, saturation * 0.85)
    return "#" + "".join(f"{round(part * 255):02x}" for part in changed)


def _shorter(path: str) -> str:
    """Return the same path to a tenth of a point, the lines of its steps as ``h`` and ``v``, dots as points."""
    steps = _STEP.findall(_DOT.sub(_point, path))
    out: list[str] = []
    x, y, at = "", "", 0
    while at < len(steps):
        command = steps[at]
        numbers = [_short(number) for number in steps[at + 1 : at + 1 + _ARGUMENTS[command]]]
        at += 1 + len(numbers)
        before = (x, y)
        if numbers:
            x, y = numbers[-2:]
        if command != "L" or (x != before[0] and y != before[1]):
            out.append(command + " ".join(numbers))
        elif x != before[0]:
            out.append(f"h{_less(x, before[0])}")
        elif y != before[1]:
            out.append(f"v{_less(y, before[1])}")
    return "".join(out).replace(_POINT, "h0")


def _point(found: re.Match[str]) -> str:
    """Return a point, which gets a round cap, in place of the eight curves of a hatch's dot."""
    numbers = [float(number) for number in _STEP.findall(found[0]) if number not in _ARGUMENTS]
    (x, y), opposite = numbers[:2], numbers[25]
    return found[0] if abs(y - opposite) > 1 else f"M {x} {(y + opposite) / 2} {_POINT} "


def _short(number: str) -> str:
    # What is small is the shape of a marker or of a hatch.
    digits = 2 if abs(float(number)) < 10 else 1
    return f"{float(number):.{digits}f}".rstrip("0").rstrip(".") if "." in number else number


def _less(number: str, other: str) -> str:
    return re.sub(r"^(-?)0\.", r"\1.", _short(f"{float(number) - float(other):.2f}"))
