"""Values that are nearly JSON, or stand behind five bytes, are judged as a model by Python's parser has it.

The model knows nothing of the kernels: it takes off what stands before and behind, decodes the rest with each
byte that is not UTF-8 as a character that no value has, and walks what `json` makes of it.
"""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.ids import texts
from processor.engine.extract.json_matches import AUTO, NONE, REGISTRY, JsonRules
from processor.engine.verdict import Fault
from processor.judges.ids import make_id_extractor
from processor.judges.watermark import make_extractor
from schemas.config import InsertIdDedup, ValueSource
from tests.property.engine.test_content import NAMES, POINTERS, SCALARS, SECRET, written
from tests.support.judges.json_values import columns
from tests.support.judges.leaves import Number
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMINGS = {"none": NONE, "auto": AUTO, "registry": REGISTRY}
BAD = 0x10FE00
"""Behind it a character for each byte that is not UTF-8."""
STAIN = "\U000f0000"
"""Becomes such bytes."""


def _marked(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(BAD + each) for each in error.object[error.start : error.end]), error.end


codecs.register_error("marked", _marked)


def is_dirty(text: str) -> bool:
    return any(BAD <= ord(each) < BAD + 256 for each in text)


# ------------------------------------------------------------------ the model


class Pairs(list[tuple[str, Any]]):
    """An object: all pairs in order, equal names included."""


class Constant(str):
    """NaN, Infinity or -Infinity."""

    __slots__ = ()


class Said(NamedTuple):
    """What the model says of a value: the fault of its id, or the id and what counts of its content."""

    fault: Fault
    id: object = None
    content: frozenset[object] = frozenset()
    sequence: Fault | int = Fault.NONE


def _refuse(word: str) -> Any:
    raise ValueError(word)


def parse(value: bytes, *, lenient: bool, framing: int) -> Any:
    """Return a value, or why it is none."""
    if framing and len(value) >= 5 and value[0] == 0:
        value = value[5:]
    elif framing == REGISTRY:
        return Fault.VALUE_MALFORMED
    if lenient:
        value = value.removeprefix(b"\xef\xbb\xbf").rstrip(b"\0\t\n\r ")
    decoder = json.JSONDecoder(
        parse_int=Number,
        parse_float=Number,
        parse_constant=Constant if lenient else _refuse,
        object_pairs_hook=Pairs,
    )
    try:
        tree = decoder.decode(value.decode(errors="marked" if lenient else "strict"))
        for text in strings(tree):
            text.encode()  # raises where an escape is half a character
    except ValueError:
        return Fault.VALUE_NOT_JSON
    return tree


def strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, Pairs):
        for name, each in tree:
            yield name
            yield from strings(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from strings(each)
    elif isinstance(tree, str):
        yield tree


def leaves(
    tree: Any, path: tuple[object, ...], out: set[tuple[str, ...]], dirty: list[str]
) -> Iterator[object]:
    """Yield what counts, of equal names the last; and note what is no UTF-8 of all that counts."""
    if isinstance(tree, Pairs):
        yield path, "object"
        for at, (name, each) in enumerate(tree):
            inside = (*path, name)
            dirty += [name] * is_dirty(name)
            found = [] if tuple(map(str, inside)) in out else list(leaves(each, inside, out, dirty))
            if name not in [later for later, _ in tree[at + 1 :]]:
                yield from found
    elif isinstance(tree, list):
        yield path, "array"
        for at, each in enumerate(tree):
            if tuple(map(str, (*path, at))) not in out:
                yield from leaves(each, (*path, at), out, dirty)
    elif isinstance(tree, Number | Constant):
        yield path, "number", str(tree)
    elif isinstance(tree, str):
        dirty += [tree] * is_dirty(tree)
        yield path, "string", tree
    else:
        yield path, "word", tree


def say(value: bytes, exclude: list[str] | None, *, lenient: bool, framing: int) -> Said:
    """Return what is said of a value by the id at /a, a fingerprint if anything, and a sequence at /a."""
    tree = parse(value, lenient=lenient, framing=framing)
    if isinstance(tree, Fault):
        return Said(tree, sequence=tree)
    at_a = dict(tree).get("a", Fault.FIELD_MISSING) if isinstance(tree, Pairs) else Fault.FIELD_MISSING
    steps = [[each.replace("~1", "/").replace("~0", "~") for each in p.split("/")[1:]] for p in exclude or []]
    dirty: list[str] = []
    content = frozenset(leaves(tree, (), set(map(tuple, steps)), dirty) if exclude is not None else ())
    fault, sequence = Fault.NONE, Fault.FIELD_TYPE
    if isinstance(at_a, Fault):
        fault = sequence = at_a
    elif isinstance(at_a, str) and is_dirty(at_a):
        fault = sequence = Fault.VALUE_NOT_JSON
    elif isinstance(at_a, bool):
        return Said(Fault.VALUE_NOT_JSON if dirty else fault, (bool, at_a), content, sequence)
    elif not isinstance(at_a, str) or isinstance(at_a, Constant):
        fault = Fault.FIELD_TYPE
    elif isinstance(at_a, Number) and at_a.removeprefix("-").isdigit():
        return Said(Fault.VALUE_NOT_JSON if dirty else fault, (Number, at_a), content, int(at_a))
    return Said(Fault.VALUE_NOT_JSON if dirty else fault, (type(at_a), at_a), content, sequence)


# ------------------------------------------------------------------ what is drawn

DIRTY = st.one_of(
    SCALARS,
    st.sampled_from(["NaN", "Infinity", "-Infinity", "-NaN", "nan", "Inf", "-Infinity1", "NaNs"]).map(Number),
    st.sampled_from([STAIN, f"x{STAIN}", f'"{STAIN}\\']),
)
VALUES = st.recursive(
    DIRTY,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(NAMES | st.just(f"a{STAIN}"), inner, max_size=4)
    ),
    max_leaves=8,
)
WITH_ID = st.builds(
    lambda more, one: {**more, "a": one}, st.dictionaries(NAMES, DIRTY, max_size=3), SCALARS | DIRTY
)
BEFORE = st.sampled_from(
    [b"", b"", b"\0\0\0\0\x0c", b"\0\0\0\0\x0d", b"\0{[\0{", b"\0\0\0\0", b"\x01\0\0\0\x0c"]
)
MARKS = st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb", b" \xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf"])
BEHIND = st.sampled_from([b"", b"", b"\0", b"\0 \0\n", b"\n", b"\0x", b"\xff"])
STAINS = st.sampled_from([b"\xe9", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe2\x82", b"\x80", b"\x01"])


@st.composite
def dirty_values(draw: st.DrawFn) -> bytes:
    text = draw(written(draw(WITH_ID | VALUES))).encode()
    text = text.replace(STAIN.encode(), draw(STAINS))
    return draw(BEFORE) + draw(MARKS) + text + draw(BEHIND)


@examples(300)
@given(
    st.lists(dirty_values(), min_size=1, max_size=8),
    POINTERS | st.just(["/a"]) | st.none(),
    st.sampled_from(["strict", "lenient"]),
    st.sampled_from(sorted(FRAMINGS)),
)
def test_dirty_and_framed_values_are_judged_as_the_model_judges_them(
    values: list[bytes], exclude: list[str] | None, json_: str, framing: str
) -> None:
    dedup = {
        "mode": "insert-id",
        "window": "1h",
        "id": [{"from": "value", "pointer": "/a"}],
        "fingerprint": None if exclude is None else {"exclude": exclude},
        "json": json_,
        "framing": framing,
    }
    some = columns(list(values))
    ids = make_id_extractor(InsertIdDedup.model_validate(dedup), SECRET).extract(some)
    rules = JsonRules(json_ == "lenient", FRAMINGS[framing])
    source = ValueSource.model_validate({"from": "value", "pointer": "/a"})
    sequence, fault = make_extractor(source, rules).extract(some)
    said = [say(each, exclude, lenient=rules.lenient, framing=rules.framing) for each in values]
    for row, each in enumerate(said):
        assert Fault(int(ids.fault[row])) == each.fault, values[row]
        found = Fault(int(fault[row])) or int(sequence[row])
        assert found == (each.sequence if found is not Fault.OUT_OF_RANGE else found), values[row]
    judged = [row for row, each in enumerate(said) if not each.fault]
    for one in judged:
        for other in judged:
            pair = said[one], said[other]
            assert bool((ids.hash[one] == ids.hash[other]).all()) == (pair[0].id == pair[1].id)
            if exclude is not None:
                same = ids.fingerprint[one] == ids.fingerprint[other]
                assert same == (pair[0].content == pair[1].content)


@pytest.mark.parametrize("json_", ["strict", "lenient"])
@given(st.data())
def test_what_stands_before_a_value_changes_neither_id_nor_fingerprint(json_: str, data: st.DataObject) -> None:
    value = data.draw(WITH_ID.flatmap(written)).replace(STAIN, "").encode()
    dedup = {"mode": "insert-id", "window": "1h", "id": [{"from": "content"}], "json": json_}
    extractor = make_id_extractor(InsertIdDedup.model_validate(dedup), SECRET)
    bare, one, other = (columns([before + value]) for before in (b"", b"\0\0\0\0\x0c", b"\0\0\0\0\x0d"))
    found = [extractor.extract(each) for each in (bare, one, other)]
    assert len({(int(each.fault[0]), each.hash.tobytes()) for each in found}) == 1


@pytest.mark.parametrize(
    ("value", "fault", "fault_of_content"),
    [
        (b'{"a":1,"b":NaN,"c":[Infinity,-Infinity]}', Fault.NONE, Fault.NONE),
        (b'{"a":NaN}', Fault.FIELD_TYPE, Fault.FIELD_TYPE),
        (b'{"a":-Infinity}', Fault.FIELD_TYPE, Fault.FIELD_TYPE),
        (b'{"a":1,"b":-NaN}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
        (b'{"a":1,"b":Infinity.5}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
        (b'\xef\xbb\xbf {"a":1} \0\n\0', Fault.NONE, Fault.NONE),
        (b'\0{"a":1}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
        (b'{"a":1}\0{}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
        (b'{"a":1,"b":"\xe9"}', Fault.NONE, Fault.VALUE_NOT_JSON),
        (b'{"a":1,"\xe9":0}', Fault.NONE, Fault.VALUE_NOT_JSON),
        (b'{"a":1,"x":{"\xe9":"\xe9"}}', Fault.NONE, Fault.NONE),  # /x is excluded
        (b'{"a":"\xe9"}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
        (b'{"a":"\xe9","a":1}', Fault.NONE, Fault.VALUE_NOT_JSON),
        (b'{"a":1,"b":"\x01"}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
        (rb'{"a":1,"b":"\ud800"}', Fault.VALUE_NOT_JSON, Fault.VALUE_NOT_JSON),
    ],
)
def test_leniently_only_what_says_nothing_is_forgiven(
    value: bytes, fault: Fault, fault_of_content: Fault
) -> None:
    by_id = {"mode": "insert-id", "window": "1h", "id": [{"from": "value", "pointer": "/a"}], "json": "lenient"}
    for dedup, expected in ((by_id, fault), (by_id | {"fingerprint": {"exclude": ["/x"]}}, fault_of_content)):
        extractor = make_id_extractor(InsertIdDedup.model_validate(dedup), SECRET)
        assert extractor.extract(columns([value])).fault.tolist() == [expected]


@pytest.mark.parametrize("pointer", ["/d|/a", "/d|/b|/a"])
@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        (b'{"a":"x","n":NaN,"t":"\xe9"} ', Fault.NONE),
        (b'{"a":"x","t":"\\"\xe9"}', Fault.NONE),
        (b'{"a":"\xe9"}', Fault.VALUE_NOT_JSON),
        (b'{"a":NaN}', Fault.FIELD_TYPE),
        (b'\0\0\0\0\x0c{"a":"x"}', Fault.FIELD_TYPE),  # nothing stands before JSON in a string
    ],
)
def test_json_in_strings_is_read_as_leniently(pointer: str, inner: bytes, fault: Fault) -> None:
    part = {"from": "value", "pointer": pointer}
    dedup = {"mode": "insert-id", "window": "1h", "id": [part], "json": "lenient"}
    extractor = make_id_extractor(InsertIdDedup.model_validate(dedup), SECRET)
    for name in reversed(pointer.replace("|", "").removesuffix("/a")[1:].split("/")):
        escaped = inner.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\0", b"\\u0000")
        inner = b'{"%s":"%s","t":"\xff"}' % (name.encode(), escaped.replace(b"\x0c", b"\\f"))
    ids = extractor.extract(columns([b"\0\0\0\0\x0c" + inner]))
    assert ids.fault.tolist() == [fault]
    if not fault:
        assert texts(ids, 0) == ["x"]
