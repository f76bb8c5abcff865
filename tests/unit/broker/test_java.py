"""The first Java that fits is taken; where none fits, the error says what was found and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.broker import java
from processor.broker.java import find_java
from processor.errors import BrokerError
from tests.support.suite.java import FakeJava

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_java_but_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setattr(java, "_USUAL_PLACES", (str(tmp_path / "usual" / "*" / "bin" / "java"),))


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("17", 17), ("19-ea", 19), ("21.0.2", 21)])
def test_a_java_from_17_to_21_is_taken(tmp_path: Path, version: str, major: int) -> None:
    fake = FakeJava(tmp_path / "path", version)
    found = find_java()
    assert (found.path, found.major, found.home) == (fake.path, major, fake.home)


@pytest.mark.parametrize(
    ("version", "words"), [("1.8.0_402", "is Java 8, too old"), ("25.0.1", "is Java 25, too new")]
)
def test_another_java_is_refused_by_name(tmp_path: Path, version: str, words: str) -> None:
    fake = FakeJava(tmp_path / "path", version)
    with pytest.raises(BrokerError) as caught:
        find_java()
    assert f"{fake.path} {words}" in str(caught.value)
    assert "Install a JDK 17 or 21" in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)


def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(BrokerError, match=r"no Java found by JAVA_HOME, on PATH.*Install a JDK 17 or 21"):
        find_java()


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeJava(tmp_path / "path", "17.0.1")
    home = FakeJava(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home.home))
    assert find_java().path == home.path


def test_a_fitting_java_in_the_usual_folders_helps_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_new = FakeJava(tmp_path / "path", "25")
    monkeypatch.setenv("JAVA_HOME", str(too_new.home))
    fits = FakeJava(tmp_path / "usual" / "jdk-17")
    assert find_java().path == fits.path


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match=f"JAVA_HOME is {tmp_path}, which holds no bin/java"):
        find_java()


def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = FakeJava(tmp_path / "path")
    broken.path.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(BrokerError, match="does not tell its version"):
        find_java()


def test_a_java_that_was_named_and_not_taken_is_said_with_the_one_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_old = FakeJava(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(too_old.home))
    too_new = FakeJava(tmp_path / "path", "25")
    FakeJava(tmp_path / "usual" / "jdk-11", "11.0.2")
    fits = FakeJava(tmp_path / "usual" / "jdk-17")

    note = find_java().note

    assert f"{too_old.path} is Java 11, too old; {too_new.path} is Java 25, too new: taking {fits.path}" in note
    assert "jdk-11" not in note


def test_nothing_is_said_of_a_java_that_is_the_one_that_was_named(tmp_path: Path) -> None:
    FakeJava(tmp_path / "path")
    assert find_java().note == ""
