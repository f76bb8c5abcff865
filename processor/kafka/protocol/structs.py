"""Writes requests that aiokafka does not have, of the types that it builds its own of.

All are of flexible versions (KIP-482): every structure ends with tags, of which we send none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

if TYPE_CHECKING:
    from io import BytesIO

    Field = tuple[str, Any]

__all__ = ["NO_TAGS", "NUMBERS", "TEXT", "Boolean", "CompactArray", "CompactBytes", "FlexibleRequest"]
__all__ += ["Int8", "Int16", "Int32", "Int64", "Uuid", "rows"]

_TAGS = ("tags", TaggedFields)
_UUID_BYTES = 16
NO_TAGS: Final[dict[int, bytes]] = {}
TEXT = CompactString("utf-8")
NUMBERS = CompactArray(Int32)


class Uuid(AbstractType):  # type: ignore[misc]  # aiokafka is not typed
    """16 bytes as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Return them."""
        assert len(value) == _UUID_BYTES  # noqa: S101 - ids come from brokers
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """Read them."""
        return data.read(_UUID_BYTES)


def rows(*fields: Field) -> CompactArray:
    """Return the type of a list of structures."""
    return CompactArray(*fields, _TAGS)


class FlexibleRequest(Request[RequestStruct]):  # type: ignore[misc]  # aiokafka is not typed
    """A request of one flexible version; its arguments are the values of its fields, without the last tags.

    A class statement gives ``key`` and ``version`` of the API, the fields that it ``asks`` with, those of the
    ``answer``, and aiokafka's structures of ``older`` versions, which then need a `build` of their own.
    """

    API_KEY: ClassVar[int] = -1
    VERSION: ClassVar[int]

    def __init_subclass__(
        cls, *, key: int, version: int, asks: list[Field], answer: list[Field], older: tuple[type, ...] = ()
    ) -> None:
        cls.API_KEY, cls.VERSION = key, version
        super().__init_subclass__()
        api = {"API_KEY": key, "API_VERSION": version, "__module__": cls.__module__}
        response = type(f"{cls.__name__}Response", (Response,), {**api, "SCHEMA": Schema(*answer, _TAGS)})
        own = {"FLEXIBLE_VERSION": True, "RESPONSE_TYPE": response, "SCHEMA": Schema(*asks, _TAGS)}
        cls._CLASSES = (*older, type(f"{cls.__name__}Struct", (RequestStruct,), {**api, **own}))

    def __init__(self, *fields: object) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[Any]) -> Any:
        """Return what is sent."""
        return request_struct_class(*self._fields, NO_TAGS)
