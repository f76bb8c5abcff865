"""Gives a broker whose doors are locked: TLS, SCRAM and mutual TLS, each on a listener of its own.

Beside its plain listener, which is for the tests, it has one that asks for a password (`SCRAM`), one that shows
a certificate and asks for nothing (`TLS`), one that asks for a client's certificate (`MUTUAL`), and one whose
own certificate has expired (`EXPIRED`). Keys and certificates are PEM files, made as an operator does.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from processor.broker.embedded import EmbeddedBroker
from processor.broker.ports import HOST, Ports
from tests.support.kafka.security.certificates import LATE, OLD, Authority
from tests.support.kafka.topics import CALL_S, admin, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NAME = "localhost"
"""What the brokers' certificates are for, and what clients connect to."""
SCRAM, TLS, MUTUAL, EXPIRED = LISTENERS = ("scram", "tls", "mutual", "expired")
USER, PASSWORD = "ada", "correct horse battery staple"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ITERATIONS = 4096
_PROTOCOLS = {SCRAM: "SASL_SSL", TLS: "SSL", MUTUAL: "SSL", EXPIRED: "SSL"}


class Secured(NamedTuple):
    """A broker with locked doors."""

    bootstrap_servers: str
    """The plain one, for tests."""
    ports: Mapping[str, int]
    """Those of the doors."""
    authority: Authority
    """Has signed the broker's certificates; the broker trusts it for those of clients."""

    def env(self, listener: str, **kafka: object) -> dict[str, str]:
        """Return what sends a worker to a door; ``kafka`` are further keys of ``[kafka]``, None: none."""
        keys = {
            "bootstrap_servers": f"{NAME}:{self.ports[listener]}",
            "security_protocol": _PROTOCOLS[listener],
            "ssl_cafile": self.authority.certificate,
            **kafka,
        }
        return {f"SEQMARK_KAFKA__{key.upper()}": str(value) for key, value in keys.items() if value}


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Start one with its keys in ``folder``; it is stopped at the end."""
    (folder / "authority").mkdir()
    authority = Authority(folder / "authority")
    ports, doors = Ports(0), {name: free_port() for name in LISTENERS}
    keys = {name: _key_store(authority, folder, OLD if name == EXPIRED else LATE) for name in LISTENERS}
    listeners = ",".join(f"{name.upper()}://{HOST}:{port}" for name, port in doors.items())
    advertised = ",".join(f"{name.upper()}://{NAME}:{port}" for name, port in doors.items())
    protocols = ",".join(f"{name.upper()}:{protocol}" for name, protocol in _PROTOCOLS.items())
    plain = f"PLAINTEXT://{HOST}:{ports.broker}"
    overrides = {
        "listeners": f"{plain},{listeners},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"{plain},{advertised}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"listener.name.{MUTUAL}.ssl.client.auth": "required",
        f"listener.name.{MUTUAL}.ssl.truststore.type": "PEM",
        f"listener.name.{MUTUAL}.ssl.truststore.location": str(authority.certificate),
    }
    for name, store in keys.items():
        overrides[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        overrides[f"listener.name.{name}.ssl.keystore.location"] = str(store)
    for mechanism in MECHANISMS:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        overrides[f"listener.name.{SCRAM}.{mechanism.lower()}.sasl.jaas.config"] = module
    with EmbeddedBroker(ports=ports, overrides=overrides) as broker:
        _make_user(broker.bootstrap_servers)
        yield Secured(broker.bootstrap_servers, doors, authority)


def _key_store(authority: Authority, folder: Path, until: str) -> Path:
    """Return the key and the certificate of a broker in one file, as Kafka reads them (KIP-651)."""
    certificate, key = authority.sign(NAME, until)
    store = folder / f"{until}.pem"
    store.write_text(key.read_text() + certificate.read_text())
    return store


def _make_user(bootstrap: str) -> None:
    client = admin(bootstrap)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, _ITERATIONS)
        wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for done in client.alter_user_scram_credentials([wanted]).values():
            done.result(CALL_S)
