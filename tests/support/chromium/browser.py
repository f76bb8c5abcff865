"""Gives the tests a real Chromium, of this machine's packages, and tells what is hard to read in a page.

`chromium` is one browser for the whole run. Playwright's event loop would be in the way of the tests' own, for
asyncio starts none inside another: Playwright lives in a thread of its own, and what a test does with a page is
done there. Nothing is ever loaded from a network: what a page asks for is noted, and refused.
"""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, Route

Seen = TypeVar("Seen")
_HARD_TO_READ = Path(__file__).with_name("hard_to_read.js")
_AXE = Path(__file__).with_name("axe") / "axe.min.js"
_AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""Of axe-core 4.14.1 as npm has it; its licence stands beside it."""

# Root, as CI is, may not have a sandbox; without the others Chromium calls its maker's hosts at every start.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_LOCAL = ("file:", "data:", "http://127.0.0.1:", "http://localhost:")


@dataclass(frozen=True)
class Look(Generic[Seen]):
    """What a visit to a page has shown.

    Attributes:
        seen: What the test has made of it.
        errors: What the page has said in the console, warnings included, and errors of scripts.
        requests: Addresses that the page asked for beside its own.
    """

    seen: Seen
    errors: list[str]
    requests: list[str]


class Chromium:
    """A running browser; a context manager."""

    def __init__(self, program: str) -> None:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - few tests need it, and it takes a while

        self._thread = ThreadPoolExecutor(1, "chromium")
        self._playwright: Playwright = self._thread.submit(lambda: sync_playwright().start()).result()
        self._browser: Browser = self._thread.submit(
            lambda: self._playwright.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        ).result()

    def look(
        self,
        address: str,
        act: Callable[[Page], Seen],
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
    ) -> Look[Seen]:
        """Open a page in a window of its own, let ``act`` look at it, and close it.

        Args:
            address: A file or a server of this machine.
            act: Runs in the browser's thread.
            width: Of the window, in CSS pixels.
            height: Of the window.
            dark: Whether the reader's system is set to dark.
        """
        return self._thread.submit(self._look, address, act, (width, height), dark=dark).result()

    def _look(
        self, address: str, act: Callable[[Page], Seen], size: tuple[int, int], *, dark: bool
    ) -> Look[Seen]:
        errors, requests = list[str](), list[str]()

        def refuse(route: Route) -> None:
            if route.request.url.startswith(_LOCAL):
                route.continue_()
            else:
                route.abort()

        def console(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                errors.append(message.text)

        def request(asked: Request) -> None:
            if asked.url.partition("#")[0] != address.partition("#")[0]:
                requests.append(asked.url)

        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        try:
            page = context.new_page()
            page.on("console", console)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("request", request)
            page.route("**/*", refuse)
            page.goto(address)
            return Look(act(page), errors, requests)
        finally:
            context.close()

    def close(self) -> None:
        """End the browser."""
        self._thread.submit(self._browser.close).result()
        self._thread.submit(self._playwright.stop).result()
        self._thread.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """A browser, started when the first test asks for it."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed; .ci/run installs it where it can")
    browser = Chromium(program)
    yield browser
    browser.close()


def hard_to_read(page: Page) -> list[str]:
    """Return what a person cannot read of a page as it is shown, a sentence each.

    Text with a contrast below 4.5 (3 where it is large; WCAG 2.2, 1.4.3), text of pictures that stands out of
    its picture or is smaller than 9 pixels, and what is wider than the window and does not scroll by itself.
    """
    found: list[str] = page.evaluate(_HARD_TO_READ.read_text(encoding="utf-8"))
    return found


def against_axe(page: Page) -> list[str]:
    """Return how a page breaks the rules of axe-core for people with assistive technology, a sentence each.

    All of its rules for WCAG 2.2 A and AA and its best practices; what it cannot decide counts as well, but for
    contrasts, which `hard_to_read` measures.
    """
    source = _AXE.read_bytes()
    assert hashlib.sha256(source).hexdigest() == _AXE_SHA256
    page.evaluate(source.decode())
    found: list[str] = page.evaluate("""async () => {
        const {violations, incomplete} = await axe.run(document, {resultTypes: ["violations", "incomplete"]});
        return [...violations, ...incomplete.filter(each => each.id !== "color-contrast")].flatMap(
            rule => rule.nodes.map(node => `${rule.id}: ${node.html.slice(0, 200)}: ${node.failureSummary}`));
    }""")
    return found
