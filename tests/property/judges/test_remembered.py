"""Is what a look-up says of an id what is committed, at any point, and does asking change nothing?"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.parts import ContentPart, HeaderPart, KeyPart, ValuePart
from processor.engine.verdict import Verdict
from processor.inspection.timeline.held import ChangelogSearch, HeldQuestion
from processor.judges.asked_id import asked_ids, hash_of
from processor.wire.encode import plain_batch
from schemas.config import Pipeline
from tests.support.judges.id_state import NOW_MS, Came, IdPartition
from tests.support.judges.scopes import columns_of
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.extract.parts import Part

WINDOW_MS = 40
IDS = [b"%d" % number for number in range(6)]
ASKED = [asked_ids([KeyPart()], [each.decode()])[0] for each in IDS]


class NaiveIds:
    """Owner and reading of each id, as staged and as committed."""

    def __init__(self, *, refresh: bool) -> None:
        self._refresh = refresh
        self._clock = -1
        self._staged: dict[bytes, tuple[int, int]] = {}
        self._offset = 0
        self.committed: dict[bytes, tuple[int, int]] = {}
        self.clock = -1

    def take(self, some: Sequence[Came]) -> list[bool]:
        """Judge records; returns which are duplicates."""
        dropped = []
        for each in some:
            assert each.key is not None
            self._clock = max(self._clock, each.timestamp)
            owner, reading = self._staged.get(each.key, (0, -WINDOW_MS - 1))
            known = reading + WINDOW_MS > self._clock
            if not known:
                self._staged[each.key] = self._offset, self._clock
            elif self._refresh:
                self._staged[each.key] = owner, self._clock
            dropped.append(known)
            self._offset += 1
        return dropped

    def commit(self) -> None:
        self.committed, self.clock = dict(self._staged), self._clock

    def remembered(self) -> list[list[tuple[int, int]]]:
        """Return of each of `IDS` what is committed and inside the window."""
        found = [self.committed.get(each) for each in IDS]
        return [[each] if each is not None and each[1] + WINDOW_MS > self.clock else [] for each in found]


RECORDS = st.lists(st.tuples(st.sampled_from(IDS), st.integers(0, 12)), min_size=1, max_size=8)


@pytest.mark.parametrize("refresh", [False, True])
@examples(25)
@given(commits=st.lists(st.lists(RECORDS, min_size=1, max_size=3), min_size=1, max_size=6), data=st.data())
def test_what_is_remembered_is_what_is_committed(
    *, refresh: bool, commits: list[list[list[tuple[bytes, int]]]], data: Any
) -> None:
    at_work = IdPartition(window=WINDOW_MS, refresh=refresh)
    naive, now = NaiveIds(refresh=refresh), NOW_MS

    def said() -> list[list[tuple[int | None, int | None]]]:
        return [[(each.owner, each.reading_ms) for each in found] for found in at_work.judge.remembered(ASKED)]

    def read_again() -> list[list[tuple[int, int | None]]]:
        secret = at_work.judge.log.secret
        assert secret is not None
        found = []
        for asked in ASKED:
            search = ChangelogSearch(HeldQuestion(pipeline_of(at_work), (asked,)), secret)
            for row in at_work.changelog.rows:
                if row is not None:
                    search.take(*row)
            held = search.result(0)
            assert held.clock_ms == at_work.judge.clock_ms
            found.append([(each.owner.offset, each.reading_ms) for each in held.records if each.owner])
        return found

    for chunks in commits:
        for chunk in chunks:
            some = []
            for key, step in chunk:
                now += step
                some.append(Came(key, now))
            at_work.now_ms = now
            grounds = at_work.take(some)
            assert (grounds.verdict == Verdict.DUPLICATE).tolist() == naive.take(some)
            assert said() == naive.remembered(), "before the commit"
        at_work.commit()
        naive.commit()
        assert said() == naive.remembered(), "after it"
        assert read_again() == naive.remembered(), "by the changelog alone"
        if data.draw(st.booleans()):
            at_work.open()
            assert said() == naive.remembered(), "after a restart"


def test_of_ids_that_collided_all_records_inside_the_window_are_remembered() -> None:
    at_work = IdPartition(window=WINDOW_MS, fingerprint={"of": "bytes"}, on_collision="pass", refresh=True)
    at_work.take([Came(b"1", NOW_MS, b"a"), Came(b"1", NOW_MS + 10, b"b")])
    at_work.commit()
    at_work.take([Came(b"1", NOW_MS + 20, b"b"), Came(b"1", NOW_MS + 20, b"c")])

    (one,) = at_work.judge.remembered(ASKED[1:2])
    assert [tuple(each) for each in one] == [(0, NOW_MS), (1, NOW_MS + 10)]
    at_work.commit()

    (one,) = at_work.judge.remembered(ASKED[1:2])
    assert [tuple(each) for each in one] == [(0, NOW_MS), (1, NOW_MS + 20), (3, NOW_MS + 20)]


def pipeline_of(at_work: IdPartition) -> Pipeline:
    return Pipeline.model_construct(name="p", source="raw", sink="clean", dedup=at_work.dedup)


WORDS = st.one_of(st.text(max_size=20), st.integers().map(str), st.floats(allow_nan=False).map(repr))


@examples(60)
@given(
    name=st.binary(max_size=20),
    key=st.text(max_size=20),
    field=WORDS,
    secret=st.binary(min_size=16, max_size=16),
)
def test_an_id_that_is_written_hashes_as_a_record_that_has_it(
    name: bytes, key: str, field: str, secret: bytes
) -> None:
    parts: list[Part] = [HeaderPart(b"h"), KeyPart(), ValuePart("/a")]
    extractor = IdExtractor(parts, secret)
    as_text = json.dumps(field).encode()
    rows = [(key.encode(), b'{"a": %s}' % as_text, 0, ((b"h", name),))]
    words = [f"base64:{base64.b64encode(name).decode()}", f"text:{key}", f"text:{field}"]
    (string,) = asked_ids(parts, words)
    assert hash_of(string, secret).tolist() == extractor.extract(columns_of(plain_batch(rows))[0]).hash.tolist()

    found = asked_ids(parts, [*words[:2], field])
    if found[-1][2].kind == "number":
        rows = [(key.encode(), b'{"a": %s}' % field.encode(), 0, ((b"h", name),))]
        number = extractor.extract(columns_of(plain_batch(rows))[0])
        assert not number.fault.any()
        assert hash_of(found[-1], secret).tolist() == number.hash.tolist()
        assert len(found) == 2


def test_a_content_is_asked_for_as_receipts_show_it() -> None:
    parts: list[Part] = [ContentPart()]
    secret = bytes(range(16))
    ids = IdExtractor(parts, secret).extract(columns_of(plain_batch([(None, b'{"a": 1}', 0, ())]))[0])

    (asked,) = asked_ids(parts, [f"content:{ids.content[0].astype('<u8').tobytes().hex()}"])

    assert hash_of(asked, secret).tolist() == ids.hash.tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a"], "have 2 parts, and 1 were given"),
        (["base64:!", "a"], "no base64"),
        (["a", "json:{"], "no JSON"),
        (["a", "json:null"], "neither a JSON string nor a number nor a boolean"),
        (["a", '"cut\\"'], "no JSON"),
    ],
)
def test_what_means_no_id_is_said(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        asked_ids([KeyPart(), ValuePart("/a")], words)
