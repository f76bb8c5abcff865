"""Makes the pictures of README: ``PYTHONPATH=. python docs/website/pictures.py``.

`docs/images/worker.svg` is the table of a worker at a terminal while it works on two pipelines,
`docs/images/dashboard.png` the page of two workers in a browser, and `docs/images/report.png` the head of the
report about them; all are what the programs really show. Needs Java for the embedded broker and Chromium at
/usr/bin/chromium; takes two minutes. ``--dashboard`` makes that one alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from processor.broker.embedded import EmbeddedBroker
from tests.support.kafka.topics import create_topic, free_port, until
from tests.support.suite.terminal import OnTerminal

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 132
_STREAM = [
    "--records",
    "600000",
    "--rate",
    "30000",
    "--duplicates",
    "0.05",
    "--malformed",
    "0.00005",
    "--seed",
    "1",
]
_CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"

[worker]
application_id = "shop"
web_port = 0

[[pipelines]]
name = "clicks"
source = "clicks.raw"
sink = "clicks.clean"
duplicates = "clicks.duplicates"
quarantine = "clicks.quarantine"

[pipelines.dedup]
mode = "insert-id"
id = [{{ from = "value", pointer = "/event_id" }}]
window = "7d"

[[pipelines]]
name = "orders"
source = "orders.raw"
sink = "orders.clean"
duplicates = "orders.duplicates"
quarantine = "orders.quarantine"

[pipelines.dedup]
mode = "watermark"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""
# Rich's own, without the font that it would load from elsewhere.
_SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Make the pictures anew, or the dashboard's alone."""
    alone = "--dashboard" in sys.argv
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        config = Path(folder) / "shop.toml"
        config.write_text(_CONFIG.format(bootstrap=broker.bootstrap_servers))
        for source in ("clicks.raw", "orders.raw"):
            create_topic(broker.bootstrap_servers, source, 4)
        if alone:
            with _streams(config):
                _dashboard(config, IMAGES / "dashboard.png")
            return
        with _streams(config):
            frame = _frame_of_a_worker(config)
            _dashboard(config, IMAGES / "dashboard.png")
        _draw(frame, IMAGES / "worker.svg")
        _seqmark(config, "worker", "--drain")
        page = Path(folder) / "report.html"
        _seqmark(config, "report", "--output", str(page))
        _photograph(page, IMAGES / "report.png")
    for picture in ("worker.svg", "dashboard.png", "report.png"):
        print(f"{picture}: {(IMAGES / picture).stat().st_size:,} bytes")


def _seqmark(config: Path, command: str, *options: str) -> None:
    subprocess.run([*_call(command, config), *options], check=True, cwd=config.parent, env=_environment())


def _call(command: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "processor", command, "-c", str(config)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}


@contextlib.contextmanager
def _streams(config: Path) -> Iterator[None]:
    """Produce into both sources while the block runs."""
    running = [
        subprocess.Popen(
            [*_call("generate", config), *_STREAM, "--pipeline", pipeline],
            env=_environment(),
            stderr=subprocess.DEVNULL,
        )
        for pipeline in ("clicks", "orders")
    ]
    try:
        yield
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()


def _frame_of_a_worker(config: Path) -> str:
    """Return what a terminal shows when both pipelines have dropped thousands of records."""
    with OnTerminal(_call("worker", config), config.parent, _environment(), COLUMNS) as terminal:

        def busy() -> bool:
            rows = re.findall(r"^(?:clicks|orders) .*", terminal.screen.text, re.MULTILINE)
            return len(rows) == 2 and all(re.search(r"\dk \d\.\d %", row) for row in rows)

        until(busy, "both pipelines at work", 60)
        frame = terminal.frames[-1]
        terminal.process.terminate()
        terminal.ended()
    return frame


def _draw(frame: str, file: Path) -> None:
    """Draw the end of the log and the table, with the weights that the table has on a terminal."""
    log, head, table = re.split(r"^(shop  .*)$", frame.rstrip(), maxsplit=1, flags=re.MULTILINE)
    titles, _, rows = table.strip("\n").partition("\n")
    said = [line for line in log.splitlines() if "ready, partitions" in line]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for text, style in ("\n".join(said[-4:]), ""), (head, "bold"), (titles, "dim"), (rows, ""):
        console.print(Text(text, style=style), no_wrap=True, crop=True)
    console.save_svg(str(file), title="seqmark worker -c shop.toml", code_format=_SVG, unique_id="worker")


def _dashboard(config: Path, file: Path) -> None:
    """Take the page of two workers that share both pipelines, when it has some history."""
    ports = [free_port(), free_port()]
    running = [
        subprocess.Popen(
            _call("worker", config),
            env={
                **_environment(),
                "SEQMARK_WORKER__WEB_PORT": str(port),
                "SEQMARK_WORKER__MEMORY_LIMIT": "2GB",
                # Ten minutes of history in twelve seconds.
                "SEQMARK_TEST_HISTORY_S": "0.5",
            },
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for port in ports
    ]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            shown = browser.new_page(viewport={"width": 1100, "height": 960})
            for port in ports:
                until(partial(_is_ready, port), "the worker is ready, its kernels compiled", 400)
            shown.goto(f"http://127.0.0.1:{ports[0]}/")
            shown.get_by_text("2 of 2 workers ready").wait_for()
            shown.wait_for_timeout(12_000)
            shown.screenshot(path=file)
            browser.close()
    finally:
        for process in running:
            process.terminate()
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _photograph(page: Path, file: Path) -> None:
    """Take the head of a page as a browser of a desk shows it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1100, "height": 815})
        shown.goto(page.as_uri())
        shown.screenshot(path=file)
        browser.close()


if __name__ == "__main__":
    main()
