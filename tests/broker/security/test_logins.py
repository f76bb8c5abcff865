"""A worker goes through each door that a config can name; at a locked one it says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.security.certificates import LATE, OLD, Authority
from tests.support.kafka.security.secured import (
    EXPIRED,
    MECHANISMS,
    MUTUAL,
    PASSWORD,
    SCRAM,
    TLS,
    USER,
    Secured,
    secured_broker,
)
from tests.support.kafka.topics import group_offsets, sequences
from tests.support.worker.process import WorkerConfig, new, new_config, produce, read_topic, run_drain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.broker

Keys = dict[str, object]
USER_KEYS: Keys = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


class Doors(NamedTuple):
    """A broker, and an authority that it does not know."""

    broker: Secured
    stranger: Authority

    def client(self, authority: Authority | None = None, until: str = LATE) -> Keys:
        """Return the keys of a client's certificate."""
        certificate, key = (authority or self.broker.authority).sign("client", until)
        return {"ssl_certfile": certificate, "ssl_keyfile": key}


class Locked(NamedTuple):
    """A door that does not open.

    Attributes:
        listener: The door.
        keys: What the config has for it.
        says: What the message says is wrong.
        advice: What it says to do.
    """

    listener: str
    keys: Callable[[Doors], Keys]
    says: str
    advice: str


LOCKED = {
    "wrong password": Locked(
        SCRAM,
        lambda _: {**USER_KEYS, "sasl_mechanism": MECHANISMS[0], "sasl_plain_password": "mistyped"},
        f"wrong user or password: the broker refuses {USER}",
        "mend kafka.sasl_plain_username or kafka.sasl_plain_password",
    ),
    "wrong password, SHA-512": Locked(
        SCRAM,
        lambda _: {**USER_KEYS, "sasl_mechanism": MECHANISMS[1], "sasl_plain_password": "mistyped"},
        f"wrong user or password: the broker refuses {USER}",
        "mend kafka.sasl_plain_username or kafka.sasl_plain_password",
    ),
    "unknown user": Locked(
        SCRAM,
        lambda _: {**USER_KEYS, "sasl_mechanism": MECHANISMS[0], "sasl_plain_username": "eve"},
        "wrong user or password: the broker refuses eve",
        "have the user made (for SCRAM-SHA-256)",
    ),
    "mechanism that is not offered": Locked(
        SCRAM,
        lambda _: {**USER_KEYS, "sasl_mechanism": "PLAIN"},
        "the listener does not offer PLAIN; it offers SCRAM-SHA-256, SCRAM-SHA-512",
        "set kafka.sasl_mechanism to one of those",
    ),
    "unknown authority": Locked(
        TLS,
        lambda doors: {"ssl_cafile": doors.stranger.certificate},
        "the certificate's authority is not known here",
        "set kafka.ssl_cafile to the PEM file of the authority",
    ),
    "unknown authority, SCRAM": Locked(
        SCRAM,
        lambda doors: {**USER_KEYS, "sasl_mechanism": MECHANISMS[0], "ssl_cafile": doors.stranger.certificate},
        "the certificate's authority is not known here",
        "set kafka.ssl_cafile to the PEM file of the authority",
    ),
    "expired certificate": Locked(
        EXPIRED, lambda _: {}, "the broker's certificate has expired", "have the certificate renewed"
    ),
    "certificate of another name": Locked(
        TLS,
        lambda doors: {"bootstrap_servers": f"127.0.0.1:{doors.broker.ports[TLS]}"},
        "the certificate is for another name than 127.0.0.1",
        "connect by a name that is in the certificate",
    ),
    "no client certificate": Locked(
        MUTUAL, lambda _: {}, "the listener wants a client's certificate", "set kafka.ssl_certfile"
    ),
    "client certificate of an unknown authority": Locked(
        MUTUAL,
        lambda doors: doors.client(doors.stranger),
        "the broker refuses the client's certificate",
        "whether the broker trusts its authority",
    ),
    "expired client certificate": Locked(
        MUTUAL,
        lambda doors: doors.client(until=OLD),
        "the broker refuses the client's certificate",
        "look whether kafka.ssl_certfile has expired",
    ),
    "plain words to a TLS listener": Locked(
        TLS,
        lambda _: {"security_protocol": "PLAINTEXT", "ssl_cafile": None},
        "what listens speaks no Kafka with PLAINTEXT",
        "this port may want TLS",
    ),
}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with secured_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield Doors(broker, Authority(tmp_path_factory.mktemp("stranger")))


@pytest.fixture
def config(doors: Doors, tmp_path: Path) -> WorkerConfig:
    """Give an application with three records to come, of which one is a duplicate."""
    config = new_config(doors.broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(1), new(1), new(2)])
    return config


def drains(config: WorkerConfig, env: Mapping[str, str]) -> None:
    ended = run_drain(config, env=env)

    assert ended.code == 0, ended.stderr
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == [1, 2]
    assert group_offsets(config.bootstrap_servers, config.application_id) == {(config.source, 0): 3}
    assert PASSWORD not in ended.stderr + ended.stdout


def test_a_worker_drains_through_tls(doors: Doors, config: WorkerConfig) -> None:
    drains(config, doors.broker.env(TLS))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_worker_drains_with_a_password(doors: Doors, config: WorkerConfig, mechanism: str) -> None:
    drains(config, doors.broker.env(SCRAM, sasl_mechanism=mechanism, **USER_KEYS))


def test_a_worker_drains_through_mutual_tls(doors: Doors, config: WorkerConfig) -> None:
    drains(config, doors.broker.env(MUTUAL, **doors.client()))


@pytest.mark.parametrize("name", LOCKED)
def test_a_door_that_is_locked_is_told_with_what_to_do_and_nothing_is_written(
    doors: Doors, config: WorkerConfig, name: str
) -> None:
    listener, keys, says, advice = LOCKED[name]
    env = doors.broker.env(listener, **keys(doors))

    ended = run_drain(config, env=env)

    assert ended.code == 1, ended.stderr
    assert says in ended.stderr
    assert advice in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not any(secret in ended.stderr for secret in (PASSWORD, "mistyped"))
    assert group_offsets(config.bootstrap_servers, config.application_id) == {}
    # Whoever mends it loses nothing.
    drains(config, doors.broker.env(TLS))


@pytest.mark.parametrize("name", LOCKED)
def test_a_command_says_the_same_at_a_locked_door(doors: Doors, config: WorkerConfig, name: str) -> None:
    listener, keys, says, advice = LOCKED[name]
    env = doors.broker.env(listener, **keys(doors))

    shown = CliRunner().invoke(main, ["read", "-c", str(config.write()), config.source], env=env)

    assert shown.exit_code == 1, shown.output
    assert says in shown.stderr
    assert advice in shown.stderr
    assert shown.stdout == ""
