"""Goes the way to a broker step by step: name, connection, TLS, Kafka's versions, credentials.

The steps after one that fails are not tried. The same way is gone to each address that the brokers themselves
name: whoever connects is sent there, and a listener that only the broker's own network knows ends the way.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.kafka.client import KafkaCode, KafkaError
from processor.kafka.protocol.greeting import Greeting
from processor.kafka.protocol.requests import (
    DescribeTransactionsRequest,
    FetchByIdRequest,
    MetadataRequest,
)
from processor.ops.status_text import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.inspection.doctor.rows import Trials
    from schemas.config import Kafka

NETWORK, BROKER = "network", "broker"
CONNECT_S = 5.0
"""For each step; a broker that is well answers in milliseconds."""
SOON_S = 30 * 86_400.0
"""A certificate that ends before is a warning: who renews it by hand has to hear of it in time."""
NO_CONNECTION = "no connection"
_EXPIRED, _NOT_YET, _NAMES = 10, 9, {62, 64}
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, CERT_NOT_YET_VALID, and of hosts and addresses that do not match."""
_STEPS = ("name", "connection", "TLS", "Kafka's versions", "credentials")


class _Failed(NamedTuple):
    """Why a step failed, and what to do."""

    says: str
    advice: str


class Reached(NamedTuple):
    """What a way to a broker has led to.

    Attributes:
        brokers: Number, host and port of all brokers, as this one names them.
        versions: By API key, lowest and highest.
    """

    brokers: list[tuple[int, str, int]]
    versions: Mapping[int, tuple[int, int]]


class Way:
    """The way to one address."""

    def __init__(self, kafka: Kafka, options: Mapping[str, Any], host: str, port: int) -> None:
        self._kafka = kafka
        self._options = options
        self._host = host
        self._port = port
        self._greeting = Greeting(host, port, options, CONNECT_S)
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._brokers: list[tuple[int, str, int]] = []
        self._advertised = ""

    def advertised_by(self, node: int) -> Way:
        """Say in what is advised that this address is what a broker names."""
        self._advertised = (
            f"; broker {node} names this address (advertised.listeners), and clients are sent there: have it "
            "name one that this machine can reach"
        )
        return self

    async def go(self, trials: Trials, label: str, *, only: bool) -> Reached | None:
        """Go it, and note each step; None where it does not lead to a broker that answers.

        Args:
            trials: Where it is noted.
            label: What the address is, for the rows.
            only: Whether there is no other way.
        """
        address = f"{label} {self._host}:{self._port}"
        steps = {
            "name": self._name,
            "connection": self._connection,
            "TLS": self._tls if self._kafka.security_protocol.endswith("SSL") else None,
            "Kafka's versions": self._api_versions,
            "credentials": self._credentials,
        }
        failed = ""
        for step, take in steps.items():
            tried = f"{step}: {address}"
            if take is None:
                continue
            if failed:
                trials.not_tried(NETWORK, tried, f"{failed} failed")
                continue
            found = await take()
            if isinstance(found, _Failed):
                trials.fails(NETWORK, tried, found.says, found.advice + self._advertised, only=only)
                failed = step
            elif step == "TLS" and found.startswith("!"):
                trials.warning(NETWORK, tried, found[1:], "have the certificate renewed")
            else:
                trials.ok(NETWORK, tried, found)
        return None if failed else Reached(self._brokers, self._versions)

    async def _name(self) -> str | _Failed:
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await asyncio.get_running_loop().getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM
                )
        except TimeoutError:
            return _Failed(f"no answer in {CONNECT_S:.0f} s", "ask why this machine's DNS does not answer")
        except (OSError, UnicodeError) as error:
            return _Failed(
                f"{self._host} does not resolve: {getattr(error, 'strerror', None) or error}",
                "look for a typing error in the name, or ask this machine's DNS for it",
            )
        return ", ".join(sorted({str(each[4][0]) for each in found}))

    async def _connection(self) -> str | _Failed:
        began = time.monotonic()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(self._host, self._port)
        except TimeoutError:
            return _Failed(
                f"no answer in {CONNECT_S:.0f} s",
                "look for a firewall or a security group that drops packets on the way",
            )
        except OSError as error:
            return _Failed(
                f"refused: {error.strerror or error}",
                "start the broker, or mend the port: nothing listens there",
            )
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return f"{(time.monotonic() - began) * 1000:.0f} ms"

    async def _tls(self) -> str | _Failed:
        context: ssl.SSLContext = self._options["ssl_context"]
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            return _of_certificate(error, self._host)
        except (OSError, TimeoutError) as error:
            return _Failed(
                f"the listener speaks no TLS, or none that both know: {_reason(error)}",
                "compare kafka.security_protocol with the listener's: this port may be a plaintext one",
            )
        secured = writer.get_extra_info("ssl_object")
        certificate, version = secured.getpeercert() or {}, secured.version()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        if "notAfter" not in certificate:
            return str(version)
        left_s = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
        mark = "!" if left_s < SOON_S else ""
        return f"{mark}{version}, the certificate ends in {duration(left_s)}"

    async def _api_versions(self) -> str | _Failed:
        try:
            self._versions = await self._greeting.versions()
        except (KafkaError, OSError, TimeoutError) as error:
            protocol = self._kafka.security_protocol
            encrypted = protocol.endswith("SSL")
            advice = (
                "look whether the listener wants a client's certificate (kafka.ssl_certfile)"
                if encrypted
                else "compare kafka.security_protocol with the listener's: this port may want TLS"
            )
            return _Failed(f"what listens speaks no Kafka with {protocol}: {_reason(error)}", advice)
        return "answers"

    async def _credentials(self) -> str | _Failed:
        protocol = self._kafka.security_protocol
        if protocol.startswith("SASL") and (failed := await self._mechanism()) is not None:
            return failed
        try:
            self._brokers = await self._greeting.brokers()
        except KafkaError as error:
            if getattr(error, "errno", None) == KafkaCode.SASL_AUTHENTICATION_FAILED:
                return _Failed(
                    f"wrong user or password: the broker refuses {self._kafka.sasl_plain_username}",
                    "mend kafka.sasl_plain_username or kafka.sasl_plain_password, or have the user made "
                    f"(for {self._kafka.sasl_mechanism})",
                )
            return self._closed(error)
        except (OSError, TimeoutError) as error:
            return self._closed(error)
        if not protocol.startswith("SASL"):
            return "none are asked for" if protocol == "PLAINTEXT" else "none but the certificate"
        return f"{self._kafka.sasl_plain_username} by {self._kafka.sasl_mechanism}"

    async def _mechanism(self) -> _Failed | None:
        """Say why the configured SASL mechanism cannot be used."""
        mechanism = self._kafka.sasl_mechanism
        try:
            code, offered = await self._greeting.mechanisms(mechanism)
        except (KafkaError, OSError, TimeoutError) as error:
            return self._closed(error)
        if code == KafkaCode.ILLEGAL_SASL_STATE:
            plain = self._kafka.security_protocol.removeprefix("SASL_")
            return _Failed(
                "the listener asks for no credentials",
                f'set kafka.security_protocol = "{plain}", or take the port of a SASL listener',
            )
        if mechanism not in offered:
            return _Failed(
                f"the listener does not offer {mechanism}; it offers {', '.join(sorted(offered)) or 'none'}",
                "set kafka.sasl_mechanism to one of those, or have it enabled (sasl.enabled.mechanisms)",
            )
        return None

    def _closed(self, error: Exception) -> _Failed:
        if self._kafka.security_protocol.startswith("SASL"):
            return _Failed(
                f"the broker ends the connection while it is told who we are: {_reason(error)}",
                "see the broker's log; compare kafka.sasl_* with the listener's settings",
            )
        return _Failed(
            f"the broker ends the connection without an answer: {_reason(error)}",
            "the listener may want credentials: set kafka.security_protocol to SASL_PLAINTEXT or SASL_SSL",
        )


def not_gone(trials: Trials, label: str, *, tls: bool) -> None:
    """Note that no way could be gone to ``label``."""
    for step in _STEPS:
        if step != "TLS" or tls:
            trials.not_tried(NETWORK, f"{step}: {label}", NO_CONNECTION)


def judge_versions(trials: Trials, versions: Mapping[int, tuple[int, int]], *, exactly_once: bool) -> None:
    """Note whether the broker knows the requests that a worker makes."""
    tried = "least version, Kafka 3.0"
    if _knows(versions, DescribeTransactionsRequest):
        age = "3.1 or newer" if _knows(versions, FetchByIdRequest) else "3.0: sources are read by name"
        trials.ok(BROKER, tried, age)
    elif exactly_once:
        trials.problem(
            BROKER,
            tried,
            "older than 3.0: it does not tell how a transaction stands (KIP-664)",
            'upgrade it, or set worker.guarantee = "at_least_once" with what that means',
        )
    else:
        known = "2.8 or newer" if _knows(versions, MetadataRequest) else "older than 2.8, without topic ids"
        trials.warning(BROKER, tried, known, "it is enough for at_least_once; upgrade it for exactly_once")


def _knows(versions: Mapping[int, tuple[int, int]], request: Any) -> bool:
    lowest, highest = versions.get(request.API_KEY, (1, 0))
    return bool(lowest <= request.VERSION <= highest)


def _of_certificate(error: ssl.SSLCertVerificationError, host: str) -> _Failed:
    says = error.verify_message
    if error.verify_code == _EXPIRED:
        return _Failed("the broker's certificate has expired", "have the certificate renewed")
    if error.verify_code == _NOT_YET:
        return _Failed(
            "the broker's certificate is not valid yet", "compare this machine's clock with the broker's"
        )
    if error.verify_code in _NAMES:
        return _Failed(
            f"the certificate is for another name than {host}: {says}",
            "connect by a name that is in the certificate, or have one made with this name in it; "
            "kafka.ssl_check_hostname = false accepts any name, and any broker's certificate",
        )
    return _Failed(
        f"the certificate's authority is not known here: {says}",
        "set kafka.ssl_cafile to the PEM file of the authority that signed it",
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {CONNECT_S:.0f} s"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason
    cause = error.__cause__
    return str(error) or (repr(cause) if cause is not None else type(error).__name__)
