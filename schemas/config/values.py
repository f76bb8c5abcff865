"""Forms of single values: names, topics, durations, sizes, pointers, addresses.

Messages say what would be right and never repeat the value: it may be a secret put in the wrong place.
"""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

# Kafka's own limits, `org.apache.kafka.common.internals.Topic`.
TOPIC_MAX_LENGTH = 249
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_DURATION = re.compile(r"([0-9]+)(?:(s|m|h|d)| (second|minute|hour|day|week)s?)", re.ASCII)
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
# Through a value that is a JSON string itself a | comes first; `|/` inside needs no form of its own.
_DEEP_POINTER = re.compile(rf"(?:\|+(?=/))?{_POINTER.pattern}")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]/]+):([0-9]{1,5})", re.ASCII)
_SERVERS = re.compile(rf"\s*{_ADDRESS.pattern}\s*(?:,\s*{_ADDRESS.pattern}\s*)*")
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+(?:/[^\s@?#]*)?")
_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_SIZE = re.compile(r"([0-9]{1,6})(MB|GB)", re.ASCII)
_UNIT_BYTES = {"MB": 1_000_000, "GB": 1_000_000_000}
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORD_MS = {
    "second": _UNIT_MS["s"],
    "minute": _UNIT_MS["m"],
    "hour": _UNIT_MS["h"],
    "day": _UNIT_MS["d"],
    "week": 7 * _UNIT_MS["d"],
}
_MOST_DURATION = "999999999d"
# 8.6e16 ms: a time and two of them stay below the 9.2e18 of 64 bits. No number of more digits is less.
_MOST_DURATION_MS = 999_999_999 * _UNIT_MS["d"]
_MOST_DIGITS = len(str(_MOST_DURATION_MS))


class ConfigTable(BaseModel):
    """A table of the config file: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=False)


def wrong(message: str) -> PydanticCustomError:
    """Return the error of one value; the message is shown as it stands, after the key."""
    return PydanticCustomError("seqmark", "{message}", {"message": message})


def _whole_number(value: Any) -> Any:
    # Python counts True as 1.
    if isinstance(value, bool):
        raise wrong("must be a whole number")
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise wrong("must be made of letters, digits, _ and - only ([A-Za-z0-9_-]+)")
    return value


def _model(value: str) -> str:
    if not _MODEL.fullmatch(value):
        raise wrong('must be MODULE:CLASS, such as "schemas.events:ClickEvent"')
    return value


def topic_fault(name: str) -> str | None:
    """Return what Kafka would refuse in a topic of this name, or None."""
    if name in {".", ".."}:
        return "must not be . or .."
    if not _TOPIC.fullmatch(name):
        return "must be made of letters, digits, . _ and - only (Kafka's rule for topics)"
    if len(name) > TOPIC_MAX_LENGTH:
        return f"must have at most {TOPIC_MAX_LENGTH} characters (Kafka's rule for topics)"
    return None


def _topic(value: str) -> str:
    if fault := topic_fault(value):
        raise wrong(fault)
    return value


def _duration(value: Any) -> Any:
    if not isinstance(value, str) or not (match := _DURATION.fullmatch(value.strip())):
        raise wrong(
            'must be a whole number and a unit: s, m, h or d, such as "90s" or "7d", or a word, such as '
            '"1 hour" or "30 minutes"'
        )
    digits, unit_ms = match[1].lstrip("0"), _UNIT_MS[match[2]] if match[2] else _WORD_MS[match[3]]
    if len(digits) > _MOST_DIGITS or int(digits or "0") * unit_ms > _MOST_DURATION_MS:
        raise wrong(f'is too long: must be at most "{_MOST_DURATION}"')
    return int(digits or "0") * unit_ms


def _positive(value: int) -> int:
    if value <= 0:
        raise wrong("must be longer than 0")
    return value


def _positive_size(value: int) -> int:
    if value <= 0:
        raise wrong("must be more than 0")
    return value


def is_pointer(value: str) -> bool:
    """Return whether this is a JSON pointer (RFC 6901); "" is one, to the whole value."""
    return _POINTER.fullmatch(value) is not None


def _pointer(value: str) -> str:
    if not is_pointer(value):
        raise wrong(
            'must be a JSON pointer such as "/seq" or "/user/id": / before each step, '
            "~1 for / and ~0 for ~ inside one"
        )
    return value


def is_deep_pointer(value: str) -> bool:
    """Return whether this is a JSON pointer, which may go through JSON in strings."""
    return _DEEP_POINTER.fullmatch(value) is not None


def deep_pointer(value: str) -> str:
    """Return a pointer that may go through JSON in strings; raises `PydanticCustomError` where it is none."""
    return value if is_deep_pointer(value) else _pointer(value)


def _text(value: str) -> str:
    if not value.strip():
        raise wrong("must not be empty")
    return value


def _servers(value: str) -> str:
    for address in value.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if not match or not 0 < int(match[1]) <= 65535:
            raise wrong('must be HOST:PORT, several separated by commas, such as "localhost:9092"')
    return ",".join(address.strip() for address in value.split(","))


def _endpoint(value: str) -> str:
    if not _ENDPOINT.fullmatch(value):
        # A user in it would be a secret that is logged with the address.
        raise wrong('must be an address such as "http://collector:4318", with neither user nor query')
    return value


def _host_name(value: str) -> str:
    if not _HOST_NAME.fullmatch(value):
        raise wrong('must be the name of a host without scheme and port, such as "seqmark.example.com"')
    return value


def duration_text(value_ms: int) -> str:
    """Return a duration as the config file writes it: 300000 is ``5m``, 0 is ``0s``."""
    for unit in ("d", "h", "m"):
        if value_ms and value_ms % _UNIT_MS[unit] == 0:
            return f"{value_ms // _UNIT_MS[unit]}{unit}"
    return f"{value_ms // 1000}s"


def duration_words(value_ms: int) -> str:
    """Return a duration in words, in its largest unit, as people and Spark read it: 3600000 is ``1 hour``."""
    unit, unit_ms = "second", _WORD_MS["second"]
    for longer, longer_ms in _WORD_MS.items():
        if value_ms and value_ms % longer_ms == 0:
            unit, unit_ms = longer, longer_ms
    number = value_ms // unit_ms
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _size(value: Any) -> Any:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(match[1]) * _UNIT_BYTES[match[2]]
    raise wrong('must be a whole number and a unit, MB or GB, such as "900MB" or "4GB"')


class FormMark:
    """Stands in a field's metadata: the form of its text, for the JSON schema; the field has its own check."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def __get_pydantic_json_schema__(self, _: Any, __: Any) -> dict[str, Any]:
        """Return what stands in the schema, whatever the type that is made of the text."""
        return {"type": "string", "pattern": f"^(?:{self._pattern.pattern})$"}


class SizeMark(FormMark):
    """Stands in a field's metadata: its integer is bytes, written with a unit."""

    def __init__(self) -> None:
        super().__init__(_SIZE)


class DurationMark(FormMark):
    """Stands in a field's metadata: its integer is milliseconds, written with a unit."""

    def __init__(self) -> None:
        super().__init__(_DURATION)


WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
ModelName = Annotated[str, AfterValidator(_model)]
Name = Annotated[str, AfterValidator(_name), FormMark(_NAME)]
Topic = Annotated[str, AfterValidator(_topic), FormMark(_TOPIC)]
Pointer = Annotated[str, AfterValidator(_pointer), FormMark(_POINTER)]
DeepPointer = Annotated[str, AfterValidator(deep_pointer), FormMark(_DEEP_POINTER)]
"""A pointer that may go through JSON in strings: ``/data|/uuid``: /uuid in the JSON that /data holds."""
Text = Annotated[str, AfterValidator(_text)]
Servers = Annotated[str, AfterValidator(_servers), FormMark(_SERVERS)]
Endpoint = Annotated[str, AfterValidator(_endpoint), FormMark(_ENDPOINT)]
HostName = Annotated[str, AfterValidator(_host_name), FormMark(_HOST_NAME)]
SizeBytes = Annotated[int, BeforeValidator(_size), AfterValidator(_positive_size), SizeMark()]
DurationMs = Annotated[int, BeforeValidator(_duration), AfterValidator(_positive), DurationMark()]
DurationOrNoneMs = Annotated[int, BeforeValidator(_duration), DurationMark()]
"""A duration that may be 0: "0s"."""
