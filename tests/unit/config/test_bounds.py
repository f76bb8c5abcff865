"""What is too deep, too long or too large for a config is refused as every other mistake."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from processor.config.bounds import MOST_BYTES, MOST_DEPTH, MOST_VALUES
from processor.config.lines import key_lines
from processor.config.load import load
from processor.errors import ConfigError, Problem
from tests.unit.config.test_mistakes import RIGHT

if TYPE_CHECKING:
    from pathlib import Path

TOO_DEEP = "is nested too deeply: at most 100 tables and lists within each other"
TOO_MANY = "has too much in it: at most 10,000 keys and elements of lists"
NINES = "9" * 5_000
DEDUP = "SEQMARK_PIPELINES__0__DEDUP"


def refused(tmp_path: Path, text: str, **environ: str) -> list[Problem]:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 5_000, TOO_DEEP),
        ("x = " + "[" * 101 + "]" * 101, TOO_DEEP),
        ("[" + ".".join("a" * 3_000) + "]", TOO_DEEP),
        ("x = " + "{a=" * 3_000 + "1" + "}" * 3_000, TOO_DEEP),
        (f"{'.'.join(['a'] * 400_000)} = 1", TOO_DEEP),
        (f"x = {{ {'.'.join(['a'] * 102)} = 1 }}", TOO_DEEP),
        (f"""["b".{" . ".join(["'a'"] * 102)}]""", TOO_DEEP),
        (f"x = [{'{},' * 200_000}]", TOO_MANY),
        ("".join(f"k{number} = 1\n" for number in range(MOST_VALUES)), TOO_MANY),
        (f"x = {NINES}", "has a number of too many digits"),
    ],
    ids=["brackets", "lists", "steps", "tables", "key", "inner", "quoted", "elements", "keys", "digits"],
)
def test_what_cannot_be_followed_is_a_mistake_of_the_config(tmp_path: Path, text: str, message: str) -> None:
    (problem,) = refused(tmp_path, f"{RIGHT}\n{text}\n")

    assert problem.message == message
    assert problem.place is not None
    assert problem.place.file == str(tmp_path / "my.toml")


def test_what_is_just_deep_enough_is_an_unknown_key_with_its_line(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, f"x = {'[' * (MOST_DEPTH - 1)}{']' * (MOST_DEPTH - 1)}\n{RIGHT}")

    assert str(problem).startswith(f"{tmp_path / 'my.toml'}:1: x: is not a known key")


def test_lines_of_what_is_too_deep_are_those_before_it() -> None:
    assert key_lines("a = 1\nb = " + "[" * 5_000)["a",] == 1


@pytest.mark.parametrize("text", ["[" * 5_000, "[" * 500 + "]" * 500, "{a=" * 500 + "1" + "}" * 500])
def test_a_variable_that_is_too_deep_is_refused(tmp_path: Path, text: str) -> None:
    assert [each.message for each in refused(tmp_path, RIGHT, **{DEDUP: text})] == [TOO_DEEP]


def test_a_variable_with_too_much_in_it_is_refused(tmp_path: Path) -> None:
    assert [each.message for each in refused(tmp_path, RIGHT, **{DEDUP: f"[{'1,' * 20_000}1]"})] == [TOO_MANY]


def test_a_dot_in_a_value_makes_no_key_deep(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, f"x = [\"{'.'.join(['a'] * 200)}\", '{'.'.join(['a'] * 200)}']\n{RIGHT}")

    assert str(problem).startswith(f"{tmp_path / 'my.toml'}:1: x: is not a known key")


def test_as_many_elements_as_may_be_are_looked_up_in_seconds(tmp_path: Path) -> None:
    elements = "".join(f'[[pipelines]]\nname = "p{number}"\n' for number in range(MOST_VALUES // 2 - 20))
    began_s = time.process_time()

    problems = refused(tmp_path, f"{RIGHT}\n{elements}")

    assert len(problems) > MOST_VALUES // 2
    assert time.process_time() - began_s < 20


def test_an_index_of_thousands_of_digits_overrides_nothing(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, RIGHT, **{f"SEQMARK_PIPELINES__{NINES}__NAME": "x"})

    assert problem.message.startswith("overrides no known key")


@pytest.mark.parametrize("number", [f"0x{'f' * 5_000}", "9" * 4_000])
@pytest.mark.parametrize("key", ["commit_interval_ms", "slots", "create_topics", "guarantee"])
def test_a_long_number_is_shown_cut(tmp_path: Path, number: str, key: str) -> None:
    text = RIGHT.replace('application_id = "shop"', f'application_id = "shop"\n{key} = {number}')
    (problem,) = refused(tmp_path, text)

    assert f"given: {number[:60]}… ({len(number):,} characters)" in problem.message


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_a_number_without_end_is_told_what_would_be_right(tmp_path: Path, number: str) -> None:
    (problem,) = refused(
        tmp_path,
        RIGHT.replace('application_id = "shop"', f'application_id = "shop"\ncommit_interval_ms = {number}'),
    )

    assert problem.message == f"must be a finite number; given: {number}"


def test_a_variable_that_is_no_utf_8_is_told_so(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, RIGHT, SEQMARK_WORKER__COMMIT_INTERVAL_MS=os.fsdecode(b"\xff"))

    assert problem.message == 'must be text in UTF-8; given: "\\udcff"'


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    exactly = RIGHT.ljust(MOST_BYTES, "\n")
    (problem,) = refused(tmp_path, exactly + "=")

    assert problem.message == "is too large for a config: 1,000,001 bytes, at most 1,000,000 are read"
    (tmp_path / "my.toml").write_text(exactly, encoding="utf-8")
    assert load(tmp_path / "my.toml", {}).pipelines


def test_a_config_from_a_pipe_is_told_of_its_mistakes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a = 1\nb = = 2\n",), daemon=True)
    writer.start()
    with pytest.raises(ConfigError, match="is not valid TOML in line 2, column 5"):
        load(pipe, {})
    writer.join()
