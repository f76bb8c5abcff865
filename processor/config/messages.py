"""Says what is wrong with a value: from pydantic's errors to what would be right, and what to do.

The value itself is added by who has it (`processor.config.load`), for it may be a secret.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from schemas.config import Settings
from schemas.config.reference import declared, fields_by_key, has_elements, tag_key, variants
from schemas.near import near, nearest, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from processor.config.echo import Echo
    from processor.config.lines import KeyPath
    from schemas.config.reference import ConfigPath

# pydantic's error type -> what would be right; {...} are taken from the error's context.
_RIGHT = {
    "literal_error": "must be {expected}",
    "union_tag_invalid": "must be one of {expected_tags}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "must have at least {min_length} element",
    "too_long": "must have at most {max_length} elements",
    "string_too_short": "must not be empty",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "string_unicode": "must be text in UTF-8",
    "path_type": "must be a string: a path",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}
_GONE = {
    "pipelines.dedup.bloom.confirm": "is gone: Bloom filters keep no ids and drop new records at the rate that "
    'is set (false_positive_rate). Take it out; or take backend = "exact", which loses nothing, without the '
    "table bloom",
}
"""Keys that were there before, and what there is in their place."""
_ONE_OF_FEW = ("literal_error", "union_tag_invalid")
_TABLES = ("model_type", "model_attributes_type", "dict_type")
_POINTER = re.compile(r"(?:/[A-Za-z0-9_-]+)+")
_HEADER = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def message(kind: str, text: str, context: Mapping[str, Any], at: ConfigPath, echo: Echo) -> str:
    """Return what would be right where pydantic has found an error.

    Args:
        kind: pydantic's type of it.
        text: Its message, of which the last resort is made.
        context: What goes into the message.
        at: Where it is; of a table without a known form the key that chooses the form.
        echo: What was given.
    """
    path = at.path
    if kind == "missing":
        return f"is missing: {at.description()}"
    if kind == "extra_forbidden":
        return _unknown(at, echo)
    if kind == "union_tag_not_found":
        return _without_tag(path, echo)
    return _wrong(kind, text, context, path, echo)


def _wrong(kind: str, text: str, context: Mapping[str, Any], path: KeyPath, echo: Echo) -> str:
    if kind == "list_type" and path[-1] in Settings.model_fields:
        return f"must be a list of tables: write [[{path[-1]}]]"
    right = _RIGHT[kind].format(**context).replace("'", '"') if kind in _RIGHT else text
    given = echo.value(path)
    if kind in _ONE_OF_FEW and isinstance(given, str) and (meant := near(given, words(right))):
        return f'{right}; did you mean "{meant}"?'
    if kind == "list_type" or kind in _TABLES:
        return f"{right}{_example(path, echo, listed=kind == 'list_type')}"
    return right


def suggestion(at: ConfigPath) -> str | None:
    """Return the known key that an unknown one was probably meant to be; None: none of this table."""
    return near(str(at.path[-1]), at.known_keys())


def what_became(path: KeyPath) -> str | None:
    """Return what there is in place of a key that was there before; None: it never was."""
    return _GONE.get(".".join(step for step in path if isinstance(step, str)))


def _unknown(at: ConfigPath, echo: Echo) -> str:
    key, table = str(at.path[-1]), at.path[:-1]
    if gone := what_became(at.path):
        return gone
    forms = _forms(table)
    having = [tag for tag, model in forms.items() if key in fields_by_key(model)]
    if having and (chosen := _chosen(table, forms, echo)):
        by = tag_key(forms[chosen])
        others = " or ".join(f'{by} = "{tag}"' for tag in having)
        return f'belongs to {others}, and here {by} is "{chosen}": take it out, or change {by}'
    return f"is not a known key; {nearest(key, at.known_keys())}"


def _without_tag(path: KeyPath, echo: Echo) -> str:
    """Say which forms a table can have, and to which of them the keys belong that it has."""
    forms = _forms(path[:-1])
    tags = " or ".join(f'"{tag}"' for tag in forms)
    text = f"is missing: {tags}, it says which keys belong here"
    given = echo.value(path[:-1])
    if not isinstance(given, dict):
        return text
    fitting = [tag for tag, model in forms.items() if given and given.keys() <= fields_by_key(model).keys()]
    return f'{text}; those that are here belong to "{fitting[0]}"' if len(fitting) == 1 else text


def _forms(table: KeyPath) -> dict[str, type[BaseModel]]:
    """Return the forms of a table by the values of the key that chooses between them; empty: it has one."""
    forms = {tag: model for each in declared(table) for tag, model in variants(each).items()}
    forms.pop("", None)
    return forms


def _chosen(table: KeyPath, forms: Mapping[str, type[BaseModel]], echo: Echo) -> str | None:
    key = next(iter(map(tag_key, forms.values())))
    tag = echo.value((*table, key))
    return tag if isinstance(tag, str) and tag in forms else None


def _example(path: KeyPath, echo: Echo, *, listed: bool) -> str:
    """Show how a table is written where something else stands, with what was probably meant by it."""
    elements = listed and has_elements(path)
    forms = _forms((*path, 0) if elements else path)
    given = echo.value(path)
    if not forms:
        one = listed and isinstance(given, str) and echo.shown(path)
        return f": write {path[-1]} = [{json.dumps(given)}]" if one else ""
    if elements and isinstance(given, dict):
        return f": write {path[-1]} = [{{ ... }}], with brackets around it"
    meant = _meant(given, forms) if isinstance(given, str) and echo.shown(path) else None
    tables = [meant] if meant else [_table(model, tag) for tag, model in forms.items()]
    name = "" if isinstance(path[-1], int) else f"{path[-1]} = "
    return ": write " + " or ".join(f"{name}{f'[{table}]' if elements else table}" for table in tables)


def _meant(given: str, forms: Mapping[str, type[BaseModel]]) -> str | None:
    if given in forms:
        return _table(forms[given], given)
    if _POINTER.fullmatch(given) and "value" in forms:
        return f'{{ from = "value", pointer = {json.dumps(given)} }}'
    if _HEADER.fullmatch(given) and "header" in forms:
        return f'{{ from = "header", name = {json.dumps(given)} }}'
    return None


def _table(model: type[BaseModel], tag: str) -> str:
    needed = [key for key, field in fields_by_key(model).items() if field.is_required()]
    pairs = [f'{key} = "{tag}"' if key == tag_key(model) else f"{key} = ..." for key in needed]
    return f"{{ {', '.join(pairs)} }}"
