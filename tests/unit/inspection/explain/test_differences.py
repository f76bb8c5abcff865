"""What differs between two records is named by pointers, in values that are nearly JSON too."""

from __future__ import annotations

import pytest

from processor.engine.extract.json_matches import AUTO, JsonRules
from processor.inspection.explain.owner import differences
from processor.inspection.explain.story import ShownRecord
from processor.wire.receipt_values import RecordRef

PREFIX = b"\0\0\0\0\x0c"


def shown(value: bytes) -> ShownRecord:
    return ShownRecord(RecordRef("raw", 0, 1), 1_000, b"k", value)


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        (b'{"a":1,"b":NaN}', b'{"a":2,"b":NaN}\0', ("/a",)),
        (b'{"a":NaN}', b'{"a":Infinity}', ("/a",)),
        (b'{"a":"\xe9","t":1}', b'{"a":"\xe8","t":1}', ("/a",)),
        (b'{"\xe9":1}', b'{"\xe9":2}', ("/\\udce9",)),
        (PREFIX + b'{"a":1}', b"\0\0\0\0\x0d" + b'{"a":2}', ("/a",)),
        (
            PREFIX + b'{"a":1}',
            b"\0\0\0\0\x0d" + b'{"a":1}',
            ("value (what stands before it, the order of its members, or its spaces)",),
        ),
        (b'{"a":1}', b'{"a": 1}', ("value (the order of its members, or its spaces)",)),
        (b'{"a":1}', b"{", ("value",)),
    ],
)
def test_what_differs_is_named(one: bytes, other: bytes, named: tuple[str, ...]) -> None:
    assert differences(shown(one), shown(other), JsonRules(lenient=True, framing=AUTO)) == named
