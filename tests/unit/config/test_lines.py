"""Each key of a TOML file is found in its line, however it is written."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from processor.config.lines import key_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.config.lines import KeyPath

KEYS = st.sampled_from(["a", "b-c", "d_e", "7", "with space", "ä", 'quo"te', "dot.ted", ""])
# Each looks like TOML of its own somewhere.
TEXTS = st.sampled_from(
    ["x", "", "[a]", "a = 1", "# no comment", 'a "quoted" one', "two\nlines", "\\", "]}", "''"]
)
LEAVES = TEXTS | st.integers(-5, 5) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)
DOCUMENTS = st.tuples(
    TABLES, st.dictionaries(KEYS, TABLES | st.lists(TABLES, min_size=1, max_size=3), max_size=3)
)


class Writer:
    """Writes a document in one of the many ways, and notes where each key comes to stand."""

    def __init__(self, draw: Any) -> None:
        self.text = ""
        self.lines: dict[KeyPath, int] = {}
        self._draw = draw

    def document(self, top: dict[str, Any], tables: dict[str, Any]) -> None:
        self._pairs((), top)
        for key, table in tables.items():
            if isinstance(table, list):
                for number, element in enumerate(table):
                    self._blank()
                    self._note((key, number))
                    self._put(f"[[ {self._key(key)} ]]")
                    self._pairs((key, number), element)
            else:
                self._blank()
                self._note((key,))
                self._put(f"[{self._key(key)}]")
                self._pairs((key,), table)

    def _pairs(self, path: KeyPath, pairs: dict[str, Any]) -> None:
        self._put("\n")
        for key, value in pairs.items():
            self._blank()
            self._pair(path, key, value, inline=False)
            self._put("\n")

    def _pair(self, path: KeyPath, key: str, value: Any, *, inline: bool) -> None:
        self._put("  " * self._chance())
        here = (*path, key)
        self._note(here)
        self._put(self._key(key))
        # As a dotted key: a table of one.
        while isinstance(value, dict) and len(value) == 1 and self._chance():
            ((key, value),) = value.items()
            here = (*here, key)
            self._note(here)
            self._put(f" . {self._key(key)}")
        self._put(" = ")
        self._value(here, value, inline=inline)

    def _value(self, path: KeyPath, value: Any, *, inline: bool) -> None:
        if isinstance(value, dict):
            self._put("{ ")
            for number, (key, each) in enumerate(value.items()):
                self._put(", " if number else "")
                self._pair(path, key, each, inline=True)
            self._put(" }")
        elif isinstance(value, list):
            self._put("[")
            for number, each in enumerate(value):
                self._put(", " if number else "")
                self._inner(inline=inline)
                self._note((*path, number))
                self._value((*path, number), each, inline=inline)
            self._put("," if value and self._chance() else "")
            self._inner(inline=inline)
            self._put("]")
        elif isinstance(value, str) and not inline and self._chance():
            self._put('"""' + "\n" + value.replace("\\", "\\\\").replace('"', '\\"') + '"""')
        elif isinstance(value, str) and "'" not in value and "\n" not in value and self._chance():
            self._put(f"'{value}'")
        else:
            self._put(json.dumps(value, ensure_ascii=False))

    def _inner(self, *, inline: bool) -> None:
        if not inline and self._chance():
            self._put(" # ] } , in an array\n" if self._chance() else "\n\n")

    def _blank(self) -> None:
        if self._chance():
            self._put("# [comment] a = 1\n\n" if self._chance() else "\n")

    def _key(self, key: str) -> str:
        bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
        return key if bare and self._chance() else json.dumps(key, ensure_ascii=False)

    def _chance(self) -> bool:
        return bool(self._draw(st.booleans()))

    def _note(self, path: KeyPath) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], self.text.count("\n") + 1)

    def _put(self, text: str) -> None:
        self.text += text


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in below:
        yield from paths(each, (*path, step))


@given(st.data(), DOCUMENTS)
def test_each_key_is_found_where_it_was_written(data: st.DataObject, document: Any) -> None:
    top, tables = document
    writer = Writer(data.draw)
    writer.document({key: value for key, value in top.items() if key not in tables}, tables)

    found = key_lines(writer.text.replace("\n", "\r\n") if data.draw(st.booleans()) else writer.text)

    assert set(found) == set(paths(tomllib.loads(writer.text)))
    assert found == writer.lines


def test_tables_below_elements_belong_to_the_last_one() -> None:
    text = (
        "[[p]]\nn = 1\n[p.d]\nm = 1\n[[p.d.e]]\n[[p]]\n[p.d]\nm = 2\n[[p.d.e]]\n[[p.d.e]]\nx = 1\n[a.b]\n[a]\n"
    )
    found = key_lines(text)
    assert (found["p", 0, "d"], found["p", 0, "d", "m"], found["p", 0, "d", "e", 0]) == (3, 4, 5)
    assert (found["p", 1], found["p", 1, "d", "m"], found["p", 1, "d", "e", 1, "x"]) == (6, 8, 11)
    assert (found["a", "b"], found["a",]) == (12, 13), "a table that was implied has its own line"


def test_what_is_no_toml_has_the_lines_before_it() -> None:
    assert key_lines('a = 1\nb = "') == {("a",): 1, ("b",): 2}
