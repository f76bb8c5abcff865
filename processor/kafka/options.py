"""Makes the keyword arguments with which every aiokafka client reaches the cluster."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from aiokafka.helpers import create_ssl_context

from processor.errors import ConfigError, Problem

if TYPE_CHECKING:
    from schemas.config import Kafka


def client_options(kafka: Kafka) -> dict[str, Any]:
    """Return ``bootstrap_servers`` and security for aiokafka's client, consumer, producer and admin client.

    The password is in there in the clear, for aiokafka wants it so: do not log the result.

    Raises:
        ConfigError: A file of certificates or keys cannot be read, or does not fit the others.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers.split(","),
        "security_protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.sasl_plain_username
        password = kafka.sasl_plain_password
        options["sasl_plain_password"] = password.get_secret_value() if password else None
    if kafka.security_protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(kafka)
    return options


def _ssl_context(kafka: Kafka) -> ssl.SSLContext:
    _require_files(kafka)
    try:
        context: ssl.SSLContext = create_ssl_context(cafile=kafka.ssl_cafile)
    except OSError as error:
        raise _wrong("ssl_cafile", "has no certificates in PEM form", error) from error
    # Python 3.13 refuses authorities that lack extensions of RFC 5280, which Kafka's other clients take.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if kafka.ssl_certfile:
        secret = kafka.ssl_password
        # Never None: OpenSSL would ask for the password on the terminal, in a service for ever.
        password = secret.get_secret_value() if secret else ""
        try:
            context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile, password)
        except (OSError, ValueError) as error:
            message = (
                "cannot be used with ssl_keyfile and ssl_password: not PEM, not a pair, or another password"
            )
            raise _wrong("ssl_certfile", message, error) from error
    context.check_hostname = kafka.ssl_check_hostname
    return context


def _require_files(kafka: Kafka) -> None:
    problems = []
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path = getattr(kafka, key)
        if path is None:
            continue
        try:
            path.open("rb").close()
        except OSError as error:
            problems.append(Problem(f"kafka.{key}", f"cannot be read: {error.strerror}: {path}"))
    if problems:
        raise ConfigError(problems)


def _wrong(key: str, message: str, error: Exception) -> ConfigError:
    reason = f" ({error.reason})" if isinstance(error, ssl.SSLError) and error.reason else ""
    return ConfigError([Problem(f"kafka.{key}", message + reason)])
