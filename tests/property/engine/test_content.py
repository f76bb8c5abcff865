"""Equal content has equal hashes, and other content has others, as Python's own parser sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.bytes.siphash import words_of_key
from processor.engine.extract.json_content import Content, content_key
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers
from processor.engine.verdict import Fault
from tests.support.judges.json_values import columns, is_json
from tests.support.judges.leaves import Number, content_hash, leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SECRET = bytes(range(16))
NAMES = st.sampled_from(["a", "b", "0", "1", "", "~/", "é", "sent_at", "a" * 8, "a" * 9, "\U0001f600"])
NUMBERS = st.sampled_from(["0", "-0", "1", "1.0", "1e0", "1E0", "12345678", "123456789"]).map(Number)
SCALARS = st.one_of(
    st.sampled_from([None, True, False, "", "1", "true", "x" * 7, "x" * 8, "\x00", "\n"]), NUMBERS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
POINTERS = st.lists(
    st.lists(NAMES, min_size=1, max_size=3).map(
        lambda path: "".join("/" + each.replace("~", "~0").replace("/", "~1") for each in path)
    ),
    max_size=3,
)


def hashed(
    values: list[bytes | None], exclude: Sequence[str] = (), secret: bytes = SECRET
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return the hash and the fault of each value."""
    cols = columns(values)
    content = Content(0, content_key(words_of_key(secret)), np.zeros((len(values), 2), np.uint64))
    found = look_up(cols.data, cols.value, cols.value_length, Pointers.of(exclude), content)
    return content.hash, found.fault


def hashes(values: list[bytes | None], exclude: Sequence[str] = (), secret: bytes = SECRET) -> list[bytes]:
    """Return the hash of each value, which has to be JSON."""
    found, fault = hashed(values, exclude, secret)
    assert not fault.any()
    return [each.tobytes() for each in found]


def text(draw: st.DrawFn, string: str) -> str:
    """Write a string, some of its characters as escapes."""
    written = []
    for character in string:
        ways = [json.dumps(character)[1:-1], json.dumps(character, ensure_ascii=False)[1:-1]]
        if ord(character) < 0x10000:
            ways += [f"\\u{ord(character):04x}", f"\\u{ord(character):04X}"]
        if character == "/":
            ways.append("\\/")
        written.append(draw(st.sampled_from(ways)))
    return '"' + "".join(written) + '"'


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """Write a value in one of many ways: order of members, white space, escapes, names that come twice."""

    def space() -> str:
        return draw(st.sampled_from(["", "", " ", "\n\t", "\r "]))

    def one(value: Any) -> str:
        if isinstance(value, Number):
            return str(value)
        if isinstance(value, str):
            return text(draw, value)
        if isinstance(value, list):
            return (
                "["
                + ",".join(space() + one(each) + space() for each in value)
                + (space() if not value else "")
                + "]"
            )
        if isinstance(value, dict):
            members = draw(st.permutations(list(value.items())))
            before = [(name, draw(VALUES)) for name, _ in members if draw(st.integers(0, 4)) == 0]
            return (
                "{"
                + ",".join(
                    space() + text(draw, n) + space() + ":" + space() + one(v) for n, v in [*before, *members]
                )
                + space()
                + "}"
            )
        return json.dumps(value)

    return space() + one(value) + space()


@given(st.data())
def test_a_value_written_in_two_ways_has_one_hash(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    exclude = data.draw(POINTERS)
    one, other = (data.draw(written(value)).encode() for _ in range(2))
    assert leaves(one, exclude) == leaves(other, exclude)
    first, second = hashes([one, other], exclude)
    assert first == second


@given(st.lists(VALUES.flatmap(written), min_size=2, max_size=8), POINTERS)
def test_values_have_equal_hashes_if_their_leaves_are_equal_and_only_then(
    values: list[str], exclude: list[str]
) -> None:
    raw = [each.encode() for each in values]
    found = hashes(list(raw), exclude)
    said = [leaves(each, exclude) for each in raw]
    for i in range(len(raw)):
        for j in range(i):
            assert (found[i] == found[j]) == (said[i] == said[j]), (raw[i], raw[j], exclude)


@given(st.lists(st.binary(max_size=12) | VALUES.flatmap(written).map(str.encode), max_size=6), POINTERS)
def test_what_is_no_json_has_a_fault_and_no_hash(values: list[bytes], exclude: list[str]) -> None:
    found, fault = hashed([*values, None], exclude)
    for value, each, wrong in zip(values, found, fault, strict=False):
        assert wrong == (Fault.NONE if is_json(value) else Fault.VALUE_NOT_JSON)
        assert each.any() == is_json(value)
    assert fault[-1] == Fault.VALUE_MISSING
    assert not found[-1].any()


@pytest.mark.parametrize(
    ("one", "other", "exclude"),
    [
        (b'{"a":{"t":1}}', b'{"a":{"t":2}}', ["/a/t"]),
        (b'{"a":[{"t":1},{"t":2}]}', b'{"a":[{"t":3},{"t":2}]}', ["/a/0/t"]),
        (b'{"a":[1,2]}', b'{"a":[3,2]}', ["/a/0"]),
        (b'{"a":{"t":{"u":[1,{}]}}}', b'{"a":{}}', ["/a/t"]),
        (b'{"a":[[1]]}', b'{"a":[]}', ["/a/0"]),
        (b'{"t":1,"t":2,"b":0}', b'{"b":0}', ["/t"]),
        (b'{"a":{"t":1},"a":{"t":2}}', b'{"a":{}}', ["/a/t"]),
        (b'{"a":{"x":1},"a":{"y":2}}', b'{"a":{"y":2}}', []),
        (b'{"a":{"x":1},"b":5,"a":3}', b'{"a":3,"b":5}', []),
    ],
)
def test_these_are_the_same(one: bytes, other: bytes, exclude: list[str]) -> None:
    first, second = hashes([one, other], exclude)
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"[1]", b'{"0":1}'),
        (b'[{"a":1}]', b'{"0":{"a":1}}'),
        (b"{}", b"[]"),
        (b'{"a":{}}', b'{"a":[]}'),
        (b'{"a":{}}', b'{"a":null}'),
        (b'{"a":{}}', b"{}"),
        (b'{"a":null}', b"{}"),
        (b'{"a":"1"}', b'{"a":1}'),
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":"true"}', b'{"a":true}'),
        (b'{"a":{"b":1},"c":2}', b'{"a":{"c":2},"b":1}'),
        (b'{"a":1,"b":2}', b'{"a":2,"b":1}'),
        (b'{"ab":"c"}', b'{"a":"bc"}'),
        (b"[1,2]", b"[2,1]"),
        (b"[[1],2]", b"[1,[2]]"),
        (b'{"a\\u0000":1}', b'{"a":1}'),
    ],
)
def test_these_differ(one: bytes, other: bytes) -> None:
    first, second = hashes([one, other])
    assert first != second


def test_another_secret_gives_another_hash() -> None:
    value: list[bytes | None] = [b'{"a":1}']
    assert hashes(value) != hashes(value, secret=bytes(16))


@pytest.mark.parametrize("depth", [1, 127, 128])
def test_what_is_nested_as_deep_as_can_be_has_a_hash(depth: int) -> None:
    one, other = (b"[" * (depth - 1) + b'{"a":%d}' % n + b"]" * (depth - 1) for n in range(2))
    first, second, again = hashes([one, other, one.replace(b":", b" : ")])
    assert first == again != second


def test_members_by_the_thousand_are_compared_by_name_whatever_comes_twice() -> None:
    members = [b'"%d":%d' % (n % 3_000, n) for n in range(5_000)]
    last = [b'"%d":%d' % (n % 3_000, n) for n in range(2_000, 5_000)]
    first, second, other = hashes(
        [b"{" + b",".join(some) + b"}" for some in (members, last[::-1], members[:-1])]
    )
    assert first == second != other


def test_each_value_is_hashed_as_if_it_were_alone() -> None:
    values: list[bytes | None] = [b'{"a":[1,{"b":2}]}', b"[", b'{"a":[1,{"b":3}]}', None, b"1", b'{"a"']
    found, fault = hashed(values, ["/x"])
    for row, value in enumerate(values):
        alone, wrong = hashed([value], ["/x"])
        assert fault[row] == wrong[0]
        assert np.array_equal(found[row], alone[0])


@given(VALUES.flatmap(written), st.binary(min_size=16, max_size=16))
def test_the_hash_is_siphash_of_what_is_drawn(value: str, secret: bytes) -> None:
    assert hashes([value.encode()], secret=secret) == [content_hash(value.encode(), secret)]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (b"null", "02ae7dcde850fcd5f4874f7178729605"),
        (b'{"a":1,"b":[true,{"c":"x"}]}', "e36aa57bd67d54b7957aa22768b0d819"),
        (b'{"long name of a member":"long text of a string","n":-1.5e10}', "2aad949d7888e6a55de53b8ba0107f41"),
    ],
)
def test_the_hash_is_stored_and_never_changes(value: bytes, stored: str) -> None:
    assert hashes([value])[0].hex() == stored
