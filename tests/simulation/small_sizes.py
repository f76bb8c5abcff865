"""Sizes at which what is kept in bulk is written in several pieces by some records, not by millions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from processor.engine.ids.bloom import snapshot
from processor.state import scope_log
from processor.state.ids import bloom_log, exact_log, id_log

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator


@contextlib.contextmanager
def small_sizes(dice: random.Random) -> Iterator[None]:
    """Draw them, as `tests/property/state/test_id_state_model.py` has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_log, "ERASED_IDS", dice.choice((1, 100_000)))
        patch.setattr(id_log, "ENTRY_IDS", dice.choice((1, 100)))
        patch.setattr(snapshot, "PIECE_WORDS", 8)
        patch.setattr(bloom_log, "BYTES_AN_ID", dice.choice((1, 64)))
        patch.setattr(bloom_log, "BYTES_A_COMMIT", 200)
        patch.setattr(bloom_log, "LEAST_IDS", 0)
        patch.setattr(scope_log, "WRITE_EVERY_S", dice.choice((0.0, 1.0, 5.0)))
        yield
