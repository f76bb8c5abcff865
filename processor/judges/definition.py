"""The definition of a state: what of the config it is bound to, as people and as 16 bytes know it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import orjson

from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from schemas.config import Pipeline

FREE_KEYS = frozenset({"max_ahead"})
"""Keys of ``dedup`` that may change over an existing state: what is remembered means the same, and what the
clock read before is written down (`schemas.changelog.clock`)."""


def judged_by(pipeline: Pipeline) -> list[str]:
    """Return the keys of ``dedup`` that the stored state is bound to."""
    return [key for key in type(pipeline.dedup).model_fields if key not in FREE_KEYS]


def definition(pipeline: Pipeline) -> bytes:
    """Return 16 bytes that change when the meaning of the stored state changes."""
    # Without defaults: a field that a later version adds must not make old state foreign.
    fields = pipeline.dedup.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=set(FREE_KEYS)
    )
    if isinstance(pipeline.dedup, InsertIdDedup) and pipeline.dedup.backend == "bloom":
        # As it is meant, however much of it is written down.
        options = pipeline.dedup.bloom_options.model_dump(mode="json", exclude_defaults=True)
        fields.pop("bloom", None)
        fields |= {"bloom": options} if options else {}
    canonical = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark").digest()
