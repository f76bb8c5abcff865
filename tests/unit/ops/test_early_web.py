"""Who asks while the program is imported hears that it lives, and the sockets are whole afterwards."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from processor.ops.early_web import MOST, answering
from tests.support.chromium.browser import against_axe, hard_to_read

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.chromium.browser import Chromium


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_is_answered_and_nothing_is_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with answering([listening]):
            # Who hangs up, or says what is no request, does not end it.
            socket.create_connection(("127.0.0.1", port)).close()
            with socket.create_connection(("127.0.0.1", port)) as rude:
                rude.sendall(b"\r\n\r\n")
            assert ask(port, "/health") == (200, '{"status": "ok"}')
            assert ask(port, "/health?by=balancer") == (200, '{"status": "ok"}')
            assert ask(port, "/ready") == (503, '{"ready": false, "reason": "starting"}')
            assert ask(port, "/metrics") == (503, "")
        with socket.create_connection(("127.0.0.1", port)):
            listening.setblocking(True)
            listening.accept()[0].close()


def test_who_connects_and_says_nothing_holds_up_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening, ExitStack() as crowd:
        port = listening.getsockname()[1]
        with answering([listening]):
            silent = [
                crowd.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2 * MOST)
            ]
            began_s = time.monotonic()
            assert ask(port, "/health") == (200, '{"status": "ok"}')
            assert time.monotonic() - began_s < MOST  # as one after the other would take
            assert silent[0].recv(1) == b""
            silent[-1].sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert silent[-1].recv(12) == b"HTTP/1.1 200"


def test_the_page_is_for_everybody(chromium: Chromium, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, answering([listening]):
        status, html = ask(listening.getsockname()[1], "/")
    # As a file it is not loaded again each second, in the middle of what a slow machine looks at.
    page = tmp_path / "early.html"
    page.write_text(html, encoding="utf-8")

    look = chromium.look(page.as_uri(), lambda page: against_axe(page) + hard_to_read(page), width=360)

    assert (status, look.seen, look.errors, look.requests) == (503, [], [], [])


def test_somebody_who_opens_the_page_too_early_sees_it_come(chromium: Chromium) -> None:
    def act(page: Page) -> str:
        told = page.locator("body").inner_text()
        ending.set()
        page.get_by_text("here I am").wait_for()
        return told

    def serve() -> None:
        with answering([listening]):
            ending.wait()
        listening.setblocking(True)
        while not done.is_set():
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhere I am")

    ending, done = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = threading.Thread(target=serve)
        server.start()
        try:
            look = chromium.look(f"http://127.0.0.1:{port}/", act, width=360)
        finally:
            ending.set()
            done.set()
            socket.create_connection(("127.0.0.1", port)).close()
            server.join()

    assert "Seqmark is starting" in look.seen


def test_nothing_is_left_where_the_block_fails() -> None:
    with pytest.raises(RuntimeError), answering([]):
        raise RuntimeError
