"""Finds why a broker does not let a client in: goes to an address step by step, and says what to do.

A client does it all at once, and says only that it has failed. The steps are the name, the connection, TLS,
Kafka's versions and the credentials; each is a call, and none is of use after one that was refused.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.kafka.addresses import host_of
from processor.kafka.options import client_options
from processor.kafka.protocol.codes import KafkaCode
from processor.kafka.protocol.greeting import Greeting
from processor.kafka.protocol.internals import KafkaError
from processor.ops.status_text import duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from schemas.config import Kafka

CONNECT_S = 5.0
"""For each step; a broker that is well answers in milliseconds."""
SOON_S = 30 * 86_400.0
"""A certificate that ends before is a warning: who renews it by hand has to hear of it in time."""
SOON = "!"
"""Before what is said of such a certificate."""
_EXPIRED, _NOT_YET, _NAMES = 10, 9, {62, 64}
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, CERT_NOT_YET_VALID, and of hosts and addresses that do not match."""


STEPS = ("name", "connection", "TLS", "Kafka's versions", "credentials")


class Refused(NamedTuple):
    """Why a step failed, and what to do."""

    says: str
    advice: str

    def __str__(self) -> str:
        return f"{self.says}: {self.advice}"


class Approach:
    """The way to one address, a method a step; ``options`` are those of an aiokafka client.

    ``versions`` has by API key the lowest and the highest one that the broker knows, ``brokers`` number, host
    and port of all that it names; both are empty until they were asked for.
    """

    def __init__(self, kafka: Kafka, options: Mapping[str, Any], host: str, port: int) -> None:
        self._kafka = kafka
        self._options = options
        self._host = host
        self._port = port
        self._greeting = Greeting(host, port, options, CONNECT_S)
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.brokers: list[tuple[int, str, int]] = []

    def steps(self) -> list[tuple[str, Callable[[], Awaitable[str | Refused]]]]:
        """Return the steps by their names, in order."""
        steps = zip(STEPS, (self.name, self.connection, self.tls, self.kafka, self.credentials), strict=True)
        encrypted = self._kafka.security_protocol.endswith("SSL")
        return [each for each in steps if encrypted or each[0] != "TLS"]

    async def name(self) -> str | Refused:
        """Look the host up; returns its addresses."""
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await asyncio.get_running_loop().getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM
                )
        except TimeoutError:
            return Refused(f"no answer in {CONNECT_S:.0f} s", "ask why this machine's DNS does not answer")
        except (OSError, UnicodeError) as error:
            return Refused(
                f"{self._host} does not resolve: {getattr(error, 'strerror', None) or error}",
                "look for a typing error in the name, or ask this machine's DNS for it",
            )
        return ", ".join(sorted({str(each[4][0]) for each in found}))

    async def connection(self) -> str | Refused:
        """Connect; returns how long it took."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(self._host, self._port)
        except TimeoutError:
            return Refused(
                f"no answer in {CONNECT_S:.0f} s",
                "look for a firewall or a security group that drops packets on the way",
            )
        except OSError as error:
            return Refused(
                f"refused: {error.strerror or error}",
                "start the broker, or mend the port: nothing listens there",
            )
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return f"{(time.monotonic() - began) * 1000:.0f} ms"

    async def tls(self) -> str | Refused:
        """Shake hands; returns the version, and when the certificate ends, `SOON` or not."""
        context: ssl.SSLContext = self._options["ssl_context"]
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            return _of_certificate(error, self._host)
        except (OSError, TimeoutError) as error:
            if (refused := self._of_client(error)) is not None:
                return refused
            return Refused(
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
        mark = SOON if left_s < SOON_S else ""
        return f"{mark}{version}, the certificate ends in {duration(left_s)}"

    async def kafka(self) -> str | Refused:
        """Ask for the versions that it knows, which names no user."""
        try:
            self.versions = await self._greeting.versions()
        except (KafkaError, OSError, TimeoutError) as error:
            protocol = self._kafka.security_protocol
            encrypted = protocol.endswith("SSL")
            if encrypted and (refused := await self._behind_tls()) is not None:
                return refused
            advice = (
                "look whether the listener wants a client's certificate (kafka.ssl_certfile)"
                if encrypted
                else "compare kafka.security_protocol with the listener's: this port may want TLS"
            )
            return Refused(f"what listens speaks no Kafka with {protocol}: {_reason(error)}", advice)
        return "answers"

    async def _behind_tls(self) -> Refused | None:
        """Say whether the client's certificate is refused, which TLS 1.3 tells behind its handshake only."""
        context: ssl.SSLContext = self._options["ssl_context"]
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
                try:
                    await reader.read(1)
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            return self._of_client(error)
        return None

    def _of_client(self, error: BaseException) -> Refused | None:
        alert = (isinstance(error, ssl.SSLError) and error.reason) or ""
        if "CERTIFICATE" not in alert and "UNKNOWN_CA" not in alert:
            return None
        if self._kafka.ssl_certfile is None:
            return Refused(
                f"the listener wants a client's certificate ({alert})",
                "set kafka.ssl_certfile and kafka.ssl_keyfile to one that the broker's authority has signed",
            )
        return Refused(
            f"the broker refuses the client's certificate ({alert})",
            "look whether kafka.ssl_certfile has expired, and whether the broker trusts its authority",
        )

    async def credentials(self) -> str | Refused:
        """Give the credentials, if any are configured; returns whose they are."""
        protocol = self._kafka.security_protocol
        if protocol.startswith("SASL") and (failed := await self._mechanism()) is not None:
            return failed
        try:
            self.brokers = await self._greeting.brokers()
        except KafkaError as error:
            if getattr(error, "errno", None) == KafkaCode.SASL_AUTHENTICATION_FAILED:
                return Refused(
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

    async def _mechanism(self) -> Refused | None:
        """Say why the configured SASL mechanism cannot be used."""
        mechanism = self._kafka.sasl_mechanism
        try:
            code, offered = await self._greeting.mechanisms(mechanism)
        except (KafkaError, OSError, TimeoutError) as error:
            return self._closed(error)
        if code == KafkaCode.ILLEGAL_SASL_STATE:
            plain = self._kafka.security_protocol.removeprefix("SASL_")
            return Refused(
                "the listener asks for no credentials",
                f'set kafka.security_protocol = "{plain}", or take the port of a SASL listener',
            )
        if mechanism not in offered:
            return Refused(
                f"the listener does not offer {mechanism}; it offers {', '.join(sorted(offered)) or 'none'}",
                "set kafka.sasl_mechanism to one of those, or have it enabled (sasl.enabled.mechanisms)",
            )
        return None

    def _closed(self, error: Exception) -> Refused:
        if self._kafka.security_protocol.startswith("SASL"):
            return Refused(
                f"the broker ends the connection while it is told who we are: {_reason(error)}",
                "see the broker's log; compare kafka.sasl_* with the listener's settings",
            )
        return Refused(
            f"the broker ends the connection without an answer: {_reason(error)}",
            "the listener may want credentials: set kafka.security_protocol to SASL_PLAINTEXT or SASL_SSL",
        )


async def why_refused(kafka: Kafka) -> Refused | None:
    """Go to each bootstrap server, and return why the one that was come nearest to refuses a client.

    None: one of them takes it now.

    Raises:
        ConfigError: Files of certificates or keys are wrong.
    """
    options = client_options(kafka)
    away: Refused | None = None
    for address in kafka.bootstrap_servers.split(","):
        approach = Approach(kafka, options, host_of(address), int(address.rpartition(":")[2]))
        for name, step in approach.steps():
            said = await step()
            if isinstance(said, Refused):
                if name not in {"name", "connection"}:
                    return said
                away = away or said
                break
        else:
            return None
    return away


def _of_certificate(error: ssl.SSLCertVerificationError, host: str) -> Refused:
    says = error.verify_message
    if error.verify_code == _EXPIRED:
        return Refused("the broker's certificate has expired", "have the certificate renewed")
    if error.verify_code == _NOT_YET:
        return Refused(
            "the broker's certificate is not valid yet", "compare this machine's clock with the broker's"
        )
    if error.verify_code in _NAMES:
        return Refused(
            f"the certificate is for another name than {host}: {says}",
            "connect by a name that is in the certificate, or have one made with this name in it; "
            "kafka.ssl_check_hostname = false accepts any name, and any broker's certificate",
        )
    return Refused(
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
