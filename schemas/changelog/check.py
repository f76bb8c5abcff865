"""Checks one value as it stands in a changelog or in the local state."""

from __future__ import annotations

from schemas.changelog.position import LocalMark, Origin, Position
from schemas.changelog.values import (
    BLOCK_KIND,
    BLOCKS_KEY,
    BROUGHT_KIND,
    LOCAL_KEY,
    OF_IDS,
    ORIGIN_KEY,
    POSITION_KEY,
    WATERMARK_KIND,
    CorruptStateError,
)
from schemas.changelog.watermark import ScopeValue, decode_blocks, open_block


def check_entry(key: bytes, value: bytes) -> None:
    """Check that a value is whole and what its key says.

    Raises:
        CorruptStateError: It is not what ``key`` says, or not whole.
    """
    if key == POSITION_KEY:
        Position.decode(value)
    elif key == ORIGIN_KEY:
        Origin.decode(value)
    elif key == LOCAL_KEY:
        LocalMark.decode(value)
    elif key.startswith(WATERMARK_KIND):
        ScopeValue.decode(key, value)
    elif key.startswith((BLOCK_KIND, BROUGHT_KIND)):
        open_block(key, value)
    elif key == BLOCKS_KEY:
        decode_blocks(value)
    elif not key.startswith(OF_IDS):
        # The restore of ids checks their own values.
        raise CorruptStateError(f"the key {key!r} is of no kind that this Seqmark knows")
