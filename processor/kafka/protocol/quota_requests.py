"""Asks which quotas are set for users and client ids (KIP-546)."""

from __future__ import annotations

from enum import IntEnum

from processor.kafka.protocol.requests import NO_TAGS, FlexibleRequest


class QuotaMatch(IntEnum):
    """Which quotas are asked for, of those for an entity of a type."""

    NAME = 0
    DEFAULT = 1
    ANY = 2


class DescribeClientQuotasRequest(FlexibleRequest):
    """Asks which quotas are set for a type of entity, ``strict``: and for no other beside it."""

    API_KEY, VERSION = 48, 1
    ASKS = "components[entity_type:text match_type:int8 name:text] strict:bool"
    ANSWER = """
        throttle_time_ms:int32 error_code:int16 error_message:text
        entries[entity[entity_type:text name:text] values[key:text value:float64]]
    """

    def __init__(self, entity_type: str, match: QuotaMatch, name: str | None, *, strict: bool) -> None:
        super().__init__([(entity_type, int(match), name, NO_TAGS)], strict)
