"""Which requests does a worker's web server answer, and what does every answer carry?"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from aiohttp.web import Application, AppRunner, Request, Response

from processor.worker.web.connections import HEAD_S, MOST, Connections
from processor.worker.web.guard import HEADERS_BYTES, PARSED_BYTES, SERVER, TARGET_BYTES
from processor.worker.web.views import AT_ONCE, HEADERS, View, Views, json_response

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = frozenset({"localhost", "seqmark.example"})


class Said(NamedTuple):
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def served(*views: View, head_s: float = HEAD_S) -> Iterator[int]:
    """Serve views on a port of this machine, in a loop of its own."""
    loop = asyncio.new_event_loop()

    async def start() -> tuple[AppRunner, int]:
        application = Application()
        Views(views, NAMES).add_to(application)
        connections = Connections(head_s)
        connections.bound(application)
        runner = AppRunner(application, access_log=None, **SERVER)
        await runner.setup()
        await connections.site(runner, socket.create_server(("127.0.0.1", 0))).start()
        return runner, runner.addresses[0][1]

    runner, port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def ask(port: int, target: str = "/data", *lines: str, method: str = "GET", host: str = "") -> Said:
    """Ask with exactly these headers, which no client of HTTP would let through."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [f"{method} {target} HTTP/1.1", *([f"Host: {host}"] if host else []), *lines, "Connection: close"]
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
    answer = await reader.read()
    writer.close()
    top, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = top.decode().split("\r\n")
    return Said(int(first.split()[1]), dict(line.split(": ", 1) for line in rest), body)


def status(port: int, *lines: str, target: str = "/data", host: str = "127.0.0.1", method: str = "GET") -> int:
    return asyncio.run(ask(port, target, *lines, host=host, method=method)).status


async def data(_: Request) -> Response:
    return json_response({"secret": 1})


VIEWS = (View("/data", data), View("/", data, is_page=True), View("/metrics", data, is_open=True))
LINK = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(*VIEWS) as number:
        yield number


def test_addresses_and_names_of_this_machine_may_ask(port: int) -> None:
    hosts = ("127.0.0.1", f"127.0.0.1:{port}", "[::1]:80", "10.1.2.3:6066", "LocalHost:1", "seqmark.example")

    assert {host: status(port, host=host) for host in hosts} == dict.fromkeys(hosts, 200)


def test_a_name_that_was_rebound_to_this_address_reads_nothing(port: int) -> None:
    hosts = (
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:6066",
        "localhost@evil.example",
        "evil.example:x",
        "localhost:6066:6066",
        "1",
    )

    assert {host: status(port, host=host) for host in hosts} == dict.fromkeys(hosts, 403)
    assert status(port, host="") == 400
    assert status(port, "Host: evil.example") == 400


def test_pages_of_other_origins_read_nothing(port: int) -> None:
    for line in (
        "Origin: https://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:3000",
        "Origin: http://localhost",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ):
        said = asyncio.run(ask(port, "/data", line, host="127.0.0.1:6066"))
        assert (said.status, b"secret" in said.body) == (403, False), line
        assert not any(name.lower().startswith("access-control") for name in said.headers)
    assert (
        status(port, "Origin: http://127.0.0.1:6066", "Sec-Fetch-Site: same-origin", host="127.0.0.1:6066")
        == 200
    )


def test_a_link_leads_to_the_page_and_to_no_data(port: int) -> None:
    assert status(port, *LINK, "Sec-Fetch-Dest: document", target="/") == 200
    assert status(port, *LINK, "Sec-Fetch-Dest: iframe", target="/") == 403
    assert status(port, *LINK, "Sec-Fetch-Dest: document") == 403


def test_what_is_oversized_is_refused(port: int) -> None:
    assert status(port, target=f"/data?q={'x' * (TARGET_BYTES - 8)}") == 200
    assert status(port, target=f"/data?q={'x' * (TARGET_BYTES - 7)}") == 414
    assert status(port, *(f"X-{number}: {'y' * 1000}" for number in range(HEADERS_BYTES // 1000 + 1))) == 431
    assert status(port, f"Cookie: {'y' * (PARSED_BYTES + 1)}") == 400
    assert status(port, "Content-Length: 1") == 413


def test_nothing_but_reading_is_answered(port: int) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        said = asyncio.run(ask(port, "/metrics", host="localhost", method=method))
        assert (said.status, said.headers.get("Allow")) == (405, "GET, HEAD"), method
    head = asyncio.run(ask(port, host="localhost", method="HEAD"))
    assert (head.status, head.body) == (200, b"")


def test_prometheus_and_probes_may_call_the_worker_as_they_like(port: int) -> None:
    assert status(port, target="/metrics", host="worker-0.pods.cluster.local") == 200
    assert status(port, target="/metrics?x=1", host="10.0.0.7:6066") == 200


def test_every_answer_forbids_frames_guessing_and_keeping(port: int) -> None:
    for target in ("/data", "/nowhere", "/metrics"):
        said = asyncio.run(ask(port, target, host="localhost"))
        assert {name: said.headers.get(name) for name in HEADERS} == dict(HEADERS), target
    assert asyncio.run(ask(port, "/nowhere", host="localhost")).status == 404


def test_a_view_that_fails_says_nothing_of_why(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: Request) -> Response:
        raise RuntimeError("the password is 1234")

    with served(View("/data", broken)) as number:
        said = asyncio.run(ask(number, host="localhost"))

    assert (said.status, b"1234" in said.body) == (500, False)
    assert "1234" in caplog.text


def test_of_costly_answers_only_few_are_made_at_once() -> None:
    ready, release = threading.Semaphore(0), threading.Event()

    async def slow(_: Request) -> Response:
        ready.release()
        await asyncio.to_thread(release.wait)
        return json_response({})

    async def crowd(number: int) -> list[Said]:
        first = [asyncio.create_task(ask(number, host="localhost")) for _ in range(AT_ONCE)]
        for _ in first:
            await asyncio.to_thread(ready.acquire)
        more = await ask(number, host="localhost")
        release.set()
        return [more, *await asyncio.gather(*first), await ask(number, host="localhost")]

    with served(View("/data", slow, is_costly=True)) as number:
        more, *others = asyncio.run(crowd(number))

    assert (more.status, more.headers["Retry-After"]) == (429, "1")
    assert [said.status for said in others] == [200] * (AT_ONCE + 1)
    assert json.loads(more.body)["error"]


def connected(port: int, said: bytes = b"") -> socket.socket:
    """Connect, and say so much."""
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(said)
    return made


def is_ended(connection: socket.socket) -> bool:
    """Whether the server ends a connection, within the minute that `connected` gives it."""
    with connection:
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def test_of_many_connections_that_say_nothing_the_oldest_go_and_requests_are_answered(port: int) -> None:
    half = b"GET /data HTTP/1.1\r\nHost: localhost\r\nX-A: "
    silent = [connected(port, half * (number % 2)) for number in range(3 * MOST)]

    assert status(port) == 200
    assert all(map(is_ended, silent[: 2 * MOST]))
    for each in silent:
        each.close()


def test_a_connection_is_ended_that_sends_no_whole_head_in_time_and_one_that_does_is_kept() -> None:
    request = b"GET /data HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served(*VIEWS, head_s=0.5) as number, connected(number, request) as kept:
        assert is_ended(connected(number))
        assert is_ended(connected(number, request[:-1]))
        kept.sendall(request)
        answers = b""
        while answers.count(b'{"secret":1}') < 2:
            answers += kept.recv(65_536)
        kept.sendall(request[:-1])
        assert is_ended(kept)


def test_what_is_being_answered_is_ended_by_no_crowd() -> None:
    ready, release = threading.Event(), threading.Event()

    async def slow(_: Request) -> Response:
        ready.set()
        await asyncio.to_thread(release.wait)
        return json_response({})

    with served(View("/slow", slow), *VIEWS) as number, ExitStack() as crowd:
        asked = crowd.enter_context(connected(number, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        ready.wait()
        silent = [crowd.enter_context(connected(number)) for _ in range(2 * MOST)]
        assert is_ended(silent[0])
        release.set()
        assert asked.recv(12) == b"HTTP/1.1 200"
