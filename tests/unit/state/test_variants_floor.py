"""A local state of filters that has variants and no snapshot forgets no number below them."""

from __future__ import annotations

import numpy as np

from processor.engine.ids.block import IdRows, encode
from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.window import BloomWindow
from processor.state.ids.bloom_log import BloomLog
from processor.wire.encode import plain_batch
from schemas.changelog.ids import (
    IDS_KEY,
    IdState,
    encode_place,
    id_block_key,
    id_page_key,
    id_place_key,
)
from tests.support.judges.scopes import columns_of

SECRET = bytes(16)
IDS = 49


def rows(first: int, count: int, reading_ms: int, *, collide: bool) -> IdRows:
    hashes = np.random.default_rng(first).integers(0, 2**63, (count, 2)).astype(np.uint64)
    readings, none = np.full(count, reading_ms), np.full(count, -1)
    told = np.arange(1, count + 1, dtype=np.uint64), np.full(count, collide)
    return IdRows(first, hashes, first + np.arange(count), readings, none, *told)


def test_the_floor_of_a_bucket_is_that_of_its_ids_though_its_variants_are_taken_over_first() -> None:
    ids, variants = rows(1, IDS, 90, collide=False), rows(IDS + 1, 2, 100, collide=True)
    changelog: list[tuple[bytes, bytes]] = []
    for some, clock_ms in ((ids, 90), (variants, 100)):
        key = id_block_key(some.first)
        state = IdState(SECRET, clock_ms, some.first + len(some), 1).encode()
        changelog += [(key, encode(some, clock_ms, key)[0]), (IDS_KEY, state)]
    block, pages = encode(variants, 100, id_block_key(variants.first))
    page = block[int(pages.at[0]) : int(pages.at[1])]
    store = [
        (id_place_key(1), encode_place(id_place_key(1), 0)),
        (IDS_KEY, changelog[-1][1]),
        (id_page_key(variants.first), page),
    ]
    log = BloomLog(BloomNumbering(BloomWindow(1_000, 500, 100, 1e-3, fingerprints=True)))
    for _ in log.load(store):
        pass

    start = log.resumes(len(changelog))
    assert start == 0
    log.apply(columns_of(plain_batch([(key, value, 0, ()) for key, value in changelog]))[0])
    log.check()

    assert log.index.next_number == IDS + 3
    assert log.index.floor == 1
