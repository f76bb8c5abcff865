"""The browser of the tests sees what it is asked to see, and reaches nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.chromium.browser import Chromium, against_axe, hard_to_read

if TYPE_CHECKING:
    from pathlib import Path

BAD = """<!doctype html><meta charset="utf-8"><title>x</title>
<style>body { margin: 0; background: #fff } p, h1 { color: #888 } div { width: 500px }
section { overflow-x: auto } svg { width: 100px; display: block }</style>
<p>grey on white</p><h1>large may be paler</h1><div>wide</div><section><div>may scroll</div></section>
<svg viewBox="0 0 200 50"><text x="150" y="30" style="font-size:12px">beyond the edge</text></svg>
<img src="http://registry.example/x.png" alt=""><script>console.error("said")</script>
"""


def test_what_is_hard_to_read_is_found(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(BAD)

    look = chromium.look((tmp_path / "bad.html").as_uri(), hard_to_read, width=360)

    assert look.seen == [
        "contrast 3.54: grey on white",
        "cut off: beyond the edge",
        "6.0 pixels high: beyond the edge",
        "the page is 500 wide",
        "too wide: <div>wide</div>",
    ]
    assert look.requests == ["http://registry.example/x.png"]
    assert "said" in look.errors


def test_what_assistive_technology_cannot_tell_is_found(chromium: Chromium, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<!doctype html><title>x</title><main><h1>x</h1><input></main>")

    look = chromium.look((tmp_path / "bad.html").as_uri(), against_axe)

    assert {said.partition(":")[0] for said in look.seen} == {"html-has-lang", "label"}
