"""Compiles the kernels of rows at rest by working on a few made-up rows.

A driver calls this once, before its tasks begin: Python workers then find the kernels in the cache and load
them, where otherwise each would compile all of them by itself.
"""

from __future__ import annotations

import numpy as np

from processor.engine.extract.normalise import IdTextForm
from processor.engine.ids.new_ids import new_ids
from processor.engine.jit import COMPILES, are_kept, note_kept
from processor.engine.rest.columns import IdColumn, ids_of_columns
from processor.engine.rest.json_rows import JsonIds, JsonRows, fingerprints_of
from processor.engine.rest.judge import RestRows, judge_rows
from processor.engine.rest.partitioner import partitions_of
from processor.engine.rest.probe import LowProbe
from processor.engine.rest.row_texts import MemberColumn, json_of_columns

_MARK = "rest-is-warm"
"""File among the kernels, whose folder is named by the sources."""
_TEXT = b'{"a": 1, "b": null}{"a": 1, "b": 2}'


def rest_is_warm() -> bool:
    """Return whether the cache has all kernels of this version, or there is none to put them into."""
    return are_kept(_MARK)


def warm_rest() -> None:
    """Compile or load all kernels; about 20 s where none is in the cache, a moment where they are."""
    if not COMPILES:
        return
    _work()
    note_kept(_MARK)


def _work() -> None:
    secret, valid, offsets = bytes(16), np.ones(2, np.bool_), np.array([0, 19, len(_TEXT)])
    data = np.frombuffer(_TEXT, np.uint8)
    columns = [
        IdColumn.of_text(IdTextForm.STRING, valid, offsets, data),
        IdColumn.of_integers(valid, np.arange(2)),
        IdColumn.of_integers(valid, np.arange(2, dtype=np.uint64)),
    ]
    hashes = ids_of_columns(columns, secret).ids.hash
    rows = JsonRows.of(data, offsets)
    JsonIds(["/a", "/b"], secret, as_bytes=[0]).read(rows)
    found = rows.look_up("/a", "/b")
    rows.texts(found, 0)
    prints = JsonIds(["/a", "/b"], secret, exclude=("/b",)).read(rows).ids.fingerprint
    fingerprints_of(rows, ("/b",), secret)
    alike = np.zeros_like(hashes)
    for fingerprint in (prints[:0], prints):
        judged = RestRows(alike, fingerprint, np.arange(2), np.arange(2))
        judge_rows(judged, RestRows.none(), 1)
    LowProbe(np.sort(hashes[:, 0])).matches(np.zeros(1, np.int64))
    spans = offsets[:-1], np.diff(offsets)
    json_of_columns([MemberColumn.of(b'"a"', valid, spans, data, text=text) for text in (True, False)], 2)
    new_ids(secret, hashes, prints)
    partitions_of(columns[0], 2)
