"""Jars are fetched once, whole or not at all, by their hashes, and what goes wrong is said with what to do."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, cast

import pytest

from packing.jars import SETTINGS, lists, resolved
from processor.broker.jars import KAFKA_JARS, JarSet, jars_of, mirror, resolve
from processor.errors import BrokerError
from tests.support.kafka.security.certificates import Authority
from tests.support.worker.disk import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THING = JarSet("thing", ("org.example:thing_2.13:1.2", "org.example:other:3"))
FILES = {
    "org/example/thing_2.13/1.2/thing_2.13-1.2.jar": b"one",
    "org/example/other/3/other-3.jar": b"three",
}


class Repository(ThreadingHTTPServer):
    """A Maven repository with these files; it answers while it is `open`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[str] = []
        self.files = dict(FILES)
        self.open = threading.Event()
        self.open.set()


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        repository = cast("Repository", self.server)
        path = self.path.removeprefix("/maven/")
        repository.asked.append(path)
        assert repository.open.wait(120)
        content = repository.files.get(path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty cache folder of Seqmark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "seqmark"


@pytest.fixture
def repository(cache: Path) -> Iterator[Repository]:
    """Give a repository that the user's settings name."""
    server = Repository()
    name_mirror(cache, f"http://127.0.0.1:{server.server_port}/maven/")
    with served(server):
        yield server


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Give a list with a set, and with one that is the same but for what it leaves out."""
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}
    sets = [{**each._asdict(), "jars": hashes} for each in (THING, THING._replace(exclude=("org.other:*",)))]
    (tmp_path / "list.json").write_text(json.dumps(sets))
    return tmp_path / "list.json"


def name_mirror(cache: Path, root: str) -> None:
    cache.mkdir(parents=True, mode=0o700)
    settings = f'<ivysettings><resolvers><ibiblio name="a" root="{root}"/></resolvers></ivysettings>'
    (cache / "ivysettings.xml").write_text(settings)


def test_the_second_call_asks_nobody(cache: Path, repository: Repository, listed: Path) -> None:
    said: list[str] = []
    first = resolve(THING, listed=listed, say=said.append)
    asked = len(repository.asked)
    second = resolve(THING, listed=listed, say=said.append)

    folder = cache / "jars" / "thing-1.2-3"
    assert first == second == [folder / "other-3.jar", folder / "thing_2.13-1.2.jar"]
    assert len(repository.asked) == asked
    assert said == [
        f"fetching the jars of thing, once: {', '.join(THING.coordinates)}",
        "  thing_2.13-1.2.jar",
        "  other-3.jar",
    ]


@pytest.mark.parametrize("spoil", ["remove", "cut", "manifest"])
@pytest.mark.usefixtures("repository")
def test_a_spoiled_set_is_fetched_again(cache: Path, listed: Path, spoil: str) -> None:
    first, _ = jars = resolve(THING, listed=listed)
    if spoil == "remove":
        first.unlink()
    elif spoil == "cut":
        first.write_bytes(b"o")
    else:
        (cache / "jars" / "thing-1.2-3" / "jars.json").write_text("[")

    assert resolve(THING, listed=listed) == jars
    assert first.read_bytes() == b"three"


@pytest.mark.parametrize("level", ["", "jars", "jars/thing-1.2-3"])
def test_jars_that_others_could_have_put_there_are_not_run(
    cache: Path, repository: Repository, listed: Path, level: str
) -> None:
    before = os.umask(0)
    try:
        jars = resolve(THING, listed=listed)
    finally:
        os.umask(before)
    assert resolve(THING, listed=listed) == jars, "whatever the umask is: what was fetched is this user's alone"
    asked = len(repository.asked)
    (cache / level).chmod(0o777)
    with pytest.raises(BrokerError, match=r"not run: .* can be written by others .*XDG_CACHE_HOME"):
        resolve(THING, listed=listed)
    assert len(repository.asked) == asked


def test_other_exclusions_are_another_set(cache: Path, repository: Repository, listed: Path) -> None:
    resolve(THING, listed=listed)
    asked = len(repository.asked)
    other = THING._replace(exclude=("org.other:*",))
    resolve(other, listed=listed)
    assert len(repository.asked) > asked
    assert json.loads((cache / "jars/thing-1.2-3/jars.json").read_text())["exclude"] == ["org.other:*"]


def test_two_at_once_fetch_once_and_the_second_says_that_it_waits(repository: Repository, listed: Path) -> None:
    repository.open.clear()
    answers: list[list[Path]] = []
    said: list[str] = []

    def ask() -> None:
        answers.append(resolve(THING, listed=listed, say=said.append))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    while not any("waiting for another process" in line for line in said):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    repository.open.set()
    for thread in threads:
        thread.join(120)

    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert sum("fetching" in line and "once" in line for line in said) == 1


@pytest.mark.usefixtures("repository")
def test_what_a_killed_fetch_left_is_swept_up(cache: Path, listed: Path) -> None:
    left = cache / "jars" / ".fetch-old" / "jars"
    left.mkdir(parents=True)
    resolve(THING, listed=listed)
    assert not left.parent.exists()


def test_without_network_and_cache_it_says_three_ways_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy where nobody listens.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(BrokerError) as caught:
        resolve(KAFKA_JARS)
    message = str(caught.value)
    assert "are not in the cache and cannot be fetched" in message
    assert "refused" in message
    assert "run this command once with the network" in message
    assert str(cache / "jars" / "kafka-4.3.0-1.7.36") in message
    assert str(cache / "ivysettings.xml") in message
    assert not list((cache / "jars").glob("kafka*"))
    assert not list((cache / "jars").glob(".fetch-*"))


def test_a_jar_with_another_hash_is_not_used(cache: Path, repository: Repository, listed: Path) -> None:
    repository.files["org/example/other/3/other-3.jar"] = b"thref"
    with pytest.raises(BrokerError, match=r"serves a other-3\.jar that is not the one .*SHA-256 is another"):
        resolve(THING, listed=listed)
    assert not (cache / "jars" / "thing-1.2-3").exists()


def test_a_jar_that_is_not_there_is_named(repository: Repository, listed: Path) -> None:
    del repository.files["org/example/other/3/other-3.jar"]
    with pytest.raises(BrokerError, match=r"cannot be fetched: org/example/other/3/other-3\.jar: "):
        resolve(THING, listed=listed)


def test_a_full_disk_is_named_with_the_way_out(
    repository: Repository, listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted("1m") as disk:
        disk.path.chmod(0o700)
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk.path))
        name_mirror(disk.path / "seqmark", f"http://127.0.0.1:{repository.server_port}/maven/")
        disk.fill()
        with pytest.raises(BrokerError, match=f"disk of the cache {disk.path}.* is full: .*XDG_CACHE_HOME"):
            resolve(THING, listed=listed)


def test_a_cache_that_cannot_be_made_is_named(cache: Path, listed: Path) -> None:
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(BrokerError, match=f"{cache}.* cannot be used.*XDG_CACHE_HOME"):
        resolve(THING, listed=listed)


def test_a_certificate_that_is_not_trusted_is_answered_with_how_to_trust_it(
    cache: Path, tmp_path: Path, listed: Path
) -> None:
    certificate, key = Authority(tmp_path).sign("localhost", until="20500101000000Z")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Repository()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    name_mirror(cache, f"https://localhost:{server.server_port}/maven")
    with served(server), pytest.raises(BrokerError, match=r"name its certificate: REQUESTS_CA_BUNDLE="):
        resolve(THING, listed=listed)


def test_without_settings_it_is_maven_central_and_with_them_their_first_root(tmp_path: Path) -> None:
    settings = tmp_path / "ivysettings.xml"
    assert mirror(settings) is None
    chain = '<chain name="all"><ibiblio name="a"/><ibiblio name="b" root="https://h/maven/"/></chain>'
    settings.write_text(f"<ivysettings><resolvers>{chain}</resolvers></ivysettings>")
    assert mirror(settings) == "https://h/maven"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("<ivysettings", "is not XML"),
        ("<ivysettings/>", "has no <ibiblio root"),
        ('<ivysettings><ibiblio root="file:///etc"/></ivysettings>', "has no <ibiblio root"),
    ],
)
def test_settings_that_name_no_repository_are_refused(tmp_path: Path, settings: str, said: str) -> None:
    (tmp_path / "ivysettings.xml").write_text(settings)
    with pytest.raises(BrokerError, match=said):
        mirror(tmp_path / "ivysettings.xml")


def test_each_set_has_its_list() -> None:
    for file, sets in lists().items():
        for each in sets:
            jars = jars_of(each, file)
            own = [f"{name}-{revision}.jar" for _, name, revision in (c.split(":") for c in each.coordinates)]
            assert {path.rpartition("/")[2] for path in jars} >= set(own)
            assert all(len(bytes.fromhex(digest)) == 32 for digest in jars.values())
    with pytest.raises(BrokerError, match=r"has no list of the jars of org\.example:thing"):
        jars_of(THING)


def test_the_writer_of_lists_refuses_a_module_whose_pom_does_not_come(cache: Path, tmp_path: Path) -> None:
    # Ivy itself, at a repository with a jar and no POM: what a network that fails for a moment looks like.
    module = tmp_path / "repository" / "org" / "example" / "thing" / "1.2"
    module.mkdir(parents=True)
    (module / "thing-1.2.jar").write_bytes(b"one")
    settings = SETTINGS.replace("<ibiblio", f'<ibiblio root="file://{tmp_path}/repository/"')
    wanted = JarSet("thing", ("org.example:thing:1.2",))
    with pytest.raises(BrokerError, match=r"Ivy cannot resolve org\.example:thing(.|\n)*thing;1\.2: not found"):
        resolved(wanted, settings)

    pom = "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>{}</project>"
    inner = "<artifactId>thing</artifactId><version>1.2</version>"
    (module / "thing-1.2.pom").write_text(pom.format(inner))
    assert resolved(wanted, settings) == {
        "org/example/thing/1.2/thing-1.2.jar": hashlib.sha256(b"one").hexdigest()
    }
    assert (cache / "ivy").is_dir()
