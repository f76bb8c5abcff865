"""A routed pipeline keeps of each id the word that says where it would go in more partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.state.kv.store import MemoryStore
from schemas.changelog.ids import ID_BLOCK_KIND
from tests.support.judges.id_state import NOW_MS, Came, IdPartition
from tests.unit.engine.test_id_block import by_hand

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = [b"a", b"b", b"a", b"c", b"b", b"b"]
VALUES = [b"1", b"1", b"2", b"1", b"1", b"2"]
WORDS = {b"a": 7, b"b": 65_535, b"c": 0}
BACKENDS: list[dict[str, Any]] = [{}, {"backend": "bloom"}]


def take(partition: IdPartition, words: Sequence[int]) -> list[int]:
    came = [Came(key, NOW_MS + n, value) for n, (key, value) in enumerate(zip(KEYS, VALUES, strict=True))]
    evidence = partition.judge.extract(partition.columns(came))
    evidence.route = np.array(words, np.uint16)
    partition.next_offset += len(came)
    return list(map(int, partition.judge.judge(evidence).verdict))


def rows_of(partition: IdPartition) -> list[tuple[int, ...]]:
    found = []
    for at in partition.changelog.offsets(ID_BLOCK_KIND):
        key, value = partition.changelog.rows[at] or (b"", b"")
        found += by_hand(value or b"", key)[0]
    return found


@pytest.mark.parametrize("more", [*BACKENDS, {"fingerprint": {"of": "bytes"}}], ids=["exact", "bloom", "told"])
def test_the_word_stands_beside_the_id_and_its_variants(more: dict[str, Any]) -> None:
    partition = IdPartition(window=3_600_000, **more)

    judged = take(partition, [WORDS[key] for key in KEYS])
    partition.commit()

    words = [row[7] for row in rows_of(partition)]
    if "fingerprint" not in more:
        assert judged == [0, 0, 1, 0, 1, 1]
        assert words == [7, 65_535, 0]
    else:
        assert judged == [0, 0, 4, 0, 1, 4]
        # The ids, and of those that collided both variants.
        assert words == [7, 65_535, 0, 7, 7, 65_535, 65_535]
    partition.open(MemoryStore())
    assert set(take(partition, [])) == {1}


@pytest.mark.parametrize("backend", BACKENDS, ids=["exact", "bloom"])
def test_a_commit_of_which_some_words_are_not_known_has_none(backend: dict[str, Any]) -> None:
    partition = IdPartition(window=3_600_000, **backend)
    partition.take([Came(b"old", NOW_MS)])
    take(partition, [WORDS[key] for key in KEYS])
    partition.commit()
    assert {len(row) for row in rows_of(partition)} == {5}
