"""Answers for the web server while the program that will serve is still being imported.

Imports take a second or two, on a busy machine five; whoever asks for `/health` in that time is to hear that
the process lives. A thread answers on the sockets that the web server has later. Those who connect and say
nothing hold up nobody: there are at most `MOST`, of which the oldest goes where one more comes.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_REQUEST_BYTES = 4096
MOST = 64
_PATIENCE_S = 1.0
"""For who takes no answer, and at the end for who has connected and has not asked yet."""
_LATER = "503 Service Unavailable"
_JSON, _HTML = "application/json", "text/html; charset=utf-8"
_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Seqmark is starting</title>
<link rel="icon" href="data:,">
<main><h1>Seqmark is starting</h1>
<p>This page loads itself again each second, until the worker answers.</p></main>
</html>
"""
"""A header has it loaded again: it needs no script, and says nothing that a screen reader has to read."""
_ANSWERS = {
    b"/": (_LATER, _HTML, _PAGE),
    b"/health": ("200 OK", _JSON, '{"status": "ok"}'),
    b"/ready": (_LATER, _JSON, '{"ready": false, "reason": "starting"}'),
}
_HEADERS = """\
Cache-Control: no-store\r
Content-Security-Policy: default-src 'none'; img-src data:; frame-ancestors 'none'\r
X-Content-Type-Options: nosniff\r
Connection: close\r
"""


@contextlib.contextmanager
def answering(sockets: Sequence[socket.socket]) -> Iterator[None]:
    """Answer on listening sockets while the block runs: `/health` with 200, all else with 503."""
    mine, other = socket.socketpair()
    for each in sockets:
        each.setblocking(False)
    thread = threading.Thread(target=_answer, args=(list(sockets), other), name="early web", daemon=True)
    thread.start()
    try:
        yield
    finally:
        mine.close()
        thread.join()
        other.close()


def _answer(sockets: list[socket.socket], ended: socket.socket) -> None:
    silent: list[socket.socket] = []
    left_s, until_s = None, math.inf
    with selectors.DefaultSelector() as selector:
        for each in (*sockets, ended):
            selector.register(each, selectors.EVENT_READ)
        while until_s == math.inf or (silent and time.monotonic() < until_s):
            ready: list[Any] = [key.fileobj for key, _ in selector.select(left_s)]
            for one in ready:
                # Who gives up halfway is nobody's trouble.
                with contextlib.suppress(OSError):
                    if one is ended:
                        for each in (*sockets, ended):
                            selector.unregister(each)
                        left_s, until_s = _PATIENCE_S, time.monotonic() + _PATIENCE_S
                        break
                    if one in sockets:
                        silent.append(one.accept()[0])
                        selector.register(silent[-1], selectors.EVENT_READ)
                    else:
                        silent.remove(one)
                        selector.unregister(one)
                        _answer_one(one)
            while len(silent) > MOST:
                selector.unregister(silent[0])
                silent.pop(0).close()
    for each in silent:
        each.close()


def _answer_one(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(_PATIENCE_S)
        words = connection.recv(_REQUEST_BYTES).split(b" ", 2)
        path = words[1].partition(b"?")[0] if len(words) > 1 else b""
        status, kind, body = _ANSWERS.get(path, (_LATER, _JSON, ""))
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        head += "Refresh: 1\r\n" if kind == _HTML else ""
        connection.sendall(f"{head}{_HEADERS}\r\n{body}".encode())
        connection.shutdown(socket.SHUT_WR)
