"""What a task writes of a history's sequences folds to the same as all of them."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.rest import IdColumn, IdTextForm
from spark_sink.backfill.sequences import ReadSequences, read_sequences
from tests.support.suite.examples import examples

ENDS = st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1])
NEAR = st.integers(-12, 12)


class Row(NamedTuple):
    """A row of a history."""

    partition: int
    scope: bytes
    epoch: int
    sequence: int


ROWS = st.lists(
    st.builds(Row, st.integers(0, 2), st.sampled_from([b"", b"a", b"\xff\x00"]), NEAR | ENDS, NEAR | ENDS),
    max_size=40,
)


def read(rows: list[Row], window: int, *, scoped: bool) -> ReadSequences:
    ends = np.cumsum([0, *(len(each.scope) for each in rows)])
    data = np.frombuffer(b"".join(each.scope for each in rows), np.uint8)
    scope = IdColumn.of_text(IdTextForm.BYTES, np.ones(len(rows), np.bool_), ends, data)
    sequence, epoch = (
        np.array([getattr(each, name) for each in rows], np.int64) for name in ("sequence", "epoch")
    )
    return ReadSequences(sequence, epoch, scope if scoped else None, np.zeros(len(rows), np.uint8), window)


def stored(folder: str, blocks: list[bytes]) -> list[Row]:
    """Return the rows of a file of some blocks."""
    path, found = Path(folder) / "part", []
    path.write_bytes(b"".join(blocks))
    for each in read_sequences([path]):
        begin = np.append(0, each.ends[:-1])
        for at in range(each.sequence.size):
            scope = each.data[begin[at] : each.ends[at]].tobytes()
            found.append(Row(int(each.partition[at]), scope, int(each.epoch[at]), int(each.sequence[at])))
    assert not path.exists()
    return found


def remembered(rows: list[Row], window: int) -> dict[tuple[int, bytes], tuple[int, int, set[int]]]:
    """Return what a worker remembers: per scope its epoch, its sequence, and the window's numbers."""
    scopes = defaultdict(list)
    for each in rows:
        scopes[each.partition, each.scope].append((each.epoch, each.sequence))
    known = {}
    for name, some in scopes.items():
        epoch, sequence = max(some)
        seen = {number for of, number in some if of == epoch and number >= sequence - window}
        known[name] = epoch, sequence, seen
    return known


@examples(150)
@given(rows=ROWS, window=st.sampled_from([0, 1, 5, 65_536]), scoped=st.booleans(), cut=st.integers(0, 40))
def test_what_is_left_out_of_a_history_changes_nothing_that_is_remembered(
    *, rows: list[Row], window: int, scoped: bool, cut: int
) -> None:
    rows = rows if scoped else [each._replace(scope=b"") for each in rows]
    partition = np.array([each.partition for each in rows], np.int64)
    all_of_it = read(rows, window, scoped=scoped)
    parts = np.arange(len(rows))[:cut], np.arange(len(rows))[cut:]

    with tempfile.TemporaryDirectory() as folder:
        apart = stored(folder, [all_of_it.encoded(some, partition) for some in parts])
        at_once = stored(folder, [all_of_it.encoded(np.arange(len(rows)), partition)])

    assert remembered(apart, window) == remembered(at_once, window) == remembered(rows, window)
    # Of one block nothing is written that is not remembered.
    assert len(at_once) == sum(len(seen) for *_, seen in remembered(rows, window).values())
