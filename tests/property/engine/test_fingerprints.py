"""Records are told apart by what counts of them, and faults are told in order, as the naive model has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from processor.engine.verdict import Fault
from processor.judges.ids import make_id_extractor
from schemas.config import InsertIdDedup
from tests.property.engine.test_content import POINTERS, SECRET, VALUES, written
from tests.support.judges.fingerprints import FingerprintRules, fingerprint_of
from tests.support.judges.id_rules import id_of
from tests.support.kafka.topics import Record
from tests.support.suite.examples import examples
from tests.support.wire import batches

if TYPE_CHECKING:
    from processor.engine.extract.ids import Ids

HEADERS = st.lists(
    st.tuples(st.sampled_from(["id", "type", "t"]), st.sampled_from([None, b"", b"a", b"b", b"ab"])), max_size=4
)
PARTS = st.sampled_from(
    [
        ({"from": "header", "name": "id"},),
        ({"from": "key"},),
        ({"from": "value", "pointer": "/a"}, {"from": "header", "name": "id"}),
        ({"from": "header", "name": "id"}, {"from": "value", "pointer": "/a"}, {"from": "key"}),
    ]
)
CONTENTS = st.one_of(st.none(), st.sampled_from([b"", b"{", b"{}"]), VALUES.flatmap(written).map(str.encode))
RECORDS = st.builds(
    lambda key, value, headers: Record(0, 0, key, value, tuple(headers), 1_000, True),
    st.sampled_from([None, b"", b"k"]),
    CONTENTS,
    HEADERS,
)


@st.composite
def definitions(draw: st.DrawFn) -> FingerprintRules:
    """Return any definition with a fingerprint."""
    of = draw(st.sampled_from(["value", "bytes"]))
    exclude = draw(POINTERS) if of == "value" else []
    headers = draw(st.lists(st.sampled_from(["type", "t"]), unique=True))
    parts = draw(PARTS)
    renamed = any(part.get("pointer") == "/a" for part in parts) and draw(st.booleans())
    return FingerprintRules(
        parts,
        on_missing=draw(st.sampled_from(["quarantine", "pass"])),
        fingerprint={"of": of, "exclude": exclude, "headers": headers},
        on_collision="rename" if renamed else "pass",
        rename={"to": "/a"} if renamed else None,
    )


def extracted(rules: FingerprintRules, records: list[Record]) -> Ids:
    """Return what the engine reads."""
    made = [batches.on_wire(each)._replace(offset=number) for number, each in enumerate(records)]
    (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand(made)))
    return make_id_extractor(InsertIdDedup.model_validate(rules.dedup), SECRET).extract(piece.columns)


@examples(150)
@given(definitions(), st.lists(RECORDS, min_size=1, max_size=8))
def test_ids_fingerprints_and_faults_are_those_of_the_naive_model(
    rules: FingerprintRules, records: list[Record]
) -> None:
    ids = extracted(rules, records)
    judged: list[int] = []
    for row, record in enumerate(records):
        model = rules.model()
        first, again = (model.judge(record).verdict for _ in range(2))
        assert (Fault(int(ids.fault[row])).code if ids.fault[row] else "pass") == first, record
        assert ids.unjudged[row] == (first == again == "pass")
        if again == "duplicate":
            judged.append(row)
    for one in judged:
        for other in judged:
            pair = records[one], records[other]
            same_content = fingerprint_of(pair[0], rules.fingerprint) == fingerprint_of(
                pair[1], rules.fingerprint
            )
            assert (ids.fingerprint[one] == ids.fingerprint[other]) == same_content, pair
            same_id = id_of(pair[0], rules) == id_of(pair[1], rules)
            assert bool((ids.hash[one] == ids.hash[other]).all()) == same_id, pair
