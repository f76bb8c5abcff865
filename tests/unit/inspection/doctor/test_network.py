"""What is wrong with TLS is told apart: no TLS at all, an unknown authority, another name, a date."""

from __future__ import annotations

import asyncio
import socketserver
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from processor.inspection.doctor.examine import go, judge_versions
from processor.inspection.findings import Finding, Findings, Level
from processor.kafka.options import client_options
from processor.kafka.protocol.refusal import Approach
from schemas.config import Kafka
from tests.support.kafka.security.certificates import LATE, OLD, Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "localhost"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def listening(context: ssl.SSLContext | None) -> Iterator[int]:
    """Listen, and close each connection once its handshake is over; yields the port.

    In threads, since asyncio does not send what a handshake on this side has failed of.
    """

    class Closing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if context is not None:
                with suppress(OSError), context.wrap_socket(self.request, server_side=True):
                    pass

    with socketserver.ThreadingTCPServer((HOST, 0), Closing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def steps(
    presented: tuple[Path, Path] | None,
    trusted: Path | None,
    wanted: Path | None = None,
    client: tuple[Path, Path] | None = None,
) -> dict[str, Finding]:
    """Go the way to a listener that speaks no Kafka; return its rows by step.

    Args:
        presented: The listener's certificate and key; None: it speaks no TLS.
        trusted: The authority that the config names.
        wanted: The authority of clients that the listener knows; None: it wants no certificate.
        client: The client's certificate and key.
    """

    async def gone() -> Findings:
        context = None
        if presented is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*presented)
            if wanted is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(wanted)
        with listening(context) as port:
            certificate, key = client or (None, None)
            kafka = Kafka(
                bootstrap_servers=f"{HOST}:{port}",
                security_protocol="SSL",
                ssl_cafile=trusted,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
            trials = Findings()
            await go(Approach(kafka, client_options(kafka), HOST, port), trials, "broker", only=True)
            return trials

    return {row.tried.partition(":")[0]: row for row in asyncio.run(gone()).rows}


def test_a_listener_without_tls_is_named_as_such_and_nothing_is_tried_behind_it(authority: Authority) -> None:
    found = steps(None, authority.certificate)

    assert found["connection"].outcome is Level.OK
    assert "speaks no TLS" in found["TLS"].says
    assert "kafka.security_protocol" in found["TLS"].advice
    assert {found[step].says for step in ("Kafka's versions", "credentials")} == {"TLS failed"}


@pytest.mark.parametrize(
    ("host", "until", "says"),
    [
        (HOST, OLD, "has expired"),
        ("broker.example", LATE, f"is for another name than {HOST}"),
    ],
)
def test_a_certificate_that_is_wrong_says_how(authority: Authority, host: str, until: str, says: str) -> None:
    found = steps(authority.sign(host, until), authority.certificate)["TLS"]

    assert (found.outcome, says in found.says) == (Level.PROBLEM, True)


def test_an_authority_that_is_not_known_names_the_key_to_set(authority: Authority) -> None:
    found = steps(authority.sign(HOST, LATE), None)["TLS"]

    assert "authority is not known here" in found.says
    assert "kafka.ssl_cafile" in found.advice


def test_a_listener_that_wants_a_clients_certificate_is_told_from_one_that_refuses_it(
    authority: Authority, tmp_path: Path
) -> None:
    own = authority.sign(HOST, LATE)
    stranger = Authority(tmp_path).sign("client", LATE)

    without = steps(own, authority.certificate, authority.certificate)["Kafka's versions"]
    refused = steps(own, authority.certificate, authority.certificate, stranger)["Kafka's versions"]

    assert "the listener wants a client's certificate" in without.says
    assert "kafka.ssl_certfile" in without.advice
    assert "the broker refuses the client's certificate" in refused.says
    assert "trusts its authority" in refused.advice


def test_a_certificate_that_ends_soon_is_a_warning_and_the_way_goes_on(authority: Authority) -> None:
    soon = (datetime.now(UTC) + timedelta(days=3)).strftime("%Y%m%d%H%M%SZ")

    found = steps(authority.sign(HOST, soon), authority.certificate)

    assert found["TLS"].outcome is Level.WARNING
    assert "the certificate ends in " in found["TLS"].says
    assert "speaks no Kafka" in found["Kafka's versions"].says


@pytest.mark.parametrize(
    ("versions", "exactly_once", "outcome"),
    [
        ({65: (0, 0), 1: (4, 17)}, True, Level.OK),
        ({65: (0, 0), 1: (0, 12)}, True, Level.OK),
        ({3: (0, 9)}, True, Level.PROBLEM),
        ({3: (0, 9)}, False, Level.WARNING),
    ],
)
def test_a_broker_that_is_too_old_is_a_problem_for_exactly_once(
    versions: dict[int, tuple[int, int]],
    exactly_once: bool,  # noqa: FBT001 - a parameter of the test
    outcome: Level,
) -> None:
    trials = Findings()

    judge_versions(trials, versions, exactly_once=exactly_once)

    assert [row.outcome for row in trials.rows] == [outcome]
