"""What a worker did is proved from what its commits say of the clock, whatever its clock did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from processor.state.ids import id_log
from processor.state.kv.store import MemoryStore
from processor.verify.unproved import KnownClock
from tests.support.judges.id_rules import IdRules
from tests.support.judges.id_state import NOW_MS, Came, IdPartition
from tests.support.kafka.topics import New
from tests.support.verify.compared import compared, renumber
from tests.support.verify.id_corruptions import id_pipeline, id_topics

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from tests.support.kafka.topics import Record
    from tests.support.verify.compared import Topics

WINDOW_MS = AHEAD_MS = 1_000
NAMES = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"d"]), st.binary(min_size=2, max_size=2))
CAME = st.tuples(NAMES, st.integers(-2_500, 4_000))
PIECES = st.lists(
    st.tuples(
        st.integers(-200, 900),  # what the worker's clock moves by before it
        st.lists(CAME, min_size=1, max_size=6),
        st.sampled_from(["", "commit", "restart", "lose the disk", "trim"]),
    ),
    min_size=1,
    max_size=14,
)
Pieces = list[tuple[int, list[tuple[bytes | None, int]], str]]


class Story:
    """A stream that a worker has taken in, and what must have become of it.

    Args:
        pieces: What came, and what the worker did behind it.
        rules: Of judging.
    """

    def __init__(self, pieces: Pieces, rules: IdRules) -> None:
        self._rules = rules
        self._partition = IdPartition(
            window=WINDOW_MS, max_ahead=AHEAD_MS, time=rules.time, refresh=rules.refresh
        )
        now_ms = NOW_MS
        stream: list[New] = []
        nows: list[int] = []
        for place, (moved, came, then) in enumerate(pieces):
            now_ms += moved
            some = [Came(name, NOW_MS + at_ms) for name, at_ms in came]
            self._partition.now_ms = now_ms
            self._partition.take(some)
            stream += [New(each.key, b"%d" % place, (), each.timestamp) for each in some]
            nows += [now_ms] * len([each for each in some if each.key is not None])
            self._then(then)
        self._partition.commit()
        # The naive model asks for the time at each record that it can judge.
        self.topics: Topics = id_topics(stream, rules, iter(nows).__next__)

    def _then(self, what: str) -> None:
        if not what:
            return
        self._partition.commit()
        if what == "trim":
            self._partition.trim()
        if what == "restart":
            self._partition.open()
        if what == "lose the disk":
            self._partition.open(MemoryStore())

    def compared(self, piece: int) -> tuple[VerifyReport, bool]:
        """Compare; also, whether the clock is known from the beginning."""
        noted = self._partition.recording()
        assert noted.known_from is not None
        assert noted.position == len(self.topics.source)
        known = None if noted.known_from == 0 else KnownClock(noted.known_from, noted.before_ms)
        pipeline = id_pipeline(self._rules)
        return compared(self.topics, piece, pipeline=pipeline, clock=noted.clock, known=known), known is None


def rules_of(time: str, *, refresh: bool) -> IdRules:
    return IdRules(({"from": "key"},), "1s", time, "1s", refresh)


@pytest.fixture(autouse=True, scope="module")
def _few_places() -> object:
    """Let each commit have a place of its own, so that what is expired is deleted at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_log, "ENTRY_IDS", 1)
        yield


@given(
    pieces=PIECES, time=st.sampled_from(["record", "arrival"]), refresh=st.booleans(), piece=st.integers(1, 9)
)
@settings(deadline=None)
def test_what_a_worker_did_is_proved(pieces: Pieces, time: str, refresh: bool, piece: int) -> None:  # noqa: FBT001
    story = Story(pieces, rules_of(time, refresh=refresh))
    report, known = story.compared(piece)
    # With refresh what is not known for ever is refused before.
    assume(known or not refresh)
    assert report.ok, report.violations
    assert report.source == report.sink + report.duplicates + report.quarantine
    assert not (known and report.unproved)


@given(
    pieces=PIECES,
    time=st.sampled_from(["record", "arrival"]),
    which=st.sampled_from(["sink", "duplicates", "quarantine"]),
    piece=st.integers(1, 9),
    data=st.data(),
)
@settings(deadline=None)
def test_no_record_that_is_taken_away_goes_unseen(
    pieces: Pieces, time: str, which: str, piece: int, data: st.DataObject
) -> None:
    story = Story(pieces, rules_of(time, refresh=False))
    records: list[Record] = getattr(story.topics, which)
    assume(records)
    records.pop(data.draw(st.integers(0, len(records) - 1), "which"))
    renumber(records)

    report, _ = story.compared(piece)

    assert not report.ok
    assert report.source > report.sink + report.duplicates + report.quarantine
