"""The two modes of a pipeline, and what each reads from a record."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from typing_extensions import override

from schemas.config.values import (
    ConfigTable,
    DurationMs,
    DurationOrNoneMs,
    Pointer,
    Text,
    WholeNumber,
    is_pointer,
    wrong,
)

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
MOST_VALUE_PARTS = 62
"""Parts of an id that stand in the value: what one scan of it looks for."""


def _scope(value: str) -> str:
    if value in {"partition", "key"} or (value.startswith("header:") and value != "header:"):
        return value
    raise wrong('must be "partition", "key" or "header:NAME"')


def _value_format(value: Any) -> Any:
    if value in {"int64", "int32"}:
        raise wrong(
            "int64 and int32 are for headers; in a value leave format out (a JSON integer) "
            'or write "text" (a JSON string)'
        )
    return value


class HeaderSource(ConfigTable):
    """A sequence or epoch in a record header."""

    from_: Literal["header"] = Field(alias="from", description="A record header.")
    name: Text = Field(description="Its name; of several of one name the last counts.")
    format: Literal["int64", "int32", "text"] = Field(
        default="int64",
        description="int64 and int32 are signed and big-endian, 8 and 4 bytes; text is decimal.",
    )


class ValueSource(ConfigTable):
    """A sequence or epoch in a JSON value."""

    from_: Literal["value"] = Field(alias="from", description="A field of the JSON value.")
    pointer: Pointer = Field(description="JSON pointer (RFC 6901) to it.")
    format: Annotated[Literal["text"] | None, BeforeValidator(_value_format)] = Field(
        default=None, description="text: a JSON string of decimal digits; not set: a JSON integer."
    )


SequenceSource = HeaderSource | ValueSource


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
    scope: Annotated[str, AfterValidator(_scope)] = Field(
        default="partition",
        description='What has a sequence of its own: "partition", "key" or "header:NAME" '
        "(one sequence per producer).",
    )
    sequence: SequenceSource = Field(
        discriminator="from_", description="Where the sequence stands in a record."
    )
    epoch: SequenceSource | None = Field(
        default=None,
        discriminator="from_",
        description="Where the epoch stands: a producer that restarts its count raises it.",
    )
    # 65,536 bits are 8 KiB of state per scope: what one changed scope costs in the changelog.
    reorder_window: Annotated[WholeNumber, Field(ge=0, le=65_536)] = Field(
        default=0,
        description="How many sequence numbers below the sequence watermark are remembered one by one, so "
        "that a late record that was never seen passes; 0: strict.",
    )

    @property
    @override
    def unscoped_by(self) -> str | None:
        return "scope" if self.scope == "partition" else None


class HeaderId(ConfigTable):
    """A part of an id: a header's bytes."""

    from_: Literal["header"] = Field(alias="from", description="A record header's bytes.")
    name: Text = Field(description="Its name; of several of one name the last counts.")


class KeyId(ConfigTable):
    """A part of an id: the record's key."""

    from_: Literal["key"] = Field(alias="from", description="The key's bytes.")


class ValueId(ConfigTable):
    """A part of an id: a field of the JSON value."""

    from_: Literal["value"] = Field(alias="from", description="A field of the JSON value.")
    pointer: Pointer = Field(description="JSON pointer (RFC 6901) to a string or a number.")


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


IdPart = HeaderId | KeyId | ValueId | ContentId


class BloomOptions(ConfigTable):
    """The table ``bloom``: one filter per partition and bucket of time."""

    false_positive_rate: Annotated[float, Field(ge=1e-15, lt=0.5)] = Field(
        default=1e-9, description="Promised rate over the whole window."
    )
    bucket: DurationMs = Field(
        default=_DAY_MS,
        description="Time that one filter covers; it is dropped whole. Not set: no longer than the window.",
    )
    expected_per_bucket: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=20_000_000, description="Ids per partition and bucket that a filter is sized for."
    )
    confirm: bool = Field(
        default=True,
        description="Look a hit up among the ids; false keeps no ids at all, and a false positive is "
        "a lost record.",
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
    id: Annotated[list[Annotated[IdPart, Field(discriminator="from_")]], Field(min_length=1)] = Field(
        description="The parts that make an id."
    )
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
    backend: Literal["exact", "bloom"] = Field(default="exact", description="How ids are kept in memory.")
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

    @property
    def bloom_options(self) -> BloomOptions:
        """The options of the bloom backend, defaults where none are given."""
        options = self.bloom or BloomOptions()
        if "bucket" in options.model_fields_set:
            return options
        return options.model_copy(update={"bucket": min(options.bucket, self.window)})


Dedup = WatermarkDedup | InsertIdDedup
