"""The web server's port is taken before anything is begun: the one that is named, or the next free one."""

from __future__ import annotations

import logging
import socket

import pytest

from processor.errors import StopError
from processor.ops.web_port import listen
from schemas.config import WorkerOptions


def options(port: int, *, named: bool, host: str = "127.0.0.1") -> WorkerOptions:
    fields = {"application_id", *(["web_port"] if named else [])}
    return WorkerOptions.model_construct(fields, application_id="a", web_host=host, web_port=port)


def test_the_port_that_is_named_listens_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (listening,) = listen(options(port, named=True))
    with listening, socket.create_connection(("127.0.0.1", port)):
        pass


def test_a_port_that_is_named_and_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StopError, match=f"web server at 127.0.0.1:{port}: address already in use"):
            listen(options(port, named=True))


def test_the_default_gives_way_to_the_next_free_port(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (listening,) = listen(options(port, named=False))
        with listening:
            other = listening.getsockname()[1]
    assert port < other <= port + 99
    assert f"port {port} is taken" in caplog.text
    assert f"http://127.0.0.1:{other}" in caplog.text


def test_a_host_that_is_none_of_this_machine_is_an_error_and_port_0_is_none() -> None:
    with pytest.raises(StopError, match=r"web server at 192\.0\.2\.1:"):
        listen(options(6066, named=False, host="192.0.2.1"))
    assert listen(options(0, named=True)) == []
