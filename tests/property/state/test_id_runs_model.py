"""Ids in tables and runs against a naive dictionary, with a restart from what is stored at any point."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids.block import IdRows
from processor.state.ids import runs as ids_runs
from processor.state.ids.runs import Runs
from processor.state.kv.store import MemoryStore
from schemas.changelog.bloom import RUN_KIND, run_pages_before
from tests.support.suite.examples import examples

BUCKET_MS = 10
LIVE = 4
"""Buckets that live."""


class Batch(NamedTuple):
    """Ids of a commit, how far the clock goes on before it, and whether it is restarted after it."""

    ids: list[int]
    later_ms: int
    restarted: bool


batches = st.lists(
    st.builds(
        Batch,
        st.lists(st.integers(0, 300), max_size=60, unique=True),
        st.sampled_from([0, 0, 1, 5, 25]),
        st.booleans(),
    ),
    max_size=20,
)


def hash_of(number: int) -> tuple[int, int]:
    dice = random.Random(number)
    # Some share their first word.
    return dice.randrange(2**64) if number % 5 else 7, dice.randrange(2**64)


ALL = np.array([hash_of(number) for number in range(400)], np.uint64)


@examples(200)
@given(batches, st.sampled_from([1, 10, 100]), st.sampled_from([1, 8]))
def test_every_id_of_a_living_bucket_is_found_as_it_was_last_remembered_there_and_no_other(
    script: list[Batch], most: int, portions: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_runs, "LEAST_IDS", most)
        patch.setattr(ids_runs, "MOST_IDS", most)
        patch.setattr(ids_runs, "PORTIONS", portions)
        store, runs = MemoryStore(), Runs(0)
        model: dict[tuple[int, int], tuple[int, int]] = {}
        log: list[IdRows] = []
        now, number = 1000, 1
        for batch in script:
            now += batch.later_ms
            live = now // BUCKET_MS - LIVE
            # Of a commit that spans buckets: every third id was remembered in the one before, if that lives.
            reading = np.array([now - BUCKET_MS * (each % 3 == 0) for each in batch.ids], np.int64)
            owner = number + np.arange(len(batch.ids))
            rows = IdRows(number, ALL[batch.ids].reshape(-1, 2), owner, reading, np.full(owner.size, -1))
            log.append(rows)
            number += len(rows)
            for each, whose, when in zip(batch.ids, owner.tolist(), reading.tolist(), strict=True):
                model[each, when // BUCKET_MS] = whose, when
            runs.take(rows, reading // BUCKET_MS, live)
            runs.drop(live)
            store.write(runs.changes(), run_pages_before(live))
            if batch.restarted:
                runs = Runs(0)
                for key, value in store.items(RUN_KIND):
                    runs.load(key, value)
                runs.drop(live)
                # From the first block on that has an id which is in no run.
                for old in log:
                    if old.first + len(old) > runs.since:
                        runs.take(old, old.reading_ms // BUCKET_MS, live)
            model = {name: known for name, known in model.items() if name[1] >= live}
            for bucket in range(live, now // BUCKET_MS + 1):
                found = runs.look_up(np.full(len(ALL), bucket), ALL, store.get_many)
                said = zip(found.owner.tolist(), found.reading_ms.tolist(), strict=True)
                known = {(each, bucket): one for each, one in enumerate(said) if found.known[each]}
                assert known == {name: one for name, one in model.items() if name[1] == bucket}
