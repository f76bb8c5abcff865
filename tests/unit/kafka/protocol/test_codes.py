"""Does each error code lead to one reaction, with a hint where a worker stops for it?"""

from __future__ import annotations

import pytest

from processor.kafka.protocol.codes import KafkaCode, Reaction, Request, hint, reaction


@pytest.mark.parametrize("asked", Request)
def test_what_stops_a_worker_says_what_to_do(asked: Request) -> None:
    stops = {code for code in KafkaCode if reaction(asked, code) is Reaction.STOP}
    assert all(hint(asked, code) for code in stops)
    assert bool(stops) == (asked in {Request.PRODUCE, Request.TRANSACTION})


def test_a_code_that_nobody_knows_never_stops_a_worker_nor_lets_it_go_on() -> None:
    assert {asked: reaction(asked, 9_999) for asked in Request} == {
        Request.FETCH: Reaction.RETRY,
        Request.PRODUCE: Reaction.REBUILD,
        Request.TRANSACTION: Reaction.REBUILD,
        Request.GROUP_OFFSETS: Reaction.REBUILD,
    }


@pytest.mark.parametrize("code", [KafkaCode.PRODUCER_FENCED, KafkaCode.INVALID_PRODUCER_EPOCH])
def test_who_is_fenced_leaves_all_to_the_next_owner(code: KafkaCode) -> None:
    assert {reaction(asked, code) for asked in (Request.PRODUCE, Request.TRANSACTION)} == {Reaction.FENCED}
