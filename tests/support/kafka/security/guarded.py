"""Gives a broker that asks who one is, and what one may: SASL and ACLs.

Beside its plain listener, where everybody may do everything (the tests), it has two for the users `FIRST` and
`SECOND`: at one of them a session ends after a few seconds. Another plain one sends clients on to `LOST`, as a
container does that names itself by what only its own network knows. What no ACL speaks of is allowed to all,
or with ``strict`` to nobody but the tests; `only` and `anybody` set ACLs on a topic or a group.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from processor.broker.embedded import EmbeddedBroker
from processor.broker.ports import HOST, Ports
from tests.support.kafka.topics import CALL_S, admin, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIRST, SECOND = "first", "second"
SESSION_MS = 4000
LOST = "broker.invalid:9092"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_ANY_HOST = "*"


class Guarded(NamedTuple):
    """A broker with four doors."""

    bootstrap_servers: str
    """The plain one, for tests."""
    guarded_servers: str
    """That of the users."""
    short_servers: str
    """That of the users, with sessions of `SESSION_MS`."""
    lost_servers: str
    """The plain one that names itself `LOST`."""

    def env(self, user: str, *, short: bool = False) -> Mapping[str, str]:
        """Return what makes a worker that user."""
        return {
            "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": self.short_servers if short else self.guarded_servers,
            "SEQMARK_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "SEQMARK_KAFKA__SASL_MECHANISM": "PLAIN",
            "SEQMARK_KAFKA__SASL_PLAIN_USERNAME": user,
            "SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": f"{user}-secret",
        }

    def only(
        self,
        kind: ResourceType,
        name: str,
        *users: str,
        operation: AclOperation = AclOperation.ALL,
        another: AclOperation | None = None,
    ) -> None:
        """Allow one thing or two with a topic or a group to these users alone."""
        self.anybody(kind, name)
        allowed = [each for each in (operation, another) if each is not None]
        rules = [_binding(kind, name, user, each) for user in users or ("nobody",) for each in allowed]
        client = admin(self.bootstrap_servers)
        for done in client.create_acls(rules).values():
            done.result(CALL_S)

    def anybody(self, kind: ResourceType, name: str) -> None:
        """Take all ACLs of a topic or group away."""
        every = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        client = admin(self.bootstrap_servers)
        for done in client.delete_acls([every]).values():
            done.result(CALL_S)


def _binding(kind: ResourceType, name: str, user: str, operation: AclOperation) -> AclBinding:
    who = f"User:{user}"
    allow = AclPermissionType.ALLOW
    return AclBinding(kind, name, ResourcePatternType.LITERAL, who, _ANY_HOST, operation, allow)


@contextmanager
def guarded_broker(*, strict: bool = False, overrides: Mapping[str, str] | None = None) -> Iterator[Guarded]:
    """Start one, with further settings; it is stopped at the end."""
    ports, door, short, lost = Ports(0), free_port(), free_port(), free_port()
    users = " ".join(f'user_{user}="{user}-secret"' for user in (FIRST, SECOND))
    plain = f"PLAINTEXT://{HOST}:{ports.broker},GUARDED://{HOST}:{door},SHORT://{HOST}:{short}"
    settings = {
        "listeners": f"{plain},LOST://{HOST}:{lost},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"{plain},LOST://{LOST}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "GUARDED:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT,LOST:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f"{_LOGIN} {users};",
        "listener.name.short.plain.sasl.jaas.config": f"{_LOGIN} {users};",
        "listener.name.short.plain.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": str(not strict).lower(),
        **(overrides or {}),
    }
    with EmbeddedBroker(ports=ports, overrides=settings) as broker:
        yield Guarded(broker.bootstrap_servers, f"{HOST}:{door}", f"{HOST}:{short}", f"{HOST}:{lost}")
