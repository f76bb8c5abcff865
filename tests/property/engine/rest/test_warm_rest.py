"""After the warm-up no kernel compiles for rows at rest, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from processor.engine.rest import (
    IdTextForm,
    JsonIds,
    LowProbe,
    MemberColumn,
    RestRows,
    ids_of_columns,
    json_of_columns,
    judge_rows,
    new_ids,
    partitions_of,
    warm_rest,
)
from tests.property.engine.rest.test_row_ids import SECRET, integer_column, json_rows, text_column
from tests.unit.pipeline.test_warm import kernels


def worked() -> set[str]:
    """Warm up, do the work of every kind of rows, and return the kernels that were compiled for it."""
    warm_rest()
    before = kernels()
    texts = text_column(IdTextForm.STRING, [b"a", None]), text_column(IdTextForm.BYTES, [b"a", None], b"before")
    numbers = integer_column([1, None], np.int8), integer_column([1, None], np.uint64)
    hashes = [ids_of_columns([each], SECRET).ids.hash for each in (*texts, *numbers)]
    rows = json_rows([b'{"a":"b"}', b'{"a":null}'])
    some = [JsonIds(["/a"], SECRET, exclude=exclude).read(rows).ids for exclude in (None, (), ("/b", "/c/d"))]
    rows.texts(rows.look_up("/a"), 0)
    JsonIds(["/a"], SECRET, as_bytes=[0]).read(rows)
    for fingerprint in (some[0].fingerprint, some[1].fingerprint):
        new = RestRows(np.zeros((2, 2), np.uint64), fingerprint, np.arange(2), np.arange(2))
        judge_rows(new, new, 1, keep_collisions=False)
    LowProbe(np.sort(hashes[0][:, 0])).matches(hashes[0][:, 0])
    data = np.frombuffer(bytes(80), np.uint8)
    spans = np.zeros(2, np.int32), np.ones(2, np.int32)
    json_of_columns(
        [MemberColumn.of(b'"a"', texts[0].valid, spans, data, text=each) for each in (True, False)], 2
    )
    new_ids(SECRET, some[1].hash, some[1].fingerprint)
    partitions_of(texts[1], 7)
    return {name for name, count in kernels().items() if count > before[name]}


def test_rows_at_rest_compile_nothing_once_their_kernels_are_warm() -> None:
    program = f"import sys, {__name__} as test; sys.stdout.write(repr(test.worked()))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "set()"
