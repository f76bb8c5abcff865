"""A slot's id says which partitions its owners wrote to, and whose they were with other slots."""

from __future__ import annotations

import pytest

from processor.kafka.transactions.fencing import SlotId

OURS = SlotId("app", "clicks", 1, 3)


@pytest.mark.parametrize("slots", [1, 2, 4, 7])
def test_who_wrote_a_partition_with_other_slots_is_the_one_slot_that_had_it(slots: int) -> None:
    for number in range(12):
        former = OURS.former(number, slots)
        assert former is not None
        assert (former.slots, former.transactional_id) == (slots, f"app-clicks-{former.slot}-of-{slots}")
        every = [SlotId("app", "clicks", slot, slots) for slot in range(slots)]
        assert [each for each in every if number in each.numbers(12)] == [former]


@pytest.mark.parametrize("slots", [3, 0])
def test_nobody_else_wrote_with_our_number_of_slots_or_with_one_that_is_not_known(slots: int) -> None:
    assert OURS.former(7, slots) is None
