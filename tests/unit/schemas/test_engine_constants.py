"""Constants that stand in the engine as well, which imports no schema, are equal to those of the schemas."""

from __future__ import annotations

import pytest

from processor.engine.bytes import siphash
from processor.engine.extract import pointers
from processor.engine.ids import clock as engine_clock
from processor.engine.ids.bloom import snapshot
from processor.engine.watermark import left_epochs, reorder_window, scope_codec
from schemas.changelog import bloom, clock, ids, values, watermark
from schemas.config import dedup

# What it is: in the engine, in the schemas.
SHARED: dict[str, tuple[object, object]] = {
    "kind of a watermark": (bytes([scope_codec.KIND]), values.WATERMARK_KIND),
    "flag of an epoch": (scope_codec.WITH_EPOCH, watermark._WITH_EPOCH),
    "flag of a run": (scope_codec.WITH_RUN, watermark._WITH_RUN),
    "flag of a ring": (scope_codec.WITH_BITMAP, watermark._WITH_RING),
    "flag of epochs without order": (scope_codec.WITH_LEFT, watermark._WITH_LEFT),
    "bytes of such an epoch": (scope_codec.HASH_BYTES, watermark._EPOCH_HASH),
    "epochs that are remembered": (left_epochs.MOST_LEFT, watermark.MOST_LEFT),
    "bytes before what the flags add": (scope_codec.FIXED_BYTES, watermark._WATERMARK.size),
    "bytes of a watermark's checksum": (scope_codec.CRC_BYTES, values.CRC.size),
    "no bound by a worker's clock": (engine_clock.NO_LIMIT, clock.NO_LIMIT),
    "a clock that is not known": (engine_clock.NOT_KNOWN, clock.NOT_KNOWN),
    "bytes of the secret": (siphash.KEY_BYTES, ids.SECRET_BYTES),
    "bytes of a piece's checksum": (snapshot._CRC.size, values.CRC.size),
    "parts of an id in the value": (pointers.MOST_POINTERS, dedup.MOST_VALUE_PARTS),
}


@pytest.mark.parametrize(("in_engine", "in_schemas"), SHARED.values(), ids=SHARED)
def test_a_constant_is_the_same(in_engine: object, in_schemas: object) -> None:
    assert in_engine == in_schemas


@pytest.mark.parametrize("window", [0, 1, 63, 64, 65, 127, 128, 129, 65_535, 65_536])
def test_a_ring_is_of_the_same_size(window: int) -> None:
    assert reorder_window.ring_bits(window) == watermark.ring_bits(window)


def test_keys_of_ids_are_those_that_the_modules_of_ids_name() -> None:
    named = {
        value
        for module in (ids, bloom)
        for name, value in vars(module).items()
        if name.endswith(("_KEY", "_KIND")) and isinstance(value, bytes)
    }

    assert named <= set(values.OF_IDS) | {values.ORIGIN_KEY}
