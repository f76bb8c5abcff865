"""Makes the JSON schema of the config file from its models, for editors.

It says what one look at the file can say: keys, types, bounds, forms. What depends on other keys and on the
world `seqmark check` says. Descriptions are those of `docs/configuration.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import override

from schemas.config import Settings
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""pydantic leaves bounds of a type that checks itself before as it calls them."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a whole config file."""
    made = Settings.model_json_schema(schema_generator=_TomlSchema)
    of_topics = [{"required": [name]} for name in ("pipelines", "aggregates")]
    made["if"] = {"required": ["batches"], "not": {"anyOf": of_topics}}
    made["then"], made["else"] = True, {"required": made.pop("required")}
    plain = _plain(made)
    return {"$schema": DIALECT, "title": "The config file of Seqmark", **plain}


def _plain(made: Any) -> Any:
    """Return a schema without titles, which repeat the keys, and with bounds by their names in JSON schema.

    Secrets are required of nobody: they belong in the environment.
    """
    if isinstance(made, list):
        return [_plain(each) for each in made]
    if not isinstance(made, dict):
        return made
    kept = {key: each for key, each in made.items() if key != "title" or not isinstance(each, str)}
    if "required" in kept and "properties" in kept:
        secret = {key for key, each in kept["properties"].items() if each.get("writeOnly")}
        kept["required"] = [key for key in kept["required"] if key not in secret]
    return {_BOUNDS.get(key, key): _plain(each) for key, each in kept.items()}


class _TomlSchema(GenerateJsonSchema):
    """As values are written in TOML: there is no null, and durations are texts."""

    @override
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    @override
    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        default = made.get("default")
        if default is None:
            made.pop("default", None)
        elif isinstance(default, int) and made.get("type") == "string":
            made["default"] = duration_text(default)
        return made

    @override
    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        made = super().tagged_union_schema(schema)
        made.pop("discriminator", None)  # of OpenAPI; the tags are constants here
        return made

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # the key is its title
