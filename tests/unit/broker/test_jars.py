"""Jars are fetched once, whole or not at all, and what goes wrong is said with what to do."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from processor.broker.jars import _SETTINGS, KAFKA_JARS, _proxy_flags, resolve
from processor.errors import BrokerError
from tests.support.suite.java import FakeJava

if TYPE_CHECKING:
    from pathlib import Path

COORDINATES = ("org.example:thing_2.13:1.2", "org.example:other:3")
# What Ivy leaves behind, in the folder that it is started in.
FETCHES = "mkdir jars; echo one > jars/a-1.2.jar; echo three > jars/b-3.jar"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty cache folder of Seqmark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "seqmark"


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> FakeJava:
    java = FakeJava(tmp_path / "jdk", script=script)
    monkeypatch.setenv("JAVA_HOME", str(java.home))
    return java


def test_the_second_call_starts_no_java(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake(tmp_path, monkeypatch, FETCHES)
    said: list[str] = []

    first = resolve(COORDINATES, "thing", say=said.append)
    java.path.unlink()
    second = resolve(COORDINATES, "thing", say=said.append)

    folder = cache / "jars" / "thing-1.2-3"
    assert first == second == [folder / "a-1.2.jar", folder / "b-3.jar"]
    assert len(java.calls) == 1
    assert said == [f"fetching the jars of thing, once (up to a minute): {', '.join(COORDINATES)}"]


@pytest.mark.parametrize("spoil", ["remove", "cut", "manifest"])
def test_a_spoiled_set_is_fetched_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    java = fake(tmp_path, monkeypatch, FETCHES)
    first, _ = jars = resolve(COORDINATES, "thing")
    if spoil == "remove":
        first.unlink()
    elif spoil == "cut":
        first.write_bytes(b"o")
    else:
        (cache / "jars" / "thing-1.2-3" / "jars.json").write_text("[")

    assert resolve(COORDINATES, "thing") == jars
    assert first.read_text() == "one\n"
    assert len(java.calls) == 2


@pytest.mark.parametrize("level", ["", "jars", "jars/thing-1.2-3"])
def test_jars_that_others_could_have_put_there_are_not_run(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    java = fake(tmp_path, monkeypatch, FETCHES)
    before = os.umask(0)
    try:
        jars = resolve(COORDINATES, "thing")
    finally:
        os.umask(before)
    assert resolve(COORDINATES, "thing") == jars, "whatever the umask is: what was fetched is this user's alone"
    (cache / level).chmod(0o777)
    with pytest.raises(BrokerError, match=r"not run: .* can be written by others .*XDG_CACHE_HOME"):
        resolve(COORDINATES, "thing")
    assert len(java.calls) == 1


def test_nothing_is_fetched_by_what_others_could_have_put_into_ivys_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake(tmp_path, monkeypatch, FETCHES)
    (cache / "ivy").mkdir(parents=True)
    (cache / "ivy").chmod(0o777)
    with pytest.raises(BrokerError, match=r"ivy can be written by others"):
        resolve(COORDINATES, "thing")
    assert not java.calls


def test_other_exclusions_are_another_set(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake(tmp_path, monkeypatch, "cp ivy.xml ../../seen.xml; " + FETCHES)
    resolve(COORDINATES, "thing")
    assert "<exclude" not in (cache / "seen.xml").read_text()
    resolve(COORDINATES, "thing", exclude=["org.scala-lang:*"])
    assert '<exclude org="org.scala-lang" module="*"/>' in (cache / "seen.xml").read_text()
    assert len(java.calls) == 2


def test_two_at_once_fetch_once_and_the_second_says_that_it_waits(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    java = fake(tmp_path, monkeypatch, f'until [ -e "{go}" ]; do sleep 0.02; done; {FETCHES}')
    answers: list[list[Path]] = []
    said: list[str] = []

    def ask() -> None:
        answers.append(resolve(COORDINATES, "thing", say=said.append))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    while not any("waiting for another process" in line for line in said):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    go.touch()
    for thread in threads:
        thread.join(120)

    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert answers[0][0].is_relative_to(cache)
    assert len(java.calls) == 1


def test_what_a_killed_fetch_left_is_swept_up(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = cache / "jars" / ".fetch-old" / "jars"
    left.mkdir(parents=True)
    fake(tmp_path, monkeypatch, FETCHES)
    resolve(COORDINATES, "thing")
    assert not left.parent.exists()


def test_without_network_and_cache_it_says_three_ways_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ivy itself, with a proxy where nobody listens.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(BrokerError) as caught:
        resolve(KAFKA_JARS, "kafka")
    message = str(caught.value)
    assert "are not in the cache and cannot be fetched" in message
    assert "Connection refused" in message
    assert "run this command once with the network" in message
    assert str(cache / "jars" / "kafka-4.3.0-1.7.36") in message
    assert str(cache / "ivysettings.xml") in message
    assert not list((cache / "jars").glob("kafka*"))
    assert not list((cache / "jars").glob(".fetch-*"))


def test_a_module_whose_pom_does_not_come_is_no_module_without_needs(cache: Path, tmp_path: Path) -> None:
    # Ivy itself, at a repository with a jar and no POM: what a network that fails for a moment looks like.
    module = tmp_path / "repository" / "org" / "example" / "thing" / "1.2"
    module.mkdir(parents=True)
    with ZipFile(module / "thing-1.2.jar", "w") as jar:
        jar.writestr("empty", "")
    cache.mkdir(parents=True)
    root = f'<ibiblio root="file://{tmp_path}/repository/"'
    (cache / "ivysettings.xml").write_text(_SETTINGS.replace("<ibiblio", root))

    with pytest.raises(BrokerError, match=r"Ivy cannot resolve the jars of thing:(.|\n)*thing;1.2: not found"):
        resolve(("org.example:thing:1.2",), "thing")

    assert not list((cache / "jars").glob("thing*"))


def test_a_full_disk_is_named_with_the_way_out(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "impossible to install file: java.io.IOException: No space left on device"; exit 1'
    fake(tmp_path, monkeypatch, script)
    with pytest.raises(BrokerError, match=f"disk of the cache {cache}.* is full: .*XDG_CACHE_HOME"):
        resolve(COORDINATES, "thing")


def test_a_cache_that_cannot_be_made_is_named(cache: Path) -> None:
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(BrokerError, match=f"{cache}.* cannot be used.*XDG_CACHE_HOME"):
        resolve(COORDINATES, "thing")


def test_any_other_failure_of_ivy_is_quoted(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, 'echo ":: org.example#thing_2.13;1.2: not found"; exit 1')
    with pytest.raises(BrokerError, match=r"Ivy cannot resolve the jars of thing:\n.*1.2: not found"):
        resolve(COORDINATES, "thing")
    assert not (cache / "jars" / "thing-1.2-3").exists()


def test_own_settings_for_ivy_are_used(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake(tmp_path, monkeypatch, FETCHES)
    cache.mkdir(parents=True)
    (cache / "ivysettings.xml").write_text("<ivysettings/>")
    resolve(COORDINATES, "thing")
    assert f"-settings {cache / 'ivysettings.xml'} " in java.calls[0]


def test_proxies_of_the_environment_reach_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert _proxy_flags() == []
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost,.intern.example")
    assert _proxy_flags() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.intern.example",
    ]


@pytest.mark.parametrize("wrong", ["org.example:thing", "a:b:c:d", "a:b:c d", "::"])
def test_a_malformed_coordinate_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not 3 names"):
        resolve([wrong], "thing")
