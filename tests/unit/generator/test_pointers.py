"""Does a pointer find its field in a generated value, and is one that cannot be made to fit refused?"""

from __future__ import annotations

import json

import pytest

from processor.errors import ConfigError
from processor.generator.pointers import Fields

CLICK = b'{"event_id":"1","page":"/a"}'


def put(*pointers: str) -> object:
    fields = Fields([(f"key{index}", pointer) for index, pointer in enumerate(pointers)])
    found = json.loads(fields.put(CLICK, [b"%d" % (10 + index) for index in range(len(pointers))]))
    assert (found.pop("event_id"), found.pop("page")) == ("1", "/a")
    return found


@pytest.mark.parametrize(
    ("pointer", "wanted"),
    [
        ("/seq", {"seq": 10}),
        ("/meta/seq", {"meta": {"seq": 10}}),
        ("/a~1b/~0c", {"a/b": {"~c": 10}}),
        ("/~01", {"~1": 10}),
        ("/", {"": 10}),
        ('/qu"ote/%d', {'qu"ote': {"%d": 10}}),
        ("/Größe/♞", {"Größe": {"♞": 10}}),
        ("/counts/2", {"counts": [None, None, 10]}),
        ("/a/0/1", {"a": [[None, 10]]}),
        ("/7", {"7": 10}),
        ("/a/16", {"a": {"16": 10}}),
        ("/a/01", {"a": {"01": 10}}),
        ("/a/-", {"a": {"-": 10}}),
    ],
)
def test_a_pointer_finds_its_field(pointer: str, wanted: object) -> None:
    assert put(pointer) == wanted


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("/m/a", "/m/b", {"m": {"a": 10, "b": 11}}),
        ("/b", "/a", {"b": 10, "a": 11}),
        ("/m/1", "/m/0", {"m": [11, 10]}),
        ("/m/0", "/m/x", {"m": {"0": 10, "x": 11}}),
        ("/m/1/e", "/m/1/s", {"m": [None, {"e": 10, "s": 11}]}),
    ],
)
def test_two_pointers_share_what_is_on_their_way(one: str, other: str, wanted: object) -> None:
    assert put(one, other) == wanted


@pytest.mark.parametrize(
    ("pointers", "message"),
    [
        (["/page"], "key0: /page leads into page"),
        (["/page/number"], "key0: /page/number leads into page"),
        (["/amount/0"], "leads into amount"),
        ([""], "is the whole value"),
        (["/a" * 129], "129 steps"),
        (["/n", "/n"], "key1: /n and another pointer"),
        (["/n", "/n/m"], "key1: /n/m and another pointer"),
        (["/n/m", "/n"], "key1: /n and another pointer"),
    ],
)
def test_what_cannot_be_made_to_fit_is_refused(pointers: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        put(*pointers)


def test_the_deepest_pointer_that_may_be_judged_fits() -> None:
    assert json.loads(Fields([("key", "/a" * 128)]).put(CLICK, [b"1"]))["a"]
