"""What is known of a partition that begins with a backfill: a reset does not drop a history unasked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import StopError
from processor.judges.exact import ExactIds
from processor.kafka.offsets import Bounds
from processor.reset.decide import PartitionFacts, ResetState, decide
from processor.reset.facts import learn
from processor.reset.state import make_state
from processor.state.changelog import read_secret
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.ids import IDS_KEY, IdState
from schemas.changelog.position import Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from tests.support.judges.id_state import ListedChangelog
from tests.support.kafka.log import LogClient
from tests.support.kafka.reset_context import reset_context
from tests.support.wire.batches import Record, by_hand

if TYPE_CHECKING:
    from processor.reset.context import ResetContext
    from tests.support.judges.id_state import Row

SEQUENCES = {"mode": "watermark", "sequence": {"from": "value", "pointer": "/n"}}
IDS = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"}
LIMITS = Bounds(0, 9, 9)
BEGUN: Row = (ORIGIN_KEY, Origin(4, 0, backfill="march").encode())
HALF: Row = (BACKFILL_KEY, BackfillProgress("march", bytes(16), 3, 1).encode())
MINE, OTHERS = bytes(range(16)), bytes(16)
CORRUPT: Row = (IDS_KEY, b"\2 not whole")


def ids_state(secret: bytes) -> Row:
    return IDS_KEY, IdState(secret, 1, 2, 1).encode()


def learned(rows: list[Row], dedup: dict[str, Any], to: int) -> tuple[ResetContext, PartitionFacts]:
    """Return what is learned of a partition with such a changelog, a record a batch."""
    client = LogClient([by_hand([Record(at, 1000, *row, ())]) for at, row in enumerate(rows)])
    context = reset_context(client, dedup)
    return context, asyncio.run(learn(context, None, LIMITS, 0, to, has_offset=False))


@pytest.mark.parametrize("dedup", [SEQUENCES, IDS], ids=["sequences", "ids"])
@pytest.mark.parametrize("to", [0, 4, 9])
def test_a_backfill_that_is_not_loaded_to_its_end_is_given_up_only_if_asked(
    dedup: dict[str, Any], to: int
) -> None:
    context, facts = learned([BEGUN, HALF], dedup, to)
    with pytest.raises(StopError, match=r"backfill march is not loaded to its end: load it again.* --forget"):
        decide(0, facts, to, context.definition, forget=False)
    assert decide(0, facts, to, context.definition, forget=True).state is ResetState.EMPTY


def test_where_the_state_of_ids_is_corrupt_the_origin_names_the_backfill() -> None:
    position = Position(6, 0, 1, reset_context(None, IDS).definition, bytes(16), 4).encode()
    context, facts = learned([BEGUN, CORRUPT, (POSITION_KEY, position)], IDS, 5)
    with pytest.raises(StopError, match="the state began with backfill march"):
        decide(0, facts, 5, context.definition, forget=False)


@pytest.mark.parametrize(
    ("rows", "secret"),
    [
        ([], None),
        ([CORRUPT], None),
        ([ids_state(OTHERS), ids_state(MINE)], MINE),
        ([ids_state(MINE), CORRUPT], MINE),
        ([CORRUPT, ids_state(MINE)], MINE),
    ],
    ids=["nothing", "nothing that is whole", "the last", "in front", "behind"],
)
def test_the_key_of_the_hash_is_the_last_that_can_be_read_whatever_is_corrupt(
    rows: list[Row], secret: bytes | None
) -> None:
    changelog = ListedChangelog()
    changelog.commit(rows)
    assert asyncio.run(read_secret(changelog)) == secret


def test_a_state_that_is_made_again_hashes_by_the_key_of_the_one_before() -> None:
    begun = ORIGIN_KEY, Origin(0, 0).encode()
    position = POSITION_KEY, Position(6, 0, 1, reset_context(None, IDS).definition, bytes(16), 4).encode()
    context, facts = learned([begun, ids_state(MINE), position], IDS, 0)
    step = decide(0, facts, 0, context.definition, forget=False)
    made = asyncio.run(make_state(context, step, facts, lambda _: None))
    assert isinstance(made.judge, ExactIds)
    assert made.judge.log.secret == MINE
