"""How to reach the Kafka cluster; security has Kafka's own names."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from schemas.config.values import ConfigTable, Servers


class Kafka(ConfigTable):
    """The table ``[kafka]``."""

    bootstrap_servers: Servers = Field(
        description="Addresses to reach the cluster by: HOST:PORT, several separated by commas."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How connections are encrypted and authenticated."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN", description="How a user proves who he is; read with SASL_* only."
    )
    sasl_plain_username: str | None = Field(
        default=None, description="The user's name; needed with SASL_*, SCRAM included."
    )
    sasl_plain_password: SecretStr | None = Field(
        default=None,
        description="The user's password; never printed. Better in the environment than in a file.",
    )
    ssl_cafile: Path | None = Field(
        default=None,
        description="PEM file of the authorities to trust; without it those of the system.",
    )
    ssl_certfile: Path | None = Field(
        default=None, description="PEM file of this client's certificate, for mutual TLS."
    )
    ssl_keyfile: Path | None = Field(
        default=None, description="PEM file of the key to `ssl_certfile`, where it is not in there."
    )
    ssl_password: SecretStr | None = Field(default=None, description="Password of that key; never printed.")
    ssl_check_hostname: bool = Field(
        default=True, description="Refuse a broker whose certificate is for another host."
    )
