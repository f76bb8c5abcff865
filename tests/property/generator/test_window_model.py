"""Is the truth about ids what the naive model says, whatever comes: any clock, content and fault?"""

from __future__ import annotations

import json
from itertools import accumulate, count, islice
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.generator.window import WindowRows, judge
from schemas.config import InsertIdDedup
from tests.support.judges.fingerprints import LET_IN, FingerprintModel, FingerprintRules
from tests.support.judges.id_rules import IdModel, IdRules
from tests.support.kafka.topics import Record
from tests.support.suite.examples import examples

NOW_MS = 1_000_000


class Came(NamedTuple):
    """A record: its id, its content, how much the stream goes on before it, how late it is, what is wrong."""

    name: int
    content: int
    later_ms: int
    late_ms: int
    bad: bool
    unjudged: bool

    def record(self, offset: int, time: int) -> Record:
        """Return one of which the model reads the same."""
        value = b"no JSON" if self.bad else json.dumps({} if self.unjudged else {"id": str(self.name)}).encode()
        headers = (("content", b"%d" % self.content),)
        return Record(0, offset, None, value, headers, time, create_time=True)


# Both sides of a window of 1 s and of what is believed, 2 s ahead of now.
later = st.sampled_from([0, 0, 1, 300, 499, 500, 999, 1_000, 1_001, 2_000])
late = st.sampled_from([0, 0, 0, 0, 1, 500, 1_000, 3_000, -2_001, -(2**61)])
seldom = st.sampled_from([False] * 7 + [True])
streams = st.lists(
    st.builds(Came, st.integers(0, 2), st.integers(0, 2), later, late, seldom, seldom), min_size=1, max_size=60
)
begins = st.sampled_from([-5_000, NOW_MS - 20_000, NOW_MS - 20_000, NOW_MS - 1_000])


@pytest.mark.parametrize("on_collision", [None, "pass", "drop", "quarantine"])
@examples(300)
@given(
    streams,
    begins,
    st.booleans(),
    st.sampled_from(["record", "record", "arrival"]),
    st.sampled_from([3, 20_000]),
)
def test_verdicts_owners_and_expiry_are_the_naive_models(
    on_collision: str | None,
    some: list[Came],
    begin_ms: int,
    refresh: bool,  # noqa: FBT001 - drawn by hypothesis
    time: str,
    at_once: int,
) -> None:
    prints = {} if on_collision is None else {"fingerprint": PRINTS, "on_collision": on_collision}
    dedup = InsertIdDedup.model_validate({**DEDUP, "refresh": refresh, "time": time, **prints})
    model = IdModel(IdRules.of(dedup), lambda: NOW_MS)
    if on_collision is not None:
        model = FingerprintModel(FingerprintRules.of(dedup), lambda: NOW_MS)
    at_ms = accumulate((each.later_ms for each in some), initial=begin_ms)
    times_ms = [at - each.late_ms for at, each in zip(islice(at_ms, 1, None), some, strict=True)]
    said = model.judge_all(map(Came.record, some, count(), times_ms))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("processor.generator.window._AT_ONCE", at_once)
        found = judge(dedup, rows_of(some, times_ms, contents=on_collision is not None), NOW_MS)
    passing = {"pass", "collision"} if on_collision in LET_IN else {"pass"}
    assert found.passes.tolist() == [each.verdict in passing for each in said]
    assert found.collision.tolist() == [each.verdict == "collision" for each in said]
    assert found.quarantined.tolist() == (found.collision & (on_collision == "quarantine")).tolist()
    assert found.owner.tolist() == [each.owner for each in said]
    assert found.expires_ms.tolist() == [each.expires_ms for each in said]


DEDUP: dict[str, Any] = {
    "mode": "insert-id",
    "id": [{"from": "value", "pointer": "/id"}],
    "window": "1s",
    "max_ahead": "2s",
    "on_missing": "pass",
}
PRINTS = {"of": "bytes", "headers": ["content"]}


def rows_of(some: list[Came], times_ms: list[int], *, contents: bool) -> WindowRows:
    names = np.array([each.name for each in some], np.int32)
    several = np.array([3 * each.name + each.content for each in some], np.int32)
    bad = np.array([each.bad for each in some])
    unjudged = np.array([each.unjudged and not each.bad for each in some])
    return WindowRows(names, several if contents else names, np.array(times_ms), bad, unjudged)
