"""The definition of a state: what of the config it is bound to, as people and as 16 bytes know it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import orjson

from processor.judges.factory import mode_of

if TYPE_CHECKING:
    from schemas.config import Pipeline


def judged_by(pipeline: Pipeline) -> list[str]:
    """Return the keys of ``dedup`` that the stored state is bound to."""
    free = mode_of(pipeline).free_keys
    return [key for key in type(pipeline.dedup).model_fields if key not in free]


def definition(pipeline: Pipeline) -> bytes:
    """Return 16 bytes that change when the meaning of the stored state changes."""
    canonical = orjson.dumps(mode_of(pipeline).meaning(), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark").digest()
