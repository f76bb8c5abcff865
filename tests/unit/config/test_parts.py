"""Parts of ids and scopes: what is read, what is refused and with which words, what a state is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from processor.config.load import load
from processor.errors import ConfigError
from processor.judges.factory import mode_of
from schemas.config import Pipeline
from schemas.config.dedup import AnyId, ColumnId, KeyId, ValueId
from schemas.config.reference import keys, place

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
[kafka]
bootstrap_servers = "localhost:9092"
[worker]
application_id = "shop"
[[pipelines]]
name = "orders"
source = "orders.raw"
sink = "orders.clean"
"""
IDS = f'{HEAD}dedup = {{ mode = "insert-id", window = "7d", '
SEQUENCES = f'{HEAD}dedup = {{ mode = "watermark", sequence = {{ from = "header", name = "seq" }}, '


def read(tmp_path: Path, text: str, **environ: str) -> Any:
    path = tmp_path / "my.toml"
    path.write_text(f"{text} }}\n", encoding="utf-8")
    return load(path, environ).pipelines[0].dedup


def test_parts_are_read_as_they_are_written(tmp_path: Path) -> None:
    text = f"""{IDS}id = [
        {{ any = [{{ from = "value", pointer = "/data|/uuid" }}, {{ from = "key" }}], normalise = "uuid" }},
        {{ from = "column", number = 7 }}, {{ from = "value", pointer = "|/id", normalise = "integer" }}]"""
    either, column, field = read(tmp_path, text).id
    assert isinstance(either, AnyId)
    assert (either.any, either.normalise) == (
        [ValueId(**{"from": "value"}, pointer="/data|/uuid"), KeyId(**{"from": "key"})],
        "uuid",
    )
    assert column == ColumnId(**{"from": "column"}, number=7, separator="\t")
    assert field == ValueId(**{"from": "value"}, pointer="|/id", normalise="integer")


@pytest.mark.parametrize(
    ("scope", "same"),
    [
        ('{ from = "header", name = "who" }', "header:who"),
        ('[{ from = "value", pointer = "/gateway" }]', "value:/gateway"),
        ('"value:/gateway"', "value:/gateway"),
        ('["key"]', "key"),
        ('{ from = "key" }', "key"),
    ],
)
def test_a_scope_has_one_form_however_it_is_written(tmp_path: Path, scope: str, same: str) -> None:
    assert read(tmp_path, f"{SEQUENCES}scope = {scope}").scope == same
    variable = {"SEQMARK_PIPELINES__0__DEDUP__SCOPE": scope.strip('"')}
    assert read(tmp_path, f'{SEQUENCES}scope = "partition"', **variable).scope == same


def test_a_scope_of_several_parts_has_a_name_for_people(tmp_path: Path) -> None:
    field, column = '{ from = "value", pointer = "/s", normalise = "lower" }', '{ from = "column", number = 2 }'
    scoped = read(tmp_path, f'{SEQUENCES}scope = ["key", "header:who", {field}, {column}]')
    assert scoped.scope_name == "key and header:who and value:/s and column:2"


A = '{ from = "value", pointer = "/a" }'
RENAMED = 'fingerprint = {}, on_collision = "rename", rename = { to = "/d|/i" }, '
WRONG: list[tuple[str, str]] = [
    ('scope = "keys"', 'scope: must be "partition", "key", "header:NAME" or "value:/POINTER", or a'),
    ("scope = 17", 'scope: must be "partition", "key", "header:NAME" or "value:/POINTER", or a table'),
    ("scope = []", "scope: must have at least 1 element; given: a list"),
    (f"scope = [{A}, {A}, {A}, {A}, {A}]", "scope: must have at most 4 elements; given: a list"),
    ('scope = ["partition"]', 'scope.0: must be "key", "header:NAME", "value:/POINTER" or a table of one part'),
    ('scope = { from = "content" }', 'scope.from: must be one of "header", "key", "value", "column"'),
    ('scope = { from = "value" }', "scope.pointer: is missing: JSON pointer (RFC 6901) to a string"),
    ('scope = [{ from = "value", pointer = "a" }]', "scope.0.pointer: must be a JSON pointer such as"),
    ('id = [{ from = "column", number = 0 }]', "id.0.number: must be at least 1; given: 0"),
    ('id = [{ from = "column", number = 1, separator = "" }]', "id.0.separator: must not be empty"),
    ('id = [{ from = "key", normalise = "up" }]', 'id.0.normalise: must be "uuid", "integer" or "lower"'),
    ("id = [{ any = [] }]", "id.0.any: must have at least 1 element"),
    ('id = [{ any = [{ from = "kye" }] }]', 'id.0.any.0.from: must be one of "header", "key"'),
    (f'id = [{{ from = "key", any = [{A}] }}]', 'id.0.any: belongs to from = "any"'),
    (f'id = [{{ from = "content" }}, {{ any = [{A}, {{ from = "content" }}] }}]',
     "id.1.any.1: is the content once more: id.0 is"),
    (f"id = [{{ any = [{','.join([A] * 63)}] }}]", "id: has 63 parts"),
    (RENAMED + 'id = [{ from = "value", pointer = "/d|/i" }]',
     "rename.to: must be a part of the id, and none of this one can be renamed: only headers and fields"),
    (RENAMED + 'id = [{ from = "header", name = "h", normalise = "lower" }]',
     "rename.to: must be a part of the id, and none of this one can be renamed: only headers and fields"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), WRONG)
def test_what_is_wrong_is_said_with_its_place_and_what_would_be_right(
    tmp_path: Path, text: str, answer: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"{SEQUENCES if text.startswith('scope') else IDS}{text}")
    (problem,) = caught.value.problems
    assert f"pipelines.orders.dedup.{answer}" in str(problem)


def definition(**dedup: Any) -> bytes:
    pipeline = {"name": "p", "source": "a", "sink": "b", "dedup": dedup}
    return mode_of(Pipeline.model_validate(pipeline)).definition()


def test_a_state_is_bound_to_what_changes_verdicts_and_to_nothing_else() -> None:
    number, field = {"from": "header", "name": "n"}, {"from": "value", "pointer": "/a"}
    ids = {"mode": "insert-id", "window": "1d"}
    made = [
        definition(**ids, id=[field]),
        definition(**ids, id=[{**field, "normalise": "lower"}]),
        definition(**ids, id=[{"any": [field, {"from": "key"}]}]),
        definition(**ids, id=[{"any": [{"from": "key"}, field]}]),
        definition(**ids, id=[{"from": "column", "number": 1}]),
        definition(**ids, id=[{"from": "column", "number": 1, "separator": ";"}]),
        definition(mode="watermark", sequence=number, scope="key"),
        definition(mode="watermark", sequence=number, scope="value:/a"),
        definition(mode="watermark", sequence=number, scope=["key", field]),
        definition(mode="watermark", sequence={"from": "column", "number": 1}),
    ]
    assert len({*made}) == len(made)
    assert definition(mode="watermark", sequence=number, scope=field) == made[7]
    assert definition(**ids, id=[{"from": "column", "number": 1, "separator": "\t"}]) == made[4]
    # As it was before there were such parts.
    assert made[0].hex() == "9b2aa8c79e8c1efe8916ae2a28e2ed8e"
    assert made[6].hex() == "c64d43d0d4c479d5a649be79bb80f13f"


def test_the_reference_names_each_form_of_a_part_once() -> None:
    paths = [".".join(key.path) for key in keys()]
    assert paths.count("pipelines.N.dedup.scope") == 1
    assert paths.count("pipelines.N.dedup.id.N.any") == 1
    assert not [path for path in paths if path.startswith("pipelines.N.dedup.id.N.any.")]
    found = place(("pipelines", 0, "dedup", "watermark", "scope", "list", 1, "value", "pointer"))
    assert found.path == ("pipelines", 0, "dedup", "scope", 1, "pointer")
