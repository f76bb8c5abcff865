"""A row's id is sent where the worker sends the records that have it."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.parts import HeaderPart, ValuePart
from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.repartition import targets
from processor.engine.rest import IdTextForm, JsonIds, ids_of_columns, routed_partitions
from tests.property.engine.rest.test_row_ids import (
    SECRET,
    TEXT,
    integer_column,
    json_rows,
    records,
    text_column,
)

ROWS = st.lists(st.tuples(TEXT, st.integers(-(2**63), 2**63 - 1), TEXT), min_size=1, max_size=20)


@settings(deadline=None)
@given(rows=ROWS, partitions=st.integers(1, 70_000), escaped=st.booleans())
def test_columns_and_lines_go_where_the_records_of_their_ids_go(
    rows: list[tuple[str, int, str]], partitions: int, *, escaped: bool
) -> None:
    values = [json.dumps({"s": s, "n": n, "h": h}, ensure_ascii=escaped).encode() for s, n, h in rows]
    sent = records(values, [row[2].encode() for row in rows])
    router = IdExtractor([ValuePart("/s"), ValuePart("/n"), HeaderPart(b"h")], ROUTE_KEY)
    ids = router.extract(sent)
    expected = targets(ids, ids.fault, 0, partitions)[0].tolist()

    columns = [
        text_column(IdTextForm.STRING, [row[0].encode() for row in rows]),
        integer_column([row[1] for row in rows]),
        text_column(IdTextForm.BYTES, [row[2].encode() for row in rows]),
    ]
    table = ids_of_columns(columns, SECRET)
    lines = JsonIds(["/s", "/n", "/h"], SECRET, as_bytes=[2]).read(json_rows(values))

    for found in (table, lines):
        hashed = found.ids.hash.copy()
        assert routed_partitions(found, partitions).tolist() == expected
        assert np.array_equal(found.ids.hash, hashed), "by which they are told apart stays"
