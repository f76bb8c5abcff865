"""What a changelog holds in front of its last origin stops nobody, whatever it is: a reset has begun again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.engine.verdict import Verdict
from processor.engine.watermark.scope_table import ScopeTable
from processor.errors import StopError
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.scope_log import ScopeLog
from processor.state.table import Table
from processor.wire.encode import plain_batch
from schemas.changelog.ids import ID_BLOCK_KIND
from schemas.changelog.position import LocalMark, Origin, Position
from schemas.changelog.values import LOCAL_KEY, ORIGIN_KEY, POSITION_KEY
from schemas.changelog.watermark import ScopeValue, brought_key, encode_block, watermark_key
from tests.support.judges.id_state import NOW_MS, STATE, Came, IdPartition, ListedChangelog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.judges.id_state import Row

OTHER = b"another 16 bytes"
WITH_WINDOW, WITH_EPOCH, PLAIN = ScopeValue(7, run=3), ScopeValue(7, epoch=1), ScopeValue(7)
ORIGIN: Row = (ORIGIN_KEY, Origin(5, 0, reset_ms=1).encode())
CORRUPT: list[Row] = [(watermark_key(b"a"), b"\2" + bytes(13))]


def position(state_id: bytes) -> Row:
    return POSITION_KEY, Position(5, 0, 1, bytes(16), state_id, 4).encode()


def scopes(value: ScopeValue, count: int = 3) -> list[Row]:
    """Return values of some scopes as a worker writes them."""
    keys = [watermark_key(b"%d" % number) for number in range(count)]
    return [(key, value.encode(key)) for key in keys]


def brought(value: ScopeValue) -> list[Row]:
    """Return two blocks of scopes as a backfill writes them."""
    payload = plain_batch([(*row, 0, ()) for row in scopes(value)]).payload
    keys = [brought_key(number) for number in range(2)]
    return [(key, encode_block(key, bytes(payload), 3)) for key in keys]


def changelog_of(*commits: Sequence[Row]) -> ListedChangelog:
    """Return a changelog that is read a record at a time."""
    changelog = ListedChangelog()
    for rows in commits:
        changelog.commit(rows)
    return changelog


def scoped(store: MemoryStore) -> Table:
    return Table(store, ScopeLog(ScopeTable(bytes(16), epoch=False, window=0)))


def restored(table: Table, changelog: ListedChangelog) -> Position | None:
    found = asyncio.run(restore(table, changelog, 60, lambda _done, _total: None))
    table.flush()
    return found


EARLIER = pytest.mark.parametrize(
    "earlier",
    [
        scopes(WITH_WINDOW),
        scopes(WITH_EPOCH),
        brought(WITH_WINDOW),
        CORRUPT,
        [ORIGIN, *CORRUPT],
        [(b"?", b"x")],
    ],
    ids=["window", "epoch", "brought", "corrupt", "reset twice", "no such kind"],
)


@EARLIER
@pytest.mark.parametrize("several", [False, True], ids=["one value", "a few scopes"])
def test_values_that_cannot_be_read_in_front_of_an_origin_do_not_count(
    earlier: list[Row],
    several: bool,  # noqa: FBT001 - pytest gives it
) -> None:
    changelog = changelog_of(
        [*earlier, *earlier, position(STATE)], [ORIGIN, *scopes(PLAIN, 2), position(OTHER)]
    )
    store, fresh = MemoryStore(), MemoryStore()
    make = scoped if several else Table

    found = restored(make(store), changelog)

    assert found is not None
    assert found.state_id == OTHER
    assert restored(make(fresh), changelog_of([ORIGIN, *scopes(PLAIN, 2), position(OTHER)])) == found
    local, expected = (dict(each.items(b"")) for each in (store, fresh))
    assert LocalMark.decode(local.pop(LOCAL_KEY)).state_id == LocalMark.decode(expected.pop(LOCAL_KEY)).state_id
    assert local == expected


@EARLIER
@pytest.mark.parametrize("begun", [False, True], ids=["no origin", "an origin in front"])
def test_values_that_cannot_be_read_stop_the_worker_where_no_origin_comes_behind(
    earlier: list[Row],
    begun: bool,  # noqa: FBT001 - pytest gives it
) -> None:
    first = [ORIGIN] if begun else []
    changelog = changelog_of([*first, *earlier, position(STATE)], [*scopes(PLAIN), position(STATE)])
    with pytest.raises(StopError, match="p-changelog:0"):
        restored(scoped(MemoryStore()), changelog)


def test_a_local_state_is_kept_as_it_is_where_the_changelog_cannot_be_read_behind_it() -> None:
    store = MemoryStore()
    changelog = changelog_of([ORIGIN, *scopes(PLAIN), position(STATE)])
    restored(scoped(store), changelog)
    before = dict(store.items(b""))
    changelog.commit([*CORRUPT, *scopes(PLAIN), position(STATE)])
    with pytest.raises(StopError, match="fails its checksum"):
        restored(scoped(store), changelog)
    assert dict(store.items(b"")) == before


def test_a_local_state_of_before_the_reset_gives_way_to_what_stands_behind_it() -> None:
    store = MemoryStore()
    changelog = changelog_of([ORIGIN, *scopes(PLAIN), position(STATE)])
    restored(scoped(store), changelog)
    changelog.commit([*scopes(WITH_EPOCH), position(STATE)])
    changelog.commit([ORIGIN, *scopes(PLAIN, 1), position(OTHER)])
    table = scoped(store)
    found = restored(table, changelog)
    assert found is not None
    assert found.state_id == OTHER
    assert isinstance(table.log, ScopeLog)
    assert len(table.log.scopes) == 1


# ---------------------------------------------------------------- ids


def ids(count: int) -> list[Came]:
    return [Came(b"id-%d" % number, NOW_MS) for number in range(count)]


def begun_again(earlier: IdPartition, now: IdPartition) -> None:
    """Have a partition stand, behind an origin, where an earlier one has come."""
    now.changelog.rows = [*earlier.changelog.rows]
    now.changelog.commit([ORIGIN])
    now.take(ids(10))
    now.commit()
    now.open(MemoryStore())


def test_ids_with_a_gap_do_not_count_in_front_of_an_origin() -> None:
    earlier = IdPartition(window=3_600_000)
    for number in range(4):
        earlier.take(ids(400 * (number + 1))[400 * number :])
        earlier.commit()
    at = earlier.changelog.offsets(ID_BLOCK_KIND)[1]
    earlier.changelog.rows[at] = None
    with pytest.raises(StopError, match="are not there"):
        earlier.open(MemoryStore())
    now = IdPartition(window=3_600_000)
    begun_again(earlier, now)
    assert set(now.take(ids(10)).verdict.tolist()) == {Verdict.DUPLICATE}
