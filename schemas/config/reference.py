"""Reads path, type, default and meaning of each key from the models.

Three readers: the generated reference, the environment (is a key a single value or a table?) and error
messages (which keys are known here, where in the file is pydantic's location?).
"""

from __future__ import annotations

import json
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, Tag
from pydantic_core import PydanticUndefined

from schemas.config.settings import Settings
from schemas.config.values import DurationMark, SizeMark, duration_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo

ENV_PREFIX = "SEQMARK_"
ENV_DELIMITER = "__"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the config file, as declared."""

    path: tuple[str, ...]
    """``N`` stands for an index, ``NAME`` for a key of the user's own."""
    variant: str
    """Which form of its table has the key, such as ``mode = "watermark"``; empty: every one."""
    type: str
    default: str | None
    """As TOML; None: the key is required; empty: it is not set."""
    description: str

    @property
    def env(self) -> str:
        """The environment variable that overrides it."""
        return ENV_PREFIX + ENV_DELIMITER.join(self.path).upper()


@dataclass(frozen=True, slots=True)
class ConfigPath:
    """Where an error is: the path in the file, and what is declared there."""

    path: tuple[str | int, ...]
    parents: tuple[type[BaseModel], ...]
    """The models (several where the variant is not known) that the last step was looked up in."""

    def known_keys(self) -> list[str]:
        """Return the keys that could have been meant by the last step."""
        return sorted({key for model in self.parents for key in fields_by_key(model)})

    def description(self) -> str:
        """Return what the last step is for; of a table also the keys that it must have."""
        for model in self.parents:
            field = fields_by_key(model).get(str(self.path[-1]))
            if field is None:
                continue
            forms = variants(field.annotation)
            needed = fields_by_key(forms[""]) if "" in forms else {}
            required = [key for key, each in needed.items() if each.is_required()]
            also = f" It needs {', '.join(required)}." if required else ""
            return (field.description or "") + also
        return ""


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by their name in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def variants(annotation: Any) -> dict[str, type[BaseModel]]:
    """Return the models of a type by the value of their discriminator; one alone has the name ``""``."""
    models = [each for each in _members(annotation) if _is_model(each)]
    if len(models) == 1:
        return {"": models[0]}
    return {tag: model for model in models for tag in _tags(model)[1]}


def place(location: Sequence[str | int]) -> ConfigPath:
    """Translate pydantic's location of an error, which names variants, into the file's path."""
    path: list[str | int] = []
    annotation: Any = Settings
    parents: tuple[type[BaseModel], ...] = ()
    for step in location:
        if step == "[key]":  # pydantic's word for a key that is wrong itself; it stands before
            continue
        if step in (told := _told_forms(annotation)):
            annotation = told[step]
            continue
        known = variants(annotation)
        if isinstance(step, str) and step in known and "" not in known:
            annotation = known[step]
            continue
        path.append(step)
        parents = tuple(known.values())
        annotation = _below(annotation, step)
    return ConfigPath(tuple(path), parents)


def declared(path: Sequence[str | int]) -> list[Any]:
    """Return the types that a path of the file can have; none: there is no such key."""
    found: list[Any] = [Settings]
    for step in path:
        found = [
            below
            for annotation in found
            for member in _alternatives(annotation)
            if (below := _below(member, step)) is not None
        ]
    return found


def choices(path: Sequence[str | int]) -> list[str]:
    """Return the few words that a key takes, tags of tables included; none: it takes others."""
    members = [each for annotation in declared(path) for each in _members(annotation)]
    if not all(get_origin(each) is Literal for each in members):
        return []
    return list(dict.fromkeys(str(value) for each in members for value in get_args(each)))


def holds_secret(annotation: Any) -> bool:
    """Return whether values of this type are secrets, or have one in them."""
    for each in _members(annotation):
        inner = (
            [field.annotation for field in each.model_fields.values()] if _is_model(each) else get_args(each)
        )
        if each is SecretStr or any(map(holds_secret, inner)):
            return True
    return False


def is_single(annotation: Any) -> bool:
    """Return whether a value of this type is one word, not a table or a list."""
    return not any(_is_model(each) or get_origin(each) in {list, dict} for each in _members(annotation))


def is_word_or_table(annotation: Any) -> bool:
    """Return whether a value may be one word, and a table or a list as well."""
    members = _members(annotation)
    return str in members and any(map(_is_model, members))


def is_list(annotation: Any) -> bool:
    """Return whether values of this type are lists."""
    return any(get_origin(each) is list for each in _members(annotation))


def keys() -> Iterator[Key]:
    """Yield every key that has a value of its own, in the order of declaration."""
    yield from _keys(Settings, (), "")


def has_elements(path: Sequence[str | int]) -> bool:
    """Return whether a key takes a list of tables."""
    return any(variants(_below(annotation, 0)) for annotation in declared(path) if is_list(annotation))


def tag_key(model: type[BaseModel]) -> str:
    """Return the key by whose value a form of a table is chosen."""
    return _tags(model)[0]


def key_names() -> set[str]:
    """Return the last step of each key whose value is no secret, and of tables that can hold none."""
    every = list(keys())
    # A name may be that of a word in one table, and of a table with a secret in another: `output` is.
    secret = {step for key in every if key.type == _TYPE_WORDS[SecretStr] for step in key.path}
    return {key.path[-1] for key in every} - secret


def _keys(
    model: type[BaseModel], path: tuple[str, ...], variant: str, beside: Collection[type[BaseModel]] = ()
) -> Iterator[Key]:
    """Yield the keys of a model; ``beside``: the forms of its table, not described again inside."""
    for key, field in fields_by_key(model).items():
        here = (*path, key)
        annotation = field.annotation
        inside = variants(_below(annotation, 0)).values() if is_list(annotation) else ()
        # The forms of these tables stand elsewhere.
        if is_word_or_table(annotation) or (inside and {*inside} <= {*beside}):
            yield Key(here, variant, _type_text(field), _default_text(field), field.description or "")
            continue
        if is_list(annotation) and variants(_below(annotation, 0)):
            annotation, here = _below(annotation, 0), (*here, "N")
        forms = variants(annotation)
        if not forms:
            default = _default_text(field)
            yield Key(here, variant, _type_text(field), default, field.description or "")
            continue
        if not field.is_required() and here[-1] != "N":
            yield Key(here, variant, "table", "", field.description or "")
        for form in dict.fromkeys(forms.values()):
            chosen, tags = _tags(form)
            told = variant if "" in forms else f"{chosen} = " + " or ".join(f'"{tag}"' for tag in tags)
            yield from _keys(form, here, told, forms.values())


def _members(annotation: Any) -> list[Any]:
    """Take a type apart: Annotated is looked through, of a union all but None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return [each for part in get_args(annotation) for each in _members(part)]
    return [] if annotation in {None, type(None)} else [annotation]


def _told_forms(annotation: Any) -> dict[str | int, Any]:
    """Return what a union has by the names that a function of its own tells them by, as in `schemas.config`."""
    forms: dict[str | int, Any] = {}
    for part in get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else ():
        forms |= {mark.tag: part for mark in _marks(part) if isinstance(mark, Tag)}
    return forms


def _alternatives(annotation: Any) -> list[Any]:
    models = list(variants(annotation).values())
    return (
        [*models, *(each for each in _members(annotation) if not _is_model(each))] if models else [annotation]
    )


def _below(annotation: Any, step: str | int) -> Any:
    for each in _members(annotation):
        if get_origin(each) is list and isinstance(step, int):
            return get_args(each)[0]
        if get_origin(each) is dict and isinstance(step, str):
            return get_args(each)[1]
        if _is_model(each) and isinstance(step, str) and step in fields_by_key(each):
            return fields_by_key(each)[step].annotation
    return None


def _marks(annotation: Any) -> list[Any]:
    """Return what stands in Annotated, inside of unions too."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        return [*marks, *_marks(inner)]
    if origin in {Union, types.UnionType}:
        return [mark for part in get_args(annotation) for mark in _marks(part)]
    return []


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _tags(model: type[BaseModel]) -> tuple[str, list[str]]:
    """Return a variant's discriminator, its first key, and the values that choose it."""
    key, field = next(iter(fields_by_key(model).items()))
    return key, [str(each) for each in get_args(field.annotation)]


def _type_text(field: FieldInfo) -> str:
    marks = [*field.metadata, *_marks(field.annotation)]
    if any(isinstance(mark, DurationMark) for mark in marks):
        return "duration"
    if any(isinstance(mark, SizeMark) for mark in marks):
        return "size"
    words = []
    for each in _members(field.annotation):
        if get_origin(each) is Literal:
            words += [f'"{value}"' for value in get_args(each)]
        elif get_origin(each) is list:
            words.append("list of tables" if variants(get_args(each)[0]) else "list of strings")
        elif _is_model(each):
            words.append("table")
        elif get_origin(each) is dict:
            words.append("table of strings")
        else:
            words.append(_TYPE_WORDS[each])
    return " or ".join(dict.fromkeys(words))


_TYPE_WORDS: Mapping[Any, str] = {
    str: "string",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    SecretStr: "string (secret)",
}


def _default_text(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    if default is None or default is PydanticUndefined:
        return ""
    if any(isinstance(mark, DurationMark) for mark in field.metadata):
        return f'"{duration_text(default)}"'
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str | Path):
        return json.dumps(str(default), ensure_ascii=False)
    return str(default)
