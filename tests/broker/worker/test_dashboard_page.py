"""What does somebody see who opens the dashboard of a worker, while workers come, go and die?"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.chromium.browser import against_axe, hard_to_read
from tests.support.worker.process import New, new, new_config, produce, start_worker, until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.chromium.browser import Chromium
    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import Worker, WorkerConfig

pytestmark = pytest.mark.broker

PARTITIONS = 4
SOON_MS = 60_000
"""For what a page shows: far above what a busy machine needs."""
NOW_MS = int(time.time() * 1000)
WIDTHS = (360, 1600)


def shows(page: Page, text: str) -> None:
    """Wait until the page shows a text."""
    page.get_by_text(text).first.wait_for(timeout=SOON_MS)


def asks(page: Page, text: str) -> None:
    """Ask in the search field."""
    page.locator("#query").fill(text)
    page.keyboard.press("Enter")


def hard_for_anybody(page: Page) -> list[str]:
    """Return what is hard to read, and what breaks axe-core's rules, on a phone and on a wide screen."""
    found: list[str] = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        found += against_axe(page) + hard_to_read(page)
    return found


def address(worker: Worker) -> str:
    return f"http://127.0.0.1:{worker.web_port}/"


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> WorkerConfig:
    """Four partitions with records, of which each third is a duplicate."""
    config = new_config(broker.bootstrap_servers, tmp_path, PARTITIONS).with_quarantine().with_duplicates()
    for partition in range(PARTITIONS):
        records = [new(number) for number in (*range(20), *range(10))]
        produce(config.bootstrap_servers, config.source, records, partition=partition)
    return config


def test_the_page_shows_all_workers_while_one_is_killed_and_its_slots_move(
    chromium: Chromium, config: WorkerConfig
) -> None:
    dedup = {"mode": "insert-id", "id": [{"from": "header", "name": "seq"}], "window": "1d"}
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup),))

    def act(page: Page) -> tuple[list[str], list[str]]:
        shows(page, "2 of 2 workers ready")
        seen = [page.locator("#workers").inner_text()]
        asks(page, "base64:AAAAAAAAAAE=")
        shows(page, "Known in 4 partitions; 4 of 4 partitions answered")
        seen.append(page.locator("#story").inner_text())
        bad = hard_for_anybody(page)
        second.kill()
        shows(page, "1 not answering")
        shows(page, "cannot be reached")
        seen.append(page.locator("#pipelines").inner_text())
        asks(page, "base64:AAAAAAAAAAE=")
        shows(page, "Known in 2 partitions; 2 of 4 partitions answered")
        shows(page, "2 partitions without an answer")
        bad += hard_for_anybody(page)
        shows(page, "1 of 1 worker ready")
        shows(page, "p 0, 1, 2, 3")
        bad += hard_for_anybody(page)
        seen += [page.locator("#pipelines").inner_text(), page.locator("#workers").inner_text()]
        return seen, bad

    with start_worker(config) as first:
        first.wait_ready()
        with start_worker(config) as second:
            until(lambda: all(slots(worker) == 2 for worker in (first, second)), "both have slots")
            until(lambda: sum(records(each).get("pass", 0) for each in (first, second)) == 80, "all is judged")
            look = chromium.look(address(first), act)

    (both, known, dying, _, alone), bad = look.seen
    assert bad == []
    for partition in range(PARTITIONS):
        assert f"{config.source}:{partition}:1" in known
    assert "2023-11-15 22:13:20 UTC" in known
    assert f"process {first.pid} (this one)" in both
    assert f"process {second.pid}" in both
    assert "2 partitions with no worker that answers" in dying
    assert str(second.pid) not in alone
    assert "p 0, 1, 2, 3" in alone
    assert look.errors == []
    assert {request.removeprefix(address(first)) for request in look.requests} == {
        "status.json?workers=all",
        "ids?workers=all&pipeline=p&id=base64%3AAAAAAAAAAAE%3D",
    }


def slots(worker: Worker) -> int:
    said = json.loads(worker.get("/status.json")[1] or "{}")
    return sum(len(each["slots"]) for each in said.get("pipelines", ()))


def test_the_page_can_be_read_on_every_screen_and_by_everybody(
    chromium: Chromium, config: WorkerConfig
) -> None:
    def act(page: Page) -> dict[str, Any]:
        shows(page, "1 of 1 worker ready")
        page.locator("summary").first.click()
        return {"axe": against_axe(page), "hard": hard_to_read(page), "text": page.locator("body").inner_text()}

    with start_worker(config) as worker:
        worker.wait_ready()
        for width in WIDTHS:
            for dark in (False, True):
                look = chromium.look(address(worker), act, width=width, dark=dark)
                assert (look.seen["axe"], look.seen["hard"], look.errors) == ([], [], []), (width, dark)
                assert "4 partitions ready" in look.seen["text"]


def test_a_worker_that_is_gone_is_said_to_be_and_is_found_again(
    chromium: Chromium, config: WorkerConfig
) -> None:
    def act(page: Page) -> tuple[str, list[str]]:
        shows(page, "1 of 1 worker ready")
        first.kill()
        shows(page, "This worker does not answer")
        told = page.locator("#alarm").inner_text() + page.locator("#summary").inner_text()
        bad = against_axe(page) + hard_to_read(page)
        same_port = {"SEQMARK_WORKER__WEB_PORT": str(first.web_port)}
        later.enter_context(start_worker(config, web=False, env=same_port))
        page.locator("#again").click()
        shows(page, "1 of 1 worker ready")
        assert page.locator("#alarm").is_hidden()
        return told, bad

    with start_worker(config) as first, contextlib.ExitStack() as later:
        first.wait_ready()
        look = chromium.look(address(first), act, width=360)

    told, bad = look.seen
    assert "what is shown below is from then" in told
    assert "no answer" in told
    assert bad == []


HOSTILE = b"<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\x1b[2J"


def test_what_records_hold_is_text_on_the_page(chromium: Chromium, config: WorkerConfig) -> None:
    dedup = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "1d"}
    only = replace(config.pipelines[0], dedup=dedup)
    hostile = [New(HOSTILE, HOSTILE, (("id", HOSTILE),), NOW_MS) for _ in range(2)]
    produce(config.bootstrap_servers, config.source, hostile, partition=1)

    def act(page: Page) -> dict[str, Any]:
        shows(page, "1 of 1 worker ready")
        asks(page, HOSTILE.decode())
        shows(page, "Known in 1 partition; 4 of 4 partitions answered")
        page.locator("#kind").select_option(f"an id of {only.name}")
        asks(page, f"{config.source}:1:30")
        shows(page, "Not known; 4 of 4 partitions answered")
        asks(page, HOSTILE.decode())
        bad = against_axe(page) + hard_to_read(page)
        page.locator("#story a").click()
        shows(page, f"{config.source}:1:30 passed")
        asks(page, f"{config.source}:1:31")
        shows(page, "was dropped as a duplicate of")
        page.locator("#receipts button").click()
        page.locator("#receipts-rows table").wait_for(timeout=SOON_MS)
        seen = {part: page.locator(part).inner_text() for part in ("#story", "#receipts-rows")}
        seen["title"] = page.title()
        asks(page, f"{config.source}:99:0")
        shows(page, "has partitions 0 to 3, and no 99")
        return {**seen, "bad": bad + against_axe(page) + hard_to_read(page)}

    with start_worker(replace(config.but(web_receipts=True), pipelines=(only,))) as worker:
        worker.wait_ready()
        until(lambda: records(worker).get("duplicate"), "the duplicate is judged")
        look = chromium.look(address(worker), act, width=360)

    assert f"{config.source}:1:30" in look.seen["#story"]
    for part in ("#story", "#receipts-rows"):
        assert "<img src=x onerror=document.title='owned'><script>" in look.seen[part]
    assert look.seen["title"] == f"{config.application_id} · Seqmark"
    assert look.seen["bad"] == []
    assert [error for error in look.errors if "400" not in error] == []


def records(worker: Worker) -> dict[str, int]:
    (pipeline,) = json.loads(worker.get("/status.json")[1])["pipelines"]
    return dict(pipeline["records"])
