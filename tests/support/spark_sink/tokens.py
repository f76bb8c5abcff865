"""What may stand where a field of an event should: numbers, times and texts in every form, right and wrong."""

from __future__ import annotations

import json

from hypothesis import strategies as st

DIGITS = st.text("0123456789", min_size=1, max_size=12)
LONG_DIGITS = st.text("0123456789", min_size=1, max_size=45)
SIGNS = st.sampled_from(["", "", "", "-", "+"])
EXPONENTS = st.sampled_from(["", "", "", "e3", "E-4", "e+10", "e39", "E-40", "e400", "e-400"])


@st.composite
def number_texts(draw: st.DrawFn) -> str:
    """Draw what may be a number, in JSON or in a string."""
    digits = draw(DIGITS | LONG_DIGITS)
    point = draw(st.sampled_from(["", "", ".", ".0", ".00", "." + draw(DIGITS), "." + draw(LONG_DIGITS)]))
    return (
        draw(SIGNS) + draw(st.sampled_from([digits, digits.lstrip("0") or "0", ""])) + point + draw(EXPONENTS)
    )


@st.composite
def time_texts(draw: st.DrawFn) -> str:
    """Draw what may be a day or a point in time."""

    def two(most: int) -> str:
        return f"{draw(st.integers(0, most)):02d}"

    year = draw(
        st.sampled_from(["2026", "2024", "1900", "2000", "0001", "9999", "0000", "1582", "1969", "204"])
    )
    day = f"{year}-{two(13)}-{two(32)}"
    clock = f"{draw(st.sampled_from('TTTt _x'))}{two(24)}:{two(60)}"
    clock += draw(st.sampled_from(["", f":{two(60)}", f":{two(59)}", f":{two(59)}"]))
    clock += draw(st.sampled_from(["", "", ".", ".1", ",12", ".123456", ".123456789", ".1234567891"]))
    zone = draw(
        st.sampled_from(["", "Z", "z", "+00:00", "-03:30", "+0130", "+18:00", "-18:01", "+17:60", "+1", " Z"])
    )
    return draw(st.sampled_from([day, day + clock, day + clock + zone, day + clock + zone, day + zone]))


WORDS = ["", " ", "a", "b", "red", "1", "true", "null", "NaN", "Infinity", "-Infinity", "inf", "\u00e4", "\\"]
IDS = [
    "12345678-1234-1234-1234-123456789abc",
    "12345678123412341234123456789ABC",
    "{12345678-1234-1234-1234-123456789abc}",
    "urn:uuid:12345678-1234-1234-1234-123456789abc",
    "12345678-1234-1234-1234_123456789abc",
    "12345678-1234-1234-1234-123456789abg",
]
OTHER_TEXTS = st.sampled_from([*WORDS, *IDS, '"', "\0", "P1D", "07:08", "07:08:09.5+01:00"])
TOKENS = (
    st.builds(
        json.dumps,
        OTHER_TEXTS | time_texts() | number_texts() | st.text(max_size=5),
        ensure_ascii=st.booleans(),
    )
    | number_texts()
    | st.sampled_from(
        ["null", "true", "false", "[]", "{}", "[1]", '{"x":1}', "-", "1.", "01", "nul", '"\\ud800"', "1e5"]
    )
    | st.integers(-(2**64), 2**64).map(str)
    | st.integers(-30_000_000_000_000, 300_000_000_000_000).map(str)
    | st.sampled_from(["20000000000", "20000000001", "-20000000001", "253402300799999", "253402300800000"])
)
