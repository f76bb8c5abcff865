"""Who asks while the program is imported hears that it lives, and the sockets are whole afterwards."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from processor.ops.early_web import answering


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
            assert ask(port, "/ready") == (503, '{"ready": false, "reason": "starting"}')
            assert ask(port, "/metrics") == (503, "")
        with socket.create_connection(("127.0.0.1", port)):
            listening.setblocking(True)
            listening.accept()[0].close()


def test_nothing_is_left_where_the_block_fails() -> None:
    with pytest.raises(RuntimeError), answering([]):
        raise RuntimeError
