"""A client's options follow the config, and files of certificates are checked before they are used."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import ConfigError
from processor.kafka.options import client_options
from schemas.config import Kafka

if TYPE_CHECKING:
    from pathlib import Path


def kafka(**keys: Any) -> Kafka:
    return Kafka(bootstrap_servers="a:1,b:2", **keys)


def refused(**keys: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        client_options(kafka(**keys))
    return {problem.key: problem.message for problem in caught.value.problems}


def test_plaintext_gives_the_addresses_only() -> None:
    assert client_options(kafka()) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
    }


def test_sasl_gives_the_credentials() -> None:
    options = client_options(
        kafka(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="me",
            sasl_plain_password="hunter2",  # noqa: S106 - nobody's
        )
    )
    assert options["sasl_mechanism"] == "SCRAM-SHA-256"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("me", "hunter2")
    assert "ssl_context" not in options


@pytest.mark.parametrize("check", [True, False])
def test_tls_verifies_the_broker_and_its_name_unless_told_not_to(check: bool) -> None:  # noqa: FBT001 - a parameter of the test
    context = client_options(kafka(security_protocol="SSL", ssl_check_hostname=check))["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is check


def test_files_that_are_not_there_are_named_all_at_once(tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    found = refused(security_protocol="SSL", ssl_cafile=absent, ssl_certfile=absent)
    assert set(found) == {"kafka.ssl_cafile", "kafka.ssl_certfile"}
    assert str(absent) in found["kafka.ssl_cafile"]


@pytest.mark.parametrize("key", ["ssl_cafile", "ssl_certfile"])
def test_a_file_without_certificates_is_named_and_its_text_is_not_shown(tmp_path: Path, key: str) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("hunter2", encoding="utf-8")
    secret = {"ssl_password": "hunter2"}
    found = refused(security_protocol="SSL", **{key: garbage}, **secret)
    assert set(found) == {f"kafka.{key}"}
    assert "hunter2" not in str(found)
