"""Records of one id are told apart by their fingerprints, before and after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.engine.ids.block import IdRows
from processor.engine.ids.collisions import Collisions
from processor.engine.verdict import Verdict
from processor.judges.exact import ExactIds
from processor.state.kv.store import MemoryStore
from tests.support.judges.id_state import NOW_MS, Came, IdPartition

if TYPE_CHECKING:
    from processor.engine.receipts import IdGrounds

WINDOW_MS = 100
PASS, DUPLICATE, COLLISION = Verdict.PASS, Verdict.DUPLICATE, Verdict.COLLISION


def partition(on_collision: str = "pass", **keys: Any) -> IdPartition:
    """Return one that tells values apart by their bytes."""
    counted = {"fingerprint": {"of": "bytes"}, "on_collision": on_collision}
    return IdPartition(window=WINDOW_MS, **counted, **keys)


def came(content: bytes, later_ms: int = 0) -> Came:
    """Return a record of the only id."""
    return Came(b"id", NOW_MS + later_ms, content)


def verdicts(judged: IdGrounds) -> list[int]:
    return [int(each) for each in judged.verdict]


def owners(judged: IdGrounds) -> list[int]:
    return [int(each) for each in judged.owner]


def test_a_copy_of_a_variant_is_owned_by_the_first_of_its_content() -> None:
    judged = partition().take([came(b"1"), came(b"2"), came(b"3"), came(b"2"), came(b"3"), came(b"1")])
    assert verdicts(judged) == [PASS, COLLISION, COLLISION, DUPLICATE, DUPLICATE, DUPLICATE]
    assert owners(judged) == [-1, 0, 0, 1, 2, 0]


@pytest.mark.parametrize("on_collision", ["drop", "quarantine"])
def test_what_is_not_in_the_sink_is_not_remembered(on_collision: str) -> None:
    judged = partition(on_collision).take([came(b"1"), came(b"2"), came(b"2", 60), came(b"1")])
    assert verdicts(judged) == [PASS, COLLISION, COLLISION, DUPLICATE]
    assert judged.expires_ms.tolist() == [0, 0, 0, NOW_MS + WINDOW_MS]


def test_a_variant_expires_for_itself() -> None:
    at_work = partition()
    judged = at_work.take([came(b"1"), came(b"2", 60), came(b"1", 100), came(b"2", 159), came(b"2", 160)])
    assert verdicts(judged) == [PASS, COLLISION, COLLISION, DUPLICATE, COLLISION]
    assert owners(judged) == [-1, 0, 1, 1, 2]


def test_an_id_that_has_expired_passes_with_other_content_and_is_known_by_that() -> None:
    judged = partition().take([came(b"1"), came(b"2", 100), came(b"2", 101), came(b"1", 102)])
    assert verdicts(judged) == [PASS, PASS, DUPLICATE, COLLISION]
    assert owners(judged) == [-1, -1, 1, 1]


def test_refresh_renews_the_variant_with_the_equal_fingerprint_alone() -> None:
    at_work = partition(refresh=True)
    judged = at_work.take([came(b"1"), came(b"2"), came(b"2", 60), came(b"3", 100), came(b"2", 159)])
    assert verdicts(judged) == [PASS, COLLISION, DUPLICATE, COLLISION, DUPLICATE]
    assert owners(judged) == [-1, 0, 1, 1, 1]


@pytest.mark.parametrize("locally", [True, False], ids=["local state", "changelog alone"])
def test_a_restart_finds_every_variant_and_which_is_the_earliest(*, locally: bool) -> None:
    at_work = partition(refresh=True)
    at_work.take([came(b"1"), came(b"2"), came(b"3", 10)])
    at_work.commit()
    at_work.take([came(b"2", 50), came(b"1", 60)])
    at_work.commit()
    at_work.open(None if locally else MemoryStore())
    judged = at_work.take([came(b"3", 105), came(b"2", 106), came(b"4", 107)])
    assert verdicts(judged) == [DUPLICATE, DUPLICATE, COLLISION]
    assert owners(judged) == [2, 1, 0]


def test_what_is_undone_was_never_remembered_nor_renewed() -> None:
    at_work = partition(refresh=True)
    at_work.take([came(b"1"), came(b"2")])
    at_work.commit()
    assert isinstance(at_work.judge, ExactIds)
    at_work.take([came(b"2", 60), came(b"3", 60)])
    at_work.judge.undo()
    judged = at_work.take([came(b"3", 90), came(b"2", 101)])
    assert verdicts(judged) == [COLLISION, COLLISION]


def test_a_note_shows_the_fingerprints_of_the_record_and_of_its_owner() -> None:
    judged = partition().take([came(b"1"), came(b"2", 60), came(b"3", 70), came(b"4", 100)])
    prints = [f"{each:016x}" for each in judged.ids.fingerprint.tolist()]
    assert len(set(prints)) == 4
    assert judged.notes is not None
    rows = (judged.verdict == COLLISION).nonzero()[0]
    said = [each.decode() for each in judged.notes.written(judged.ids.fingerprint, rows)]
    assert said == [
        f',"fingerprint":"{prints[own]}","owner_fingerprint":"{prints[owner]}","action":"pass"'
        for own, owner in ((1, 0), (2, 0), (3, 1))
    ]


def test_variants_that_expire_are_given_back_however_many_records_collide() -> None:
    variants = Collisions(WINDOW_MS)
    number, each, living = 1, 50, WINDOW_MS // 10 * 10 * 50
    for commit in range(300):
        for _ in range(10):
            hashes = np.tile(np.arange(number, number + each, dtype=np.uint64)[:, None], 2)
            owner = np.arange(number, number + each)
            told = np.arange(each, dtype=np.uint64), np.ones(each, np.bool_)
            variants.restore(
                IdRows(number, hashes, owner, np.full(each, 10 * commit), np.full(each, -1), *told)
            )
            variants.prints(told[0], told[1])  # which makes room, as each piece does
            number += each
        variants.commit(10 * commit)
        assert len(variants) <= 4 * living
    assert len(variants) >= living // 2
