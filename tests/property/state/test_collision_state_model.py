"""Variants of ids across commits, kills and restores against a naive dictionary of id to variants."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids.clock import NEVER
from processor.engine.verdict import Verdict
from processor.state.ids import exact_log, id_log
from tests.property.state.test_id_state_model import ENDS, Step, go_through
from tests.support.judges.id_state import AHEAD_MS, NOW_MS, Came, IdPartition
from tests.support.suite.examples import examples


class Variant:
    """A record that passed, with what it was remembered by."""

    def __init__(self, offset: int, value: bytes, reading: int) -> None:
        self.offset, self.value, self.reading = offset, value, reading


class VariantDictionary:
    """The contract, sentence by sentence: by id its variants, in the order in which they came."""

    def __init__(self, window_ms: int, *, refresh: bool, remembers: bool) -> None:
        self.window_ms, self.refresh, self.remembers = window_ms, refresh, remembers
        self.clock, self.ids = NEVER, dict[bytes, list[Variant]]()

    def judge(self, offset: int, came: Came, now_ms: int) -> tuple[Verdict, int, int]:
        assert came.key is not None
        self.clock = max(self.clock, min(came.timestamp, now_ms + AHEAD_MS))
        known = self.ids.setdefault(came.key, [])
        known[:] = [each for each in known if self.clock < each.reading + self.window_ms]
        for each in known:
            if each.value == came.value:
                each.reading = self.clock if self.refresh else each.reading
                return Verdict.DUPLICATE, each.offset, each.reading + self.window_ms
        earliest = known[0].offset if known else -1
        if not known or self.remembers:
            known.append(Variant(offset, came.value, self.clock))
        if earliest < 0:
            return Verdict.PASS, -1, 0
        return Verdict.COLLISION, earliest, self.clock + self.window_ms if self.remembers else 0

    def copy(self) -> VariantDictionary:
        """Return one that goes on by itself."""
        return deepcopy(self)


records = st.builds(
    Came,
    st.sampled_from([b"%d" % number for number in range(6)]),
    st.one_of(st.integers(NOW_MS - 40, NOW_MS + 40), st.integers(NOW_MS - 500, NOW_MS + 800)),
    st.sampled_from([b"%d" % number for number in range(4)]),
)
ends = st.sampled_from([*ENDS, "reset"])
steps = st.lists(
    st.builds(Step, st.lists(records, max_size=40), st.sampled_from([0, 1, 30, 400]), ends),
    max_size=14,
)


@examples(150)
@given(
    steps,
    st.sampled_from([1, 10, 100, 10_000]),
    st.booleans(),
    st.sampled_from(["pass", "drop"]),
    st.sampled_from([1, 100_000]),
)
def test_verdicts_owners_and_expiries_are_the_dictionarys_wherever_it_is_killed_and_restored(
    script: list[Step],
    window_ms: int,
    refresh: bool,  # noqa: FBT001 - hypothesis gives it by name
    on_collision: str,
    erased_ids: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_log, "ERASED_IDS", erased_ids)
        patch.setattr(id_log, "ENTRY_IDS", 1 + erased_ids // 1000)
        counted = {"fingerprint": {"of": "bytes"}, "on_collision": on_collision}
        partition = IdPartition(window=window_ms, refresh=refresh, **counted)
        model = VariantDictionary(window_ms, refresh=refresh, remembers=on_collision == "pass")
        go_through(script, partition, model)
