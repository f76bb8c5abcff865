"""The table of a slot's states: each is reached, the last one is final, nothing else may follow."""

from __future__ import annotations

import pytest

from processor.worker.slot_state import NEXT, SlotLife, SlotState

TRY = [SlotState.WAITING, SlotState.FENCING, SlotState.RESTORING, SlotState.WORKING]


def reached_from(state: SlotState) -> set[SlotState]:
    """Return all states that may come after one."""
    found: set[SlotState] = set()
    new = set(NEXT[state])
    while new:
        found |= new
        new = {after for each in new for after in NEXT[each]} - found
    return found


def test_every_state_is_in_the_table_and_is_reached() -> None:
    assert set(NEXT) == set(SlotState)
    assert reached_from(SlotState.ASSIGNED) == set(SlotState) - {SlotState.ASSIGNED}


@pytest.mark.parametrize("state", SlotState)
def test_each_state_but_the_last_leads_to_the_last(state: SlotState) -> None:
    assert (SlotState.CLOSED in reached_from(state)) == (state is not SlotState.CLOSED)


def test_nothing_goes_on_in_a_slot_that_is_given_up() -> None:
    assert reached_from(SlotState.CLOSING) == {SlotState.CLOSED}


@pytest.mark.parametrize("state", TRY)
def test_each_step_of_a_try_may_fail_and_may_be_given_up(state: SlotState) -> None:
    assert NEXT[state] >= {SlotState.DROPPING, SlotState.CLOSING}


def test_work_is_not_begun_without_fence_and_restore() -> None:
    assert [state for state in SlotState if SlotState.WORKING in NEXT[state]] == [SlotState.RESTORING]
    assert [state for state in SlotState if SlotState.RESTORING in NEXT[state]] == [SlotState.FENCING]


def test_a_transition_that_is_not_in_the_table_is_refused_and_changes_nothing() -> None:
    life = SlotLife("p-0")
    life.enter(SlotState.WAITING)

    with pytest.raises(RuntimeError, match="p-0: working cannot follow waiting"):
        life.enter(SlotState.WORKING)

    assert life.state is SlotState.WAITING
