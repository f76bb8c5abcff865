"""Jars of the list come from Maven Central, or from the mirror that the user names to Ivy."""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from processor.broker.jars import KAFKA_JARS
from processor.broker.locked_jars import UnreachableJarError, download, locked, mirror
from processor.errors import BrokerError
from tests.support.kafka.security.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

JAR = "org/example/thing/1.2/thing-1.2.jar"


def test_there_is_a_list_of_the_brokers_jars_and_of_no_others() -> None:
    jars = locked(KAFKA_JARS)
    assert {path.rpartition("/")[2] for path in jars} >= {"kafka_2.13-4.3.0.jar", "slf4j-simple-1.7.36.jar"}
    assert all(len(bytes.fromhex(digest)) == 32 for digest in jars.values())
    assert locked(["org.example:thing:1.2"]) == {}


def test_without_settings_for_ivy_it_is_maven_central_and_with_them_their_first_root(tmp_path: Path) -> None:
    settings = tmp_path / "ivysettings.xml"
    assert mirror(settings) is None
    chain = '<chain name="all"><ibiblio name="a"/><ibiblio name="b" root="https://h/maven/"/></chain>'
    settings.write_text(f"<ivysettings><resolvers>{chain}</resolvers></ivysettings>")
    assert mirror(settings) == "https://h/maven"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("<ivysettings", "is not XML"),
        ("<ivysettings/>", r"has no <ibiblio root.*pip install 'seqmark\[spark\]'"),
        ('<ivysettings><ibiblio root="file:///etc"/></ivysettings>', "has no <ibiblio root"),
    ],
)
def test_settings_that_name_no_repository_are_refused(tmp_path: Path, settings: str, said: str) -> None:
    (tmp_path / "ivysettings.xml").write_text(settings)
    with pytest.raises(BrokerError, match=said):
        mirror(tmp_path / "ivysettings.xml")


def test_a_repository_that_does_not_answer_is_named_with_the_jar(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    with pytest.raises(UnreachableJarError, match=rf"{JAR}: .*127\.0\.0\.1.*refused"):
        download({JAR: "00"}, "http://127.0.0.1:1/maven", tmp_path / "jars", print)


def test_a_certificate_that_is_not_trusted_is_answered_with_how_to_trust_it(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).sign("localhost", until="20500101000000Z")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    (tmp_path / "jars").mkdir()
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        root = f"https://localhost:{server.server_port}/maven"
        with pytest.raises(UnreachableJarError, match=r"name its certificate: REQUESTS_CA_BUNDLE="):
            download({JAR: "00"}, root, tmp_path / "jars", print)
        server.shutdown()
