"""The rows of a table whose low words are among the new ones are found, all of them and no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.rest import LowProbe

# Near each other, at both ends, and anywhere: even ones are the rule, others are found all the same.
WORDS = st.one_of(
    st.integers(0, 40),
    st.integers(2**64 - 40, 2**64 - 1),
    st.integers(2**63 - 3, 2**63 + 3),
    st.integers(0, 2**64 - 1),
)


@given(st.sets(WORDS, max_size=60), st.lists(WORDS, max_size=60), st.data())
def test_rows_match_whose_low_word_is_new(new: set[int], table: list[int], data: st.DataObject) -> None:
    if new:
        table += data.draw(st.lists(st.sampled_from(sorted(new)), max_size=5))
    rows = np.array(table, np.uint64)
    found = LowProbe(np.array(sorted(new), np.uint64)).matches(rows.view(np.int64))
    assert found.tolist() == [row for row, word in enumerate(table) if word in new]


def test_memory_goes_by_the_new_ids_and_buffers_may_be_read_only() -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 300_000, np.uint64)
    new = np.sort(words[:100_000])
    new.flags.writeable = words.flags.writeable = False
    probe = LowProbe(new)
    assert probe.matches(words).tolist() == list(range(100_000))
    assert len(probe) == 100_000
    assert probe.size_bytes <= 24 * len(probe)


@pytest.mark.parametrize("words", [[2, 1], [1, 1]])
def test_words_that_are_not_sorted_or_come_twice_are_refused(words: list[int]) -> None:
    with pytest.raises(ValueError, match="sorted"):
        LowProbe(np.array(words, np.uint64))
