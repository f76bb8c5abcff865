"""After a restore the table holds what the changelog has committed, or the worker does not go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.engine.watermark.scope_table import ScopeTable
from processor.errors import RebuildError, StopError
from processor.kafka.client import TopicPartition
from processor.state import restore as restoring
from processor.state.changelog import ChangelogBounds
from processor.state.kv.store import CorruptStoreError, MemoryStore
from processor.state.restore import restore
from processor.state.scope_log import ScopeLog
from processor.state.table import Table
from processor.wire.decode import Decoder
from processor.wire.encode import EncodedBatch
from schemas.changelog.position import LocalMark, Origin, Position
from schemas.changelog.values import BLOCK_KIND, LOCAL_KEY, ORIGIN_KEY, POSITION_KEY
from schemas.changelog.watermark import ScopeValue, encode_watermark, watermark_key
from seqmark.in_memory.cluster import MemoryCluster
from seqmark.in_memory.ports import MemoryChangelog, Wire
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.batch.columns import Columns

STATE, OTHER = b"state id 16 byte", b"another 16 bytes"
KEY = watermark_key()

Entry = dict[bytes, bytes | None] | None
"""One transaction's records; None is what has an offset and no record: a marker, an aborted batch, a gap."""


def position(next_offset: int, state_id: bytes = STATE) -> Position:
    return Position(next_offset, 0, 1, b"definition 16 by", state_id, 4)


def commit(next_offset: int, sequence: int, state_id: bytes = STATE) -> Entry:
    """Return what a worker writes with one commit."""
    return {KEY: encode_watermark(KEY, sequence), POSITION_KEY: position(next_offset, state_id).encode()}


class FakeChangelog:
    """A changelog in a list: one offset an entry, read two entries at a time."""

    name = "clicks-changelog:3"

    def __init__(self, entries: list[Entry], start: int = 0, *, unstable: int = 0) -> None:
        self.entries = entries
        self.start = start
        self.unstable = unstable
        """How often an open transaction is still seen."""
        self.reads: list[int] = []
        self.break_after: int | None = None

    async def bounds(self) -> ChangelogBounds:
        end = self.start + len(self.entries)
        if self.unstable:
            self.unstable -= 1
            return ChangelogBounds(self.start, end - 1, end)
        return ChangelogBounds(self.start, end, end)

    async def read(self, start: int, stop: int) -> AsyncIterator[tuple[list[tuple[bytes, bytes | None]], int]]:
        self.reads.append(start)
        for at in range(start, stop, 2):
            if self.break_after is not None and at >= self.break_after:
                raise RebuildError("changelog", "the connection broke")
            after = min(at + 2, stop)
            some = self.entries[at - self.start : after - self.start]
            yield [item for entry in some if entry for item in entry.items()], after

    async def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        async for items, after in self.read(start, stop):
            columns, _ = columns_of(items)
            columns.offset[:] = after - 1
            yield columns, after


def restored(table: Table, changelog: FakeChangelog, timeout_s: float = 60) -> Position | None:
    return asyncio.run(restore(table, changelog, timeout_s, lambda _done, _total: None))


def written(table: Table, changelog: FakeChangelog) -> Position | None:
    """Restore, and write it as the worker does that has seen what the state means."""
    position = restored(table, changelog)
    table.flush()
    return position


def content(store: MemoryStore) -> dict[bytes, bytes]:
    return dict(store.items(b""))


def holds(store: MemoryStore, next_offset: int, sequence: int, read_to: int, state_id: bytes = STATE) -> bool:
    """Whether the store holds exactly this commit, and a mark that the changelog was read to ``read_to``."""
    entry = commit(next_offset, sequence, state_id)
    return content(store) == {**(entry or {}), LOCAL_KEY: LocalMark(read_to, state_id).encode()}


def caught_up(entries: list[Entry]) -> MemoryStore:
    """Return a store that has taken in ``entries``."""
    store = MemoryStore()
    written(Table(store), FakeChangelog(entries))
    return store


LOOK = 0
"""Where is read first, if there is a mark: what is in front of it, for whose state that is."""
MARKER: Entry = None
LOG: list[Entry] = [commit(10, 7), MARKER, commit(20, 17), MARKER, commit(30, 27), MARKER]


def test_a_new_partition_has_no_position() -> None:
    store = MemoryStore()
    assert written(Table(store), FakeChangelog([])) is None
    assert content(store) == {}


def test_a_changelog_of_aborted_transactions_only_is_that_of_a_new_partition() -> None:
    assert written(Table(MemoryStore()), FakeChangelog([MARKER] * 3)) is None


def test_an_empty_table_takes_in_the_whole_changelog_with_its_control_record_at_the_end() -> None:
    store = MemoryStore()
    assert written(Table(store), FakeChangelog(LOG)) == position(30)
    assert holds(store, 30, 27, read_to=6)


def test_the_last_committed_record_is_taken_in_wherever_the_changelog_ends() -> None:
    for size in range(1, len(LOG) + 1):
        store = MemoryStore()
        last = (size + 1) // 2
        assert written(Table(store), FakeChangelog(LOG[:size])) == position(10 * last)
        assert holds(store, 10 * last, 10 * last - 3, read_to=size)


def test_a_table_that_lags_is_caught_up_from_where_it_stands() -> None:
    for known in range(1, len(LOG) + 1):
        store = caught_up(LOG[:known])
        changelog = FakeChangelog(LOG)
        assert written(Table(store), changelog) == position(30)
        assert holds(store, 30, 27, read_to=6)
        assert changelog.reads == [LOOK, known]


ORIGIN: Entry = {ORIGIN_KEY: Origin(5, 0).encode()}


def test_what_stands_before_an_origin_is_of_an_earlier_state_and_forgotten() -> None:
    gone = watermark_key(b"a scope that the state after the reset does not have")
    earlier: Entry = {gone: encode_watermark(gone, 3), **(commit(10, 7) or {})}
    reset: Entry = {**(ORIGIN or {}), **(commit(4, 2, OTHER) or {})}
    for before in range(3):
        log = [earlier] * before + [MARKER, reset, MARKER]
        store = MemoryStore()
        assert written(Table(store), FakeChangelog(log)) == position(4, OTHER)
        assert holds(store, 4, 2, len(log), OTHER)


def test_of_two_resets_that_are_read_at_once_the_last_one_counts() -> None:
    gone = watermark_key(b"a scope that the state after the second reset does not have")
    first: Entry = {**(ORIGIN or {}), gone: encode_watermark(gone, 3), **(commit(10, 7) or {})}
    second: Entry = {**(ORIGIN or {}), **(commit(4, 2, OTHER) or {})}
    store = MemoryStore()
    assert written(Table(store), FakeChangelog([first, second, MARKER])) == position(4, OTHER)
    assert holds(store, 4, 2, 3, OTHER)


def test_a_local_state_of_before_a_reset_is_read_anew_from_the_origin_on() -> None:
    log = [*LOG, ORIGIN, commit(4, 2, OTHER), MARKER]
    store = caught_up(LOG)
    assert written(Table(store), FakeChangelog(log)) == position(4, OTHER)
    assert holds(store, 4, 2, len(log), OTHER)


def test_a_corrupt_origin_stops_the_worker() -> None:
    with pytest.raises(StopError, match="restore the topic from a copy"):
        written(Table(MemoryStore()), FakeChangelog([{ORIGIN_KEY: b"\x01nonsense"}, commit(4, 2)]))


def test_a_deleted_key_is_deleted() -> None:
    scope = watermark_key(b"scope")
    store = MemoryStore()
    entries: list[Entry] = [{scope: encode_watermark(scope, 1)}, {scope: None}, commit(10, 7)]
    written(Table(store), FakeChangelog(entries))
    assert holds(store, 10, 7, read_to=3)


def test_a_compacted_changelog_that_has_moved_past_the_table_is_read_anew() -> None:
    store = caught_up(LOG[:2])
    changelog = FakeChangelog([commit(50, 47), MARKER], start=9)
    assert written(Table(store), changelog) == position(50)
    assert holds(store, 50, 47, read_to=11)
    assert changelog.reads == [9]


def test_an_open_transaction_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("processor.state.restore.asyncio.sleep", nap)
    store = MemoryStore()
    assert written(Table(store), FakeChangelog(LOG, unstable=3)) == position(30)
    assert len(naps) == 3
    assert holds(store, 30, 27, read_to=6)


def test_a_transaction_that_stays_open_is_named_with_the_tool_that_finds_it() -> None:
    store = MemoryStore()
    with pytest.raises(RebuildError, match=r"clicks-changelog:3.*kafka-transactions\.sh") as caught:
        restored(Table(store), FakeChangelog(LOG, unstable=9), timeout_s=-11)
    assert caught.value.reason == "open_transaction"
    assert content(store) == {}


@pytest.mark.parametrize("key", [POSITION_KEY, KEY, LOCAL_KEY])
def test_a_corrupt_local_value_makes_the_changelog_be_read_anew(key: bytes) -> None:
    store = caught_up(LOG[:4])
    value = bytearray(content(store)[key])
    value[5] ^= 1
    store.write({key: bytes(value)})
    changelog = FakeChangelog(LOG[:4])
    assert written(Table(store), changelog) == position(20)
    assert holds(store, 20, 17, read_to=4)
    assert changelog.reads[-1] == 0


class TornStore(MemoryStore):
    """A store whose files are not whole, though it has just been made."""

    def get(self, key: bytes) -> bytes | None:
        if key == POSITION_KEY:
            raise CorruptStoreError("block checksum mismatch")
        return super().get(key)


def test_a_local_state_that_is_corrupt_as_soon_as_it_is_made_is_not_said_to_be_the_changelog() -> None:
    with pytest.raises(CorruptStoreError):
        restored(Table(TornStore()), FakeChangelog([MARKER]))


def test_local_values_without_a_mark_are_thrown_away() -> None:
    store = MemoryStore()
    scope = watermark_key(b"left over")
    store.write({scope: encode_watermark(scope, 99)})
    assert written(Table(store), FakeChangelog(LOG)) == position(30)
    assert holds(store, 30, 27, read_to=6)


@pytest.mark.parametrize(("look_back", "reads"), [(64, [LOOK, 0]), (1, [1, 2, 0])])
def test_a_local_state_of_another_changelog_is_thrown_away(
    look_back: int, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "LOOK_BACK", look_back)
    store = caught_up([commit(90, 87, OTHER), MARKER])
    changelog = FakeChangelog(LOG)
    assert written(Table(store), changelog) == position(30)
    assert holds(store, 30, 27, read_to=6)
    assert changelog.reads == reads


@pytest.mark.parametrize("more", [[], [MARKER, MARKER]], ids=["as long", "markers behind"])
def test_a_local_state_of_another_changelog_is_thrown_away_if_nothing_behind_it_says_whose(
    more: list[Entry],
) -> None:
    store = caught_up([commit(90, 87, OTHER), MARKER])
    changelog = FakeChangelog([commit(10, 7), MARKER, *more])
    assert written(Table(store), changelog) == position(10)
    assert holds(store, 10, 7, read_to=2 + len(more))
    scopes = MemoryStore()
    table = scoped(scopes)
    restored(table, FakeChangelog([scoped_commit(90, {b"z": 9}, OTHER), MARKER]))
    table.flush()
    again = scoped(scopes)
    assert restored(again, FakeChangelog([*SCOPED[:2], *more])) == position(10)
    assert watermarks(again) == {b"a": 1, b"b": 1}


def test_a_local_state_is_believed_if_nothing_tells_whose_the_changelog_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restoring, "LOOK_BACK", 2)
    store = caught_up([*LOG, *[MARKER] * 3])
    changelog = FakeChangelog([*LOG, *[MARKER] * 5])
    assert written(Table(store), changelog) == position(30)
    assert holds(store, 30, 27, read_to=11)
    assert changelog.reads == [7, 9]


def test_a_mark_whose_position_belongs_to_another_state_is_not_believed() -> None:
    store = caught_up(LOG)
    store.write({LOCAL_KEY: LocalMark(6, OTHER).encode()})
    assert written(Table(store), FakeChangelog(LOG)) == position(30)
    assert holds(store, 30, 27, read_to=6)


def test_a_changelog_shorter_than_the_local_state_stops_with_what_to_do_and_touches_nothing() -> None:
    store = caught_up(LOG)
    before = content(store)
    with pytest.raises(StopError, match=r"ends at 4, .* read it up to 6.*Restore the topic") as caught:
        written(Table(store), FakeChangelog(LOG[:4]))
    assert str(caught.value).startswith("clicks-changelog:3")
    assert content(store) == before


@pytest.mark.parametrize("key", [POSITION_KEY, KEY])
def test_a_corrupt_value_in_the_changelog_stops_because_there_is_no_second_copy(key: bytes) -> None:
    entry = dict(commit(20, 17) or {})
    value = entry[key] or b""
    entry[key] = value[:1] + bytes(len(value) - 1)
    with pytest.raises(StopError, match=r"clicks-changelog:3: .* checksum; restore the topic from a copy"):
        written(Table(MemoryStore()), FakeChangelog([commit(10, 7), entry]))


def test_a_value_of_a_newer_version_stops_and_says_so() -> None:
    with pytest.raises(StopError, match="version 9"):
        written(Table(MemoryStore()), FakeChangelog([{KEY: b"\x09whatever"}]))


@pytest.mark.parametrize("broken_at", range(0, len(LOG), 2))
def test_an_interrupted_restore_is_finished_by_the_next(broken_at: int) -> None:
    store = MemoryStore()
    changelog = FakeChangelog(LOG)
    changelog.break_after = broken_at
    with pytest.raises(RebuildError):
        written(Table(store), changelog)
    changelog.break_after = None
    assert written(Table(store), changelog) == position(30)
    assert holds(store, 30, 27, read_to=6)
    assert changelog.reads == [0, 0]


@pytest.mark.parametrize("broken_at", range(3, len(LOG) + 1, 2))
def test_an_interrupted_restore_of_a_local_state_goes_on_where_it_was(broken_at: int) -> None:
    store = caught_up(LOG[:1])
    changelog = FakeChangelog(LOG)
    changelog.break_after = broken_at
    with pytest.raises(RebuildError):
        restored(Table(store), changelog)
    changelog.break_after = None
    assert written(Table(store), changelog) == position(30)
    assert holds(store, 30, 27, read_to=6)
    assert changelog.reads == [LOOK, 1, LOOK, broken_at]


def test_an_interrupted_restore_of_a_compacted_changelog_is_not_taken_for_a_whole_one() -> None:
    scopes = [watermark_key(b"%d" % n) for n in range(4)]
    # Compaction has left the position in the last record only.
    entries: list[Entry] = [{scope: encode_watermark(scope, 5)} for scope in scopes]
    changelog = FakeChangelog([*entries, commit(40, 37)])
    changelog.break_after = 2
    store = MemoryStore()
    with pytest.raises(RebuildError):
        written(Table(store), changelog)
    changelog.break_after = None
    assert written(Table(store), changelog) == position(40)
    assert all(store.get(scope) == encode_watermark(scope, 5) for scope in scopes)


def test_progress_is_told_from_nothing_to_all() -> None:
    told: list[tuple[int, int]] = []
    asyncio.run(restore(Table(MemoryStore()), FakeChangelog(LOG), 60, lambda *at: told.append(at)))
    assert (told[0], told[-1]) == ((0, 6), (6, 6))
    assert told == sorted(told)


# ---------------------------------------------------------------- tables with many scopes


def scoped(store: MemoryStore) -> Table:
    return Table(store, ScopeLog(ScopeTable(bytes(16), epoch=False, window=0)))


def scoped_commit(next_offset: int, scopes: dict[bytes, int], state_id: bytes = STATE) -> Entry:
    """Return what a worker with many scopes writes with one commit."""
    entry: dict[bytes, bytes | None] = {
        watermark_key(scope): ScopeValue(number).encode(watermark_key(scope))
        for scope, number in scopes.items()
    }
    return {**entry, POSITION_KEY: position(next_offset, state_id).encode()}


def watermarks(table: Table) -> dict[bytes, int]:
    """Return what the next records would be judged by."""
    assert isinstance(table.log, ScopeLog)
    scopes = table.log.scopes
    which, _ = scopes.sweep(0, scopes.used, 10_000)
    batches = [EncodedBatch(0, 0, 0, count, data) for data, count in scopes.encode(which, 1_000_000)]
    pairs = [pair for batch in batches for pair in columns_of(batch)[1]]
    return {key[1:]: ScopeValue.decode(key, value).sequence for key, value in pairs}


SCOPED = [
    scoped_commit(10, {b"a": 1, b"b": 1}),
    MARKER,
    scoped_commit(20, {b"b": 2, b"c": 2}),
    MARKER,
    scoped_commit(30, {b"a": 3}),
    MARKER,
]
ALL = {b"a": 3, b"b": 2, b"c": 2}


def test_scopes_are_restored_from_the_changelog_and_from_local_blocks_at_any_point() -> None:
    for known in range(len(SCOPED) + 1):
        store = MemoryStore()
        table = scoped(store)
        restored(table, FakeChangelog(SCOPED[:known]))
        table.flush()
        changelog = FakeChangelog(SCOPED)
        again = scoped(store)
        assert restored(again, changelog) == position(30)
        assert watermarks(again) == ALL
        assert changelog.reads == [*([LOOK] if known else []), known]


def test_scopes_of_before_a_reset_are_forgotten() -> None:
    before = [scoped_commit(10, {b"a": 1, b"gone": 9}), MARKER]
    log = [*before, ORIGIN, scoped_commit(4, {b"a": 0}), MARKER]
    for first in (before, []):
        store = MemoryStore()
        if first:
            table = scoped(store)
            restored(table, FakeChangelog(first))
            table.flush()
        table = scoped(store)
        assert restored(table, FakeChangelog(log)) == position(4)
        assert watermarks(table) == {b"a": 0}


def test_scopes_are_not_left_under_a_mark_before_the_caller_has_seen_what_they_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("processor.state.scope_log.MOST_UNSAVED", 1)
    store = MemoryStore()
    restored(scoped(store), FakeChangelog(SCOPED))
    assert store.get(LOCAL_KEY) is None
    assert next(store.items(BLOCK_KIND), None) is not None
    again, changelog = scoped(store), FakeChangelog(SCOPED)
    restored(again, changelog)
    assert changelog.reads == [0]
    assert watermarks(again) == ALL


def test_values_of_another_definition_are_not_gathered_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "STAGED_BYTES", 1)
    store = MemoryStore()
    table = Table(store)
    assert restored(table, FakeChangelog(SCOPED)) == position(30)
    values = {key: value for entry in SCOPED if entry for key, value in entry.items()}
    assert content(store) == values, "they are there before the caller has seen what they mean, without a mark"
    changelog = FakeChangelog(SCOPED)
    assert written(Table(store), changelog) == position(30)
    assert changelog.reads == [0], "what has no mark is not believed"
    assert content(store) == {**values, LOCAL_KEY: LocalMark(len(SCOPED), STATE).encode()}


def test_a_corrupt_block_makes_the_changelog_be_read_anew() -> None:
    store = MemoryStore()
    table = scoped(store)
    restored(table, FakeChangelog(SCOPED))
    table.flush()
    key, value = next(store.items(BLOCK_KIND))
    store.write({key: value[:-1]})
    again, changelog = scoped(store), FakeChangelog(SCOPED)
    assert restored(again, changelog) == position(30)
    assert watermarks(again) == ALL
    assert changelog.reads == [LOOK, 0]


def test_a_local_state_of_the_other_form_is_read_anew() -> None:
    store = caught_up(SCOPED)
    again, changelog = scoped(store), FakeChangelog(SCOPED)
    restored(again, changelog)
    assert watermarks(again) == ALL
    again.flush()
    plain = FakeChangelog(SCOPED)
    restored(Table(store), plain)
    assert (changelog.reads, plain.reads) == ([LOOK, 0], [LOOK, 0])


def test_scopes_of_another_definition_stop_the_worker_with_what_to_do() -> None:
    table = Table(MemoryStore(), ScopeLog(ScopeTable(bytes(16), epoch=False, window=9)))
    with pytest.raises(StopError, match=r"clicks-changelog:3.*reorder_window.*set it back"):
        restored(table, FakeChangelog(SCOPED))


def test_a_scope_that_is_not_whole_in_the_changelog_stops_the_worker() -> None:
    entry = dict(SCOPED[0] or {})
    entry[watermark_key(b"a")] = b"\2" + bytes(13)
    with pytest.raises(StopError, match="fails its checksum"):
        restored(scoped(MemoryStore()), FakeChangelog([entry]))


def test_the_model_reads_no_changelog_from_where_it_does_not_begin_any_more() -> None:
    cluster, tp = MemoryCluster(), TopicPartition("clicks-changelog", 3)
    cluster.log(*tp).delete_before(6)
    changelog = MemoryChangelog(cluster, tp, Decoder(), Wire())
    with pytest.raises(RebuildError, match="begins at 6, and 5 was asked for"):
        asyncio.run(anext(changelog.columns(5, 7)))
