"""What is wrong with the ids in the local state or in the changelog is found, and never judged by."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

import pytest

from processor.engine.ids.block import decode_pages
from processor.engine.verdict import Verdict
from processor.errors import RebuildError, StopError
from processor.state.changelog import read_head
from processor.state.ids import exact_log, id_log
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from schemas.changelog.ids import (
    ID_BLOCK_KIND,
    ID_PAGE_KIND,
    IDS_KEY,
    ORIGIN_COPY_KEY,
    IdState,
    id_block_key,
    id_page_key,
    page_number,
)
from schemas.changelog.position import Origin
from schemas.changelog.values import LOCAL_KEY, CorruptStateError
from tests.support.judges.id_state import NOW_MS, ORIGIN, Came, IdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_MS = 3_600_000
EACH = 400
"""Ids of a commit: three pages."""


def ids(start: int, stop: int, timestamp: int = NOW_MS) -> list[Came]:
    return [Came(b"id-%d" % number, timestamp) for number in range(start, stop)]


def verdicts(partition: IdPartition, some: list[Came]) -> set[int]:
    return set(partition.take(some).verdict.tolist())


def filled(commits: int = 5, window_ms: int = HOUR_MS) -> IdPartition:
    """Return a partition with some commits, a millisecond apart by its clock."""
    partition = IdPartition(window=window_ms)
    for number in range(commits):
        partition.take(ids(EACH * number, EACH * (number + 1), NOW_MS + number))
        partition.commit()
    return partition


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each commit have a place of its own."""
    monkeypatch.setattr(id_log, "ENTRY_IDS", EACH)


def content(partition: IdPartition) -> dict[bytes, bytes]:
    """Return what is in the store but for the mark, which may lie before or behind a marker."""
    return {key: value for key, value in partition.store.items(b"") if key != LOCAL_KEY}


def pages(partition: IdPartition) -> list[tuple[bytes, bytes]]:
    return list(partition.store.items(ID_PAGE_KIND))


def test_a_state_is_what_was_written_and_says_nothing_of_its_secret() -> None:
    state = IdState(bytes(range(16)), -5, 2**40, 17)
    assert IdState.decode(state.encode()) == state
    assert "secret" not in repr(state)


@pytest.mark.parametrize("at", range(45))
def test_a_flipped_bit_of_a_state_is_found(at: int) -> None:
    value = bytearray(IdState(bytes(16), 1, 2, 1).encode())
    value[at] ^= 1
    with pytest.raises(CorruptStateError):
        IdState.decode(bytes(value))


@pytest.mark.parametrize("wrong", [b"", b"\1", IdState(bytes(16), 1, 2, 1).encode() + b"\0"])
def test_a_state_of_another_length_is_refused(wrong: bytes) -> None:
    with pytest.raises(CorruptStateError):
        IdState.decode(wrong)


def test_what_is_committed_stands_in_the_store_in_pages_and_in_the_changelog_in_blocks() -> None:
    partition = filled()
    sizes = [len(decode_pages([page], page_number(key))[0]) for key, page in pages(partition)]
    assert sum(sizes) == 5 * EACH
    assert max(len(page) for _, page in pages(partition)) <= 4096
    rows = [row for row in partition.changelog.rows if row is not None]
    blocks = [key for key, _ in rows if key.startswith(ID_BLOCK_KIND)]
    assert blocks == [id_block_key(1 + EACH * number) for number in range(5)]


def test_a_large_commit_is_cut_into_blocks_that_the_changelog_takes() -> None:
    partition = IdPartition(window=HOUR_MS)
    partition.limit_bytes = 5000
    partition.take(ids(0, 1000))
    partition.commit()
    assert len(partition.changelog.offsets(ID_BLOCK_KIND)) > 3
    partition.open(MemoryStore())
    assert verdicts(partition, ids(0, 1000)) == {Verdict.DUPLICATE}


def test_a_changelog_that_takes_no_id_at_all_is_named() -> None:
    partition = IdPartition(window=HOUR_MS)
    partition.limit_bytes = 150
    partition.take(ids(0, 1))
    with pytest.raises(StopError, match=re.escape("max.message.bytes")):
        partition.commit()


def test_pages_of_expired_ids_are_deleted_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_log, "ERASED_IDS", EACH)
    partition = filled(window_ms=1)
    assert page_number(pages(partition)[0][0]) > 3 * EACH
    partition.open()
    assert verdicts(partition, ids(4 * EACH, 5 * EACH)) == {Verdict.DUPLICATE}
    assert verdicts(partition, ids(3 * EACH, 4 * EACH)) == {Verdict.PASS}


def cut(store: MemoryStore) -> None:
    key, page = list(store.items(ID_PAGE_KIND))[3]
    store.write({key: page[:-1]})


def flip(store: MemoryStore) -> None:
    key, page = list(store.items(ID_PAGE_KIND))[3]
    store.write({key: page[:100] + bytes([page[100] ^ 1]) + page[101:]})


def swap(store: MemoryStore) -> None:
    (first, one), (second, other) = list(store.items(ID_PAGE_KIND))[:2]
    store.write({first: other, second: one})


def lose(number: int) -> Callable[[MemoryStore], None]:
    def damage(store: MemoryStore) -> None:
        store.write({list(store.items(ID_PAGE_KIND))[number][0]: None})

    return damage


def lose_state(store: MemoryStore) -> None:
    store.write({IDS_KEY: None})


def age_state(store: MemoryStore) -> None:
    state = IdState.decode(store.get(IDS_KEY) or b"")
    store.write({IDS_KEY: IdState(state.secret, state.clock_ms, state.next_number - 1, 1).encode()})


def misname(number: int) -> Callable[[MemoryStore], None]:
    def damage(store: MemoryStore) -> None:
        key, page = list(store.items(ID_PAGE_KIND))[0 if number == 0 else -1]
        store.write({key: None, ID_PAGE_KIND + number.to_bytes(8, "big"): page})

    return damage


DAMAGES = [cut, flip, swap, lose(0), lose(3), lose(-1), lose_state, age_state]
DAMAGES += [misname(0), misname(2**64 - 1)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_local_state_that_is_not_whole_is_found_at_the_start_and_read_anew(
    damage: Callable[[MemoryStore], None], caplog: pytest.LogCaptureFixture
) -> None:
    partition = filled()
    whole = content(partition)
    assert isinstance(partition.store, MemoryStore)
    damage(partition.store)
    partition.open()
    assert "reading it again" in caplog.text
    assert content(partition) == whole
    assert verdicts(partition, ids(0, 5 * EACH)) == {Verdict.DUPLICATE}


@pytest.mark.parametrize("damage", [cut, flip, swap, lose(3)])
def test_a_page_that_goes_bad_while_it_is_used_is_no_reason_for_a_verdict(
    damage: Callable[[MemoryStore], None], caplog: pytest.LogCaptureFixture
) -> None:
    partition = filled()
    assert isinstance(partition.store, MemoryStore)
    damage(partition.store)
    with pytest.raises(RebuildError, match="local state"):
        partition.take(ids(0, 5 * EACH))
    assert "corrupt" in caplog.text
    partition.open()
    assert verdicts(partition, ids(0, 5 * EACH)) == {Verdict.DUPLICATE}


def test_a_local_state_of_another_changelog_is_thrown_away_whatever_that_says() -> None:
    partition, other = filled(2), filled(4)
    partition.changelog = other.changelog
    position = partition.open()
    assert position is not None
    assert position.next_offset == 4 * EACH
    assert verdicts(partition, ids(0, 4 * EACH)) == {Verdict.DUPLICATE}


def test_what_is_expired_may_be_deleted_of_the_changelog_and_the_rest_is_whole(few_places: None) -> None:
    del few_places
    partition = filled(window_ms=2)
    assert partition.trim()
    assert partition.changelog.offsets(ORIGIN_COPY_KEY)
    blocks = partition.changelog.offsets(ID_BLOCK_KIND)
    assert blocks[1] < partition.changelog.start <= blocks[3]
    partition.open(MemoryStore())
    assert verdicts(partition, ids(3 * EACH, 5 * EACH)) == {Verdict.DUPLICATE}


def test_nothing_may_be_deleted_before_the_commit_that_says_so(few_places: None) -> None:
    del few_places
    partition = filled(window_ms=2)
    while partition.trim():
        pass
    partition.take(ids(0, EACH, NOW_MS + 100))
    partition.commit(locally=False)
    assert not partition.trim()


def test_nothing_is_deleted_while_all_is_inside_the_window(few_places: None) -> None:
    del few_places
    partition = filled()
    assert not partition.trim()


@pytest.mark.parametrize("disk", [True, False])
def test_the_origin_is_known_after_what_stood_in_front_is_deleted(
    few_places: None,
    disk: bool,  # noqa: FBT001 - a parameter
) -> None:
    del few_places
    partition = filled(window_ms=2)
    assert partition.trim()
    partition.open(partition.store if disk else MemoryStore())
    head = asyncio.run(read_head(partition.changelog, partition.changelog.start, len(partition.changelog.rows)))
    assert (head.origin, head.position is None) == (Origin.decode(ORIGIN), False)
    for number in range(5, 12):
        partition.take(ids(EACH * number, EACH * (number + 1), NOW_MS + number))
        partition.commit()
    assert partition.trim()


def test_a_changelog_in_which_living_ids_are_deleted_is_refused_with_what_to_do() -> None:
    partition = filled()
    partition.changelog.start = partition.changelog.offsets(ID_BLOCK_KIND)[1]
    with pytest.raises(StopError, match="inside the window") as caught:
        partition.open(MemoryStore())
    assert "Restore the topic from a copy" in str(caught.value)


def test_so_it_is_where_the_local_state_has_them_and_that_is_kept(few_places: None) -> None:
    del few_places
    partition = filled()
    whole = content(partition)
    partition.changelog.start = partition.changelog.offsets(ID_BLOCK_KIND)[3]
    with pytest.raises(StopError, match="The local state has them"):
        partition.open()
    assert content(partition) == whole
    partition.changelog.start = 0
    partition.open()


@pytest.mark.parametrize("opened", [False, True])
def test_so_it_is_where_nothing_is_left_of_the_changelog_but_the_local_state_is_whole(
    few_places: None,
    opened: bool,  # noqa: FBT001 - a parameter
) -> None:
    del few_places
    partition = filled()
    if opened:
        partition.open()  # its mark is the changelog's end now, so that nothing seems to be missing
    whole = content(partition)
    partition.changelog.start = len(partition.changelog.rows)
    with pytest.raises(StopError, match="only the local state does"):
        partition.open()
    assert content(partition) == whole


@pytest.mark.parametrize("disk", [True, False])
def test_what_commits_without_ids_leave_is_deleted_too(
    monkeypatch: pytest.MonkeyPatch,
    disk: bool,  # noqa: FBT001 - a parameter
) -> None:
    monkeypatch.setattr(id_log, "ENTRY_RECORDS", 10)
    partition = IdPartition(window=1, on_missing="pass")

    def pass_unjudged() -> int:
        trims = 0
        for _ in range(30):
            partition.take([Came(None, NOW_MS + 10)])
            partition.commit()
            trims += partition.trim()
        return trims

    assert pass_unjudged() > 5
    verdicts(partition, ids(0, 1))
    partition.commit()
    assert verdicts(partition, [Came(None, NOW_MS + 20)]) == {Verdict.PASS}
    partition.commit()
    assert pass_unjudged() > 5
    assert len(partition.changelog.rows) - partition.changelog.start < 30
    partition.open(partition.store if disk else MemoryStore())
    assert pass_unjudged() > 5


def test_a_block_that_is_missing_in_between_is_refused() -> None:
    partition = filled()
    partition.changelog.rows[partition.changelog.offsets(ID_BLOCK_KIND)[2]] = None
    with pytest.raises(StopError, match="are not there"):
        partition.open(MemoryStore())


def test_a_changelog_that_was_deleted_further_than_places_tell_is_looked_at_and_taken(few_places: None) -> None:
    del few_places
    partition = filled(window_ms=2)
    state = IdState.decode(partition.store.get(IDS_KEY) or b"")
    blocks = partition.changelog.offsets(ID_BLOCK_KIND)
    # As a worker would that has other places: to a block that begins at the first living id, not one below.
    assert state.floor == 1 + 3 * EACH
    partition.changelog.start = blocks[3]
    partition.open()
    partition.changelog.start = blocks[4]
    with pytest.raises(StopError, match="The local state has them"):
        partition.open()


@pytest.mark.parametrize("disk", [True, False])
def test_a_second_restore_of_the_same_table_is_as_the_first(
    disk: bool,  # noqa: FBT001 - a parameter
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = filled()
    if not disk:
        partition.open(MemoryStore())
    position = asyncio.run(restore(partition.table, partition.changelog, 60, lambda _done, _total: None))
    partition.table.flush()
    assert position is not None
    assert not [each for each in caplog.records if each.levelno > logging.INFO]
    assert verdicts(partition, ids(0, 5 * EACH)) == {Verdict.DUPLICATE}


def test_a_commit_that_is_missing_in_between_is_refused() -> None:
    partition = filled()
    first, after = partition.changelog.offsets(ID_BLOCK_KIND)[2:4]
    partition.changelog.rows[first:after] = [None] * (after - first)
    with pytest.raises(StopError, match="should be the next"):
        partition.open(MemoryStore())


def test_a_block_that_is_not_whole_is_refused() -> None:
    partition = filled()
    at = partition.changelog.offsets(ID_BLOCK_KIND)[2]
    key, value = partition.changelog.rows[at] or (b"", b"")
    partition.changelog.rows[at] = (key, (value or b"")[:-1])
    with pytest.raises(StopError, match="cut"):
        partition.open(MemoryStore())


def test_a_position_without_a_record_of_ids_is_refused() -> None:
    partition = IdPartition(window=HOUR_MS)
    partition.commit()
    (at,) = partition.changelog.offsets(IDS_KEY)
    partition.changelog.rows[at] = None
    with pytest.raises(StopError, match="no record of ids"):
        partition.open(MemoryStore())


def test_ids_behind_the_last_record_of_their_state_are_refused() -> None:
    partition = filled()
    partition.changelog.rows[partition.changelog.offsets(IDS_KEY)[-1]] = None
    with pytest.raises(StopError, match="ids behind the last record of their state"):
        partition.open(MemoryStore())


def test_a_record_that_meets_its_own_trace_passes() -> None:
    partition = filled(1)
    partition.next_offset = 0
    assert verdicts(partition, ids(0, EACH)) == {Verdict.PASS}
    assert verdicts(partition, ids(0, EACH)) == {Verdict.DUPLICATE}


def test_the_secret_is_another_one_for_each_partition_and_stays() -> None:
    one, other = filled(1), filled(1)
    secret = one.judge.log.secret
    assert secret != other.judge.log.secret
    one.open(MemoryStore())
    assert one.judge.log.secret == secret
    assert one.store.get(id_page_key(1)) != other.store.get(id_page_key(1))
