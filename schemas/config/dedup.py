"""The two modes of a pipeline, and what each reads from a record."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, TypeAdapter
from typing_extensions import override

from schemas.config.values import (
    ConfigTable,
    DeepPointer,
    DurationMs,
    DurationOrNoneMs,
    Pointer,
    Text,
    WholeNumber,
    deep_pointer,
    is_pointer,
    wrong,
)

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
MOST_VALUE_PARTS = 62
"""Parts of an id that stand in the value: what one scan of it looks for."""
MOST_WRAPS = 2**63 - 1
"""N itself fits 64 bits."""
_THROUGH = "; through JSON in a string: /data|/uuid"


def _value_format(value: Any) -> Any:
    if value in {"int64", "int32"}:
        raise wrong(
            "int64 and int32 are for headers; in a value leave format out (a JSON integer) "
            'or write "text" (a JSON string)'
        )
    return value


def _wraps(value: int) -> int:
    if not 2 <= value <= MOST_WRAPS:
        raise wrong("must be from 2 to 2^63 - 1: how many different numbers there are, and one above the last")
    return value


JsonStrictness = Annotated[
    Literal["strict", "lenient"],
    Field(
        alias="json",
        description="How strictly values are JSON: lenient takes NaN, Infinity and -Infinity, a byte order "
        "mark, NUL at the end, and bytes that are not UTF-8 outside of what is judged.",
    ),
]
Framing = Annotated[
    Literal["auto", "none", "registry"],
    Field(
        description="What stands before the JSON of values. auto: the five bytes of a schema registry where a "
        "value begins with byte 0; registry: these five bytes, always; none: nothing."
    ),
]
Separator = Annotated[
    str,
    Field(
        min_length=1, description="What stands between columns; it stands for itself, whatever is around it."
    ),
]
ColumnIndex = Annotated[WholeNumber, Field(ge=1, le=1_000_000, description="Its number, from 1.")]
Normalise = Annotated[
    Literal["uuid", "integer", "lower"] | None,
    Field(
        description="What does not count: uuid: case, braces and dashes; integer: how a whole number is "
        'written (7, "7", 7.0 and 007 are one); lower: the case of A to Z. What is of another form counts as '
        "it is."
    ),
]


class HeaderId(ConfigTable):
    """A part of an id: a header's bytes."""

    from_: Literal["header"] = Field(alias="from", description="A record header's bytes.")
    name: Text = Field(description="Its name; of several of one name the last counts.")
    normalise: Normalise = None


class KeyId(ConfigTable):
    """A part of an id: the record's key."""

    from_: Literal["key"] = Field(alias="from", description="The key's bytes.")
    normalise: Normalise = None


class ValueId(ConfigTable):
    """A part of an id: a field of the JSON value."""

    from_: Literal["value"] = Field(alias="from", description="A field of the JSON value.")
    pointer: DeepPointer = Field(
        description=f"JSON pointer (RFC 6901) to a string, a number or a boolean{_THROUGH}."
    )
    normalise: Normalise = None


class ColumnId(ConfigTable):
    """A part of an id: a column of a value that is delimited text."""

    from_: Literal["column"] = Field(
        alias="from", description="A column of delimited text: its bytes as they stand, quotes included."
    )
    number: ColumnIndex
    separator: Separator = "\t"
    normalise: Normalise = None


class TextId(ConfigTable):
    """A part of an id: the whole value."""

    from_: Literal["text"] = Field(alias="from", description="The whole value's bytes, JSON or not.")
    normalise: Normalise = None


def _excluded(value: str) -> str:
    if not value:
        raise wrong("must name something inside the value; the whole value cannot be excluded")
    return value


ContentForm = Annotated[
    Literal["value", "bytes"],
    Field(
        description="value: the leaves of the JSON value, in whatever order and however they are written; "
        "bytes: the value as it stands."
    ),
]
Excluded = Annotated[
    list[Annotated[Pointer, AfterValidator(_excluded)]],
    Field(
        description="JSON pointers (RFC 6901) to what does not count, with all below it: the time of sending."
    ),
]


class ContentId(ConfigTable):
    """A part of an id: the value's content, for topics that have no id."""

    from_: Literal["content"] = Field(alias="from", description="The value's content, once in an id.")
    of: ContentForm = "value"
    exclude: Excluded = Field(default_factory=list)


PlainPart = HeaderId | KeyId | ValueId | ColumnId | TextId | ContentId


def _named(value: Any) -> Any:
    return (
        {"from": "any", **value}
        if isinstance(value, Mapping) and {"any", "from"} & {*value} == {"any"}
        else value
    )


class AnyId(ConfigTable):
    """A part of an id: the first of some that is there."""

    from_: Literal["any"] = Field(
        default="any", alias="from", description="Need not be written where any stands."
    )
    any: Annotated[list[Annotated[PlainPart, Field(discriminator="from_")]], Field(min_length=1)] = Field(
        description="Parts, of which the first that is there counts; null is not there."
    )
    normalise: Normalise = None


IdPart = Annotated[PlainPart | AnyId, Field(discriminator="from_"), BeforeValidator(_named)]


def plain_parts(parts: Iterable[IdPart]) -> Iterator[PlainPart]:
    """Yield parts, those inside of ``any`` in its place."""
    for part in parts:
        if isinstance(part, AnyId):
            yield from part.any
        else:
            yield part


MOST_SCOPE_PARTS = 4
_SCOPE_WORDS = '"partition", "key", "header:NAME" or "value:/POINTER"'


def _scope_word(value: Any) -> str:
    part = _of_word(value)
    if value != "partition" and not (isinstance(value, str) and isinstance(part, dict)):
        raise wrong(f"must be {_SCOPE_WORDS}, or a table of one part, or a list of such parts")
    if "pointer" in part:
        deep_pointer(part["pointer"])
    return str(value)


def _of_word(value: Any) -> Any:
    """Return the table of a part that is written as a word."""
    if value == "key":
        return {"from": "key"}
    kind, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    if rest and kind in {"header", "value"}:
        return {"from": kind, "name" if kind == "header" else "pointer": rest}
    return _named(value)


def _scope_part(value: Any) -> Any:
    part = _of_word(value)
    if isinstance(part, str):
        raise wrong('must be "key", "header:NAME", "value:/POINTER" or a table of one part')
    return part


ScopePart = Annotated[
    HeaderId | KeyId | ValueId | ColumnId | TextId | AnyId,
    Field(discriminator="from_"),
    BeforeValidator(_scope_part),
]


def _scope_form(value: Any) -> str:
    return (
        "list" if isinstance(value, list) else "table" if isinstance(value, Mapping | ConfigTable) else "word"
    )


def _plain_scope(value: Any) -> Any:
    """Return a scope in the one way that is its own: the state of equal scopes is one."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    match value:
        case KeyId(normalise=None):
            return "key"
        case HeaderId(normalise=None):
            return f"header:{value.name}"
        case ValueId(normalise=None):
            return f"value:{value.pointer}"
        case _:
            return value


Scope = Annotated[
    Annotated[str, BeforeValidator(_scope_word), Tag("word")]
    | Annotated[ScopePart, Tag("table")]
    | Annotated[list[ScopePart], Field(min_length=1, max_length=MOST_SCOPE_PARTS), Tag("list")],
    Discriminator(_scope_form),
    AfterValidator(_plain_scope),
]


class HeaderNumber(ConfigTable):
    """A number in a record header."""

    from_: Literal["header"] = Field(alias="from", description="A record header.")
    name: Text = Field(description="Its name; of several of one name the last counts.")
    format: Literal["int64", "int32", "text"] = Field(
        default="int64",
        description="int64 and int32 are signed and big-endian, 8 and 4 bytes; text is decimal.",
    )


class ValueNumber(ConfigTable):
    """A number in a JSON value."""

    from_: Literal["value"] = Field(alias="from", description="A field of the JSON value.")
    pointer: DeepPointer = Field(description=f"JSON pointer (RFC 6901) to it{_THROUGH}.")
    format: Annotated[Literal["text"] | None, BeforeValidator(_value_format)] = Field(
        default=None, description="text: a JSON string of decimal digits; not set: a JSON integer."
    )


class ColumnNumber(ConfigTable):
    """A number in a column of delimited text."""

    from_: Literal["column"] = Field(alias="from", description="A column of delimited text: decimal digits.")
    number: ColumnIndex
    separator: Separator = "\t"


Wraps = Annotated[
    Annotated[WholeNumber, AfterValidator(_wraps)] | None,
    Field(
        description="N, where the numbers run from 0 to N - 1 and begin again: one that lies at most N / 2 "
        "ahead of the sequence watermark is above it. Not set: they only rise.",
    ),
]


class HeaderSource(HeaderNumber):
    """A sequence in a record header."""

    wraps: Wraps = None


class ValueSource(ValueNumber):
    """A sequence in a JSON value."""

    wraps: Wraps = None


class ColumnSource(ColumnNumber):
    """A sequence in a column of delimited text."""

    wraps: Wraps = None


Order = Annotated[
    Literal["rising", "change"],
    Field(
        description='"rising": a number, and a higher one begins the scope anew. "change": any bytes (in a '
        "value a string or a number), and another one does; the last 16 that were left stay late.",
    ),
]


class HeaderEpoch(HeaderNumber):
    """An epoch in a record header."""

    order: Order = "rising"


class ValueEpoch(ValueNumber):
    """An epoch in a JSON value."""

    order: Order = "rising"


class ColumnEpoch(ColumnNumber):
    """An epoch in a column of delimited text."""

    order: Order = "rising"


NumberSource = HeaderNumber | ValueNumber | ColumnNumber
SequenceSource = HeaderSource | ValueSource | ColumnSource
EpochSource = HeaderEpoch | ValueEpoch | ColumnEpoch


_SCOPE_PART: TypeAdapter[ScopePart] = TypeAdapter(ScopePart)


def _part_name(part: IdPart) -> str:
    match part:
        case HeaderId() | ValueId():
            return f"{part.from_}:{part.name if isinstance(part, HeaderId) else part.pointer}"
        case ColumnId():
            return f"column:{part.number}"
        case AnyId():
            return " or ".join(map(_part_name, part.any))
        case _:
            return part.from_


class DedupTable(ConfigTable):
    """What the table ``dedup`` of every mode says of its mode, with the defaults of a new one."""

    trims_changelog: ClassVar[bool] = False
    """Whether its changelog is a log that is trimmed at the head, and not compacted."""

    @property
    def unscoped_by(self) -> str | None:
        """The key that says that its records have no scopes; None: they have."""
        return "mode"


class WatermarkDedup(DedupTable):
    """Sequences that grow: what is not above the last one seen is dropped."""

    mode: Literal["watermark"] = Field(description="Judge by a sequence that the producer counts up.")
    scope: Scope = Field(
        default="partition",
        description='What has a sequence of its own: "partition", "key", "header:NAME" (one sequence per '
        'producer), "value:/POINTER", a table of a part as in id (but content), or a list of at most '
        f"{MOST_SCOPE_PARTS} of them.",
    )
    sequence: SequenceSource = Field(
        discriminator="from_", description="Where the sequence stands in a record."
    )
    epoch: EpochSource | None = Field(
        default=None,
        discriminator="from_",
        description="Where the epoch stands: a producer that restarts its count raises it, or changes it.",
    )
    # 65,536 bits are 8 KiB of state per scope: what one changed scope costs in the changelog.
    reorder_window: Annotated[WholeNumber, Field(ge=0, le=65_536)] = Field(
        default=0,
        description="How many sequence numbers below the sequence watermark are remembered one by one, so "
        "that a late record that was never seen passes; 0: strict.",
    )
    json_: JsonStrictness = "strict"
    framing: Framing = "auto"

    @property
    def changes(self) -> bool:
        """Whether epochs have no order, and only differ."""
        return self.epoch is not None and self.epoch.order == "change"

    @property
    def wraps(self) -> int:
        """Where sequences begin again; 0: nowhere."""
        return self.sequence.wraps or 0

    @property
    @override
    def unscoped_by(self) -> str | None:
        return "scope" if self.scope == "partition" else None

    @property
    def scope_parts(self) -> list[ScopePart]:
        """The parts that make a scope; none: it is the partition."""
        if isinstance(self.scope, str):
            return [] if self.scope == "partition" else [_SCOPE_PART.validate_python(self.scope)]
        return self.scope if isinstance(self.scope, list) else [self.scope]

    @property
    def scope_name(self) -> str:
        """The scope in a few words."""
        return self.scope if isinstance(self.scope, str) else " and ".join(map(_part_name, self.scope_parts))


class BloomOptions(ConfigTable):
    """The table ``bloom``: one filter per partition and bucket of time."""

    false_positive_rate: Annotated[float, Field(ge=1e-15, lt=0.5)] = Field(
        default=1e-9, description="Share of new records that are dropped, over the whole window."
    )
    bucket: DurationMs = Field(
        default=_DAY_MS,
        description="Time that one filter covers; it is dropped whole. Not set: no longer than the window.",
    )
    expected_per_bucket: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=20_000_000, description="Ids per partition and bucket that a filter is sized for."
    )


class Fingerprint(ConfigTable):
    """The table ``fingerprint``: by what a resend and an id that comes with other content are told apart."""

    of: ContentForm = "value"
    exclude: Excluded = Field(default_factory=list)
    headers: list[Text] = Field(
        default_factory=list,
        description="Headers whose bytes count too; of several of one name the last, an absent one as absent.",
    )


def _to(value: str) -> str:
    if value == "key":
        raise wrong("the key cannot be renamed: it decides about partitions; name another part of the id")
    return _place(value, "header:NAME", named=value.startswith("header:") and value != "header:")


def _keep(value: str) -> str:
    if not value:
        raise wrong("must name a member inside the value; the whole value is there already")
    return _place(value, "header", named=value == "header")


def _place(value: str, otherwise: str, *, named: bool) -> str:
    if not named and not is_pointer(value):
        raise wrong(f'must be a JSON pointer such as "/user/id", or "{otherwise}"')
    return value


class Rename(ConfigTable):
    """The table ``rename``: where the new id of a collision goes, and the old one."""

    to: Annotated[str, AfterValidator(_to)] = Field(
        description="The part of the id that is replaced by a new one (UUID, version 8): a JSON pointer to a "
        'string in the value, or "header:NAME".'
    )
    keep: Annotated[str, AfterValidator(_keep)] = Field(
        default="header",
        description='Where the old one is kept: "header" (seqmark.original_id), or a JSON pointer to an object '
        "member that does not exist yet.",
    )


class InsertIdDedup(DedupTable):
    """Ids that are repeated when a record is sent again: dropped within a window of time."""

    trims_changelog = True

    mode: Literal["insert-id"] = Field(
        description="Judge by an id that the producer repeats when it sends again."
    )
    id: Annotated[list[IdPart], Field(min_length=1)] = Field(description="The parts that make an id.")
    window: DurationMs = Field(description="How long an id is remembered.")
    time: Literal["record", "arrival"] = Field(
        default="record",
        description="The partition's clock runs by the records' Kafka timestamps, or by the worker's clock.",
    )
    max_ahead: DurationOrNoneMs = Field(
        default=5 * _MINUTE_MS,
        description="How far records may push the partition's clock ahead of the worker's; 0s: never.",
    )
    refresh: bool = Field(default=False, description="A duplicate renews its id's window.")
    on_missing: Literal["quarantine", "pass"] = Field(
        default="quarantine",
        description="What becomes of a record where a part is missing or null.",
    )
    backend: Literal["exact", "bloom"] = Field(
        default="exact",
        description="How ids are remembered: each, or by Bloom filters, which keep no ids and drop new records "
        "too, at the rate that is set.",
    )
    bloom: BloomOptions | None = Field(default=None, description="Options of the bloom backend.")
    route: Literal["by-id"] | None = Field(
        default=None,
        description="by-id: re-key through an internal topic first, for equal ids that can arrive in "
        "different partitions.",
    )
    fingerprint: Fingerprint | None = Field(
        default=None,
        description="By what a resend and an id that comes with other content are told apart; not set: by "
        "nothing, a record whose id is remembered is a duplicate.",
    )
    on_collision: Literal["pass", "tag", "rename", "quarantine", "drop"] = Field(
        default="pass",
        description="With a fingerprint: what becomes of a record whose id comes with other content. tag adds "
        "the header seqmark.collision; quarantine and drop keep no memory of it.",
    )
    rename: Rename | None = Field(
        default=None, description='With on_collision "rename": what is renamed, where the old name is kept.'
    )
    json_: JsonStrictness = "strict"
    framing: Framing = "auto"

    @property
    def bloom_options(self) -> BloomOptions:
        """The options of the bloom backend, defaults where none are given."""
        options = self.bloom or BloomOptions()
        if "bucket" in options.model_fields_set:
            return options
        return options.model_copy(update={"bucket": min(options.bucket, self.window)})


Dedup = WatermarkDedup | InsertIdDedup
