"""The table of scopes grows, meets equal hashes and is written down, and forgets and invents nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.verdict import Verdict
from processor.engine.watermark import scope_arrays
from processor.engine.watermark.scope_codec import Unreadable
from processor.engine.watermark.scope_table import ScopeTable, UnreadableScopeError
from processor.state.kv.store import MemoryStore
from processor.state.scope_log import ScopeLog
from processor.state.table import Table
from processor.wire.encode import EncodedBatch
from schemas.changelog.position import LocalMark
from schemas.changelog.values import BLOCK_KIND, CorruptStateError
from schemas.changelog.watermark import ScopeValue, encode_watermark, watermark_key
from tests.support.judges.scopes import Pairs, columns_of

SEED = bytes(range(16))
MARK = LocalMark(0, b"\0" * 16)
int64 = st.integers(-(2**63), 2**63 - 1)


def made(window: int = 0, *, epoch: bool = False, changes: bool = False, **more: int) -> ScopeTable:
    return ScopeTable(SEED, epoch=epoch or changes, changes=changes, window=window, **more)


def judged(
    table: ScopeTable, items: list[tuple[bytes, int]], epoch: int | tuple[int, int] = 0
) -> list[Verdict]:
    data = np.frombuffer(b"".join(scope for scope, _ in items) + b"\0", np.uint8).copy()
    size = np.array([len(scope) for scope, _ in items], np.int64)
    sequence = np.array([number for _, number in items], np.int64)
    epochs = np.array([epoch] * size.size, np.int64)
    fault = np.zeros(size.size, np.uint8)
    said = table.judge(data, np.cumsum(size) - size, size, sequence, epochs, fault)
    return [Verdict(value) for value in said.verdict.tolist()]


def changelog(table: ScopeTable, limit_bytes: int = 60_000) -> Pairs:
    batches = [EncodedBatch(0, 0, 0, count, data) for data, count in table.encode(table.changed(), limit_bytes)]
    return [pair for batch in batches for pair in columns_of(batch)[1]]


def values(pairs: Pairs) -> dict[bytes, ScopeValue]:
    return {key[1:]: ScopeValue.decode(key, value) for key, value in pairs}


@pytest.mark.parametrize("hash_bits", [32, 6, 0])
def test_scopes_are_told_by_their_bytes_however_many_hashes_meet(hash_bits: int) -> None:
    table = made(hash_bits=hash_bits)
    many = [b"%d" % number for number in range(700)] + [b"", b"\0", b"\0\0", b"1234567", b"1234567\0"]
    assert set(judged(table, [(scope, 1) for scope in many])) == {Verdict.PASS}
    assert set(judged(table, [(scope, 1) for scope in many])) == {Verdict.DUPLICATE}
    assert len(table) == len(many)


@pytest.mark.parametrize("rows", [1, 250, 20_000])
def test_growing_forgets_no_scope_while_old_slots_are_being_moved(rows: int) -> None:
    table = made(window=3, epoch=True)
    total = 20_000 if rows > 1 else 2_000
    for start in range(0, total, rows):
        some = [(b"scope %d" % number, number) for number in range(start, start + rows)]
        assert set(judged(table, some)) == {Verdict.PASS}
        # Old ones are found too, whichever slots they are in just now.
        assert judged(table, [(b"scope %d" % (start // 2), start // 2)]) == [Verdict.DUPLICATE]
    assert len(table) == total
    assert table.size_bytes < 200 * total + 100_000


def test_an_arena_takes_scopes_of_all_lengths() -> None:
    table = made()
    many = [(bytes([length % 251]) * length, length) for length in [*range(300), 100_000, 1_000_000]]
    assert set(judged(table, many)) == {Verdict.PASS}
    assert {key: value.sequence for key, value in values(changelog(table, 2_000_000)).items()} == dict(many)


def test_a_commit_has_one_record_a_changed_scope_and_a_duplicate_changes_none() -> None:
    table = made()
    judged(table, [(b"a", 1), (b"b", 1), (b"a", 2), (b"a", 2), (b"a", 1)])
    assert values(changelog(table)) == {b"a": ScopeValue(2), b"b": ScopeValue(1)}
    table.committed()
    judged(table, [(b"a", 2), (b"b", 0)])
    assert changelog(table) == []


def test_batches_keep_their_limit_and_a_scope_that_does_not_fit_is_refused() -> None:
    table = made()
    judged(table, [(b"scope %03d" % number, number) for number in range(100)])
    batches = list(table.encode(table.changed(), 100))
    assert all(len(payload) <= 100 for payload, _ in batches)
    assert sum(count for _, count in batches) == 100
    judged(table, [(b"x" * 100, 1)])
    with pytest.raises(ValueError, match="a scope of 100 bytes does not fit 100"):
        list(table.encode(table.changed(), 100))


def test_nothing_is_written_locally_before_it_is_committed() -> None:
    table = made()
    judged(table, [(b"a", 1)])
    with pytest.raises(RuntimeError, match="before they are committed"):
        ScopeLog(table).write()


# ---------------------------------------------------------------- the reorder window


def test_a_producer_that_leaves_no_gap_needs_no_bitmap() -> None:
    table = made(window=1000)
    judged(table, [(b"p", number) for number in range(5000)])
    assert values(changelog(table)) == {b"p": ScopeValue(4999, run=1000)}


def test_a_bitmap_is_given_back_when_the_gap_has_left_the_window() -> None:
    table = made(window=64)
    for number in range(500):
        judged(table, [(b"%d" % scope, number) for scope in range(20) if number != 10 + scope])
    assert {value.run for value in values(changelog(table)).values()} == {64}
    judged(table, [(b"%d" % scope, 502) for scope in range(20)])
    assert int(table._meta[scope_arrays.ROWS]) <= 20, "rows are used again"


@pytest.mark.parametrize("window", [1, 63, 64, 65, 1000, 65_536])
def test_the_window_has_exactly_w_numbers(window: int) -> None:
    table = made(window=window)
    top = 10 * window
    judged(table, [(b"p", top - window - 1), (b"p", top)])
    late, lowest = (b"p", top - window - 2), (b"p", top - window)
    assert judged(table, [late, lowest, lowest]) == [Verdict.LATE, Verdict.PASS, Verdict.DUPLICATE]
    assert judged(table, [(b"p", top - window - 1)]) == [Verdict.LATE]
    assert judged(table, [(b"p", top)]) == [Verdict.DUPLICATE]


@pytest.mark.parametrize("jump", [99, 100, 101, 128, 129, 1000])
def test_a_jump_leaves_nothing_of_the_old_bitmap(jump: int) -> None:
    table = made(window=100)
    start = [(b"p", number) for number in range(0, 300, 2)]
    judged(table, start)
    top = 298 + jump
    assert judged(table, [(b"p", top)]) == [Verdict.PASS]
    below = range(top - 100, top)
    seen = {number for _, number in start}
    expected = [Verdict.DUPLICATE if number in seen else Verdict.PASS for number in below]
    assert judged(table, [(b"p", number) for number in below]) == expected


def test_numbers_below_the_first_record_count_as_not_seen() -> None:
    table = made(window=10)
    said = judged(table, [(b"p", 100), (b"p", 95), (b"p", 95), (b"p", 89)])
    assert said == [Verdict.PASS, Verdict.PASS, Verdict.DUPLICATE, Verdict.LATE]


def test_a_higher_epoch_forgets_the_window() -> None:
    table = made(window=10, epoch=True)
    judged(table, [(b"p", 4), (b"p", 5), (b"p", 9)], epoch=1)
    assert judged(table, [(b"p", 5), (b"p", 4)], epoch=2) == [Verdict.PASS, Verdict.PASS]
    assert judged(table, [(b"p", 100)], epoch=1) == [Verdict.LATE]


# ---------------------------------------------------------------- numbers that wrap


@pytest.mark.parametrize("wraps", [4, 16_384, 2**63 - 2])
@pytest.mark.parametrize("begin", [0, 1])
def test_exactly_half_the_range_ahead_is_new(wraps: int, begin: int) -> None:
    half = (begin + wraps // 2) % wraps
    table = made(wraps=wraps)
    assert judged(table, [(b"p", begin), (b"p", half), (b"p", begin)]) == [Verdict.PASS] * 3
    assert judged(table, [(b"p", (half + 1) % wraps), (b"p", begin)]) == [Verdict.LATE, Verdict.DUPLICATE]


@pytest.mark.parametrize(("wraps", "window"), [(5, 2), (100, 49), (128, 63), (200, 70), (16_384, 64)])
def test_a_window_is_remembered_across_the_wrap(wraps: int, window: int) -> None:
    table = made(window, wraps=wraps)
    # Every second number, twice around and half a window further; then all of the window.
    came = list(range(0, 2 * wraps + max(window // 2, 1), 2))
    assert set(judged(table, [(b"p", number % wraps) for number in came])) == {Verdict.PASS}
    below = range(came[-1] - window, came[-1])
    expected = [Verdict.PASS if number % 2 else Verdict.DUPLICATE for number in below]
    assert judged(table, [(b"p", number % wraps) for number in below]) == expected
    assert judged(table, [(b"p", number % wraps) for number in below]) == [Verdict.DUPLICATE] * window
    # With the widest window of an even N what is one further back is half the range ahead.
    beyond = Verdict.LATE if 2 * (window + 1) < wraps else Verdict.PASS
    assert judged(table, [(b"p", (came[-1] - window - 1) % wraps)]) == [beyond]


# ---------------------------------------------------------------- epochs that only differ


def test_the_last_16_epochs_that_were_left_are_late() -> None:
    table = made(changes=True)
    for epoch in range(20):
        # Half of the hash is not enough.
        assert judged(table, [(b"p", 1)], (7, epoch)) == [Verdict.PASS]
        assert judged(table, [(b"p", 1)], (7, epoch)) == [Verdict.DUPLICATE]
    assert {judged(table, [(b"p", 99)], (7, epoch))[0] for epoch in range(3, 19)} == {Verdict.LATE}
    assert judged(table, [(b"q", 1)], (7, 3)) == [Verdict.PASS], "other scopes have left nothing"
    # What it has forgotten is another epoch than the last.
    assert judged(table, [(b"p", 1)], (7, 2)) == [Verdict.PASS]
    assert judged(table, [(b"p", 2)], (7, 3)) == [Verdict.PASS]


# ---------------------------------------------------------------- what is written down


@settings(deadline=None)
@given(
    st.binary(max_size=20),
    st.builds(ScopeValue, int64, st.none() | int64, st.none() | st.integers(0, 65_536))
    | st.builds(
        ScopeValue,
        int64,
        st.none() | int64,
        st.none(),
        st.just(100),
        st.tuples(*[st.integers(0, 2**64 - 1)] * 2),
    )
    | st.builds(
        ScopeValue,
        int64,
        run=st.none() | st.integers(0, 65_536),
        epochs=st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=17).map(tuple),
    ),
)
def test_a_scope_is_read_back_as_it_was_written_by_codec_and_kernel(scope: bytes, value: ScopeValue) -> None:
    key = watermark_key(scope)
    encoded = value.encode(key)
    assert ScopeValue.decode(key, encoded) == value
    window = value.window or (65_536 if value.run is not None else 0)
    table = made(window, epoch=value.epoch is not None, changes=bool(value.epochs))
    table.apply(columns_of([(key, encoded)])[0], track=True)
    batches = table.encode(table.to_save(), 20_000)
    assert [columns_of(EncodedBatch(0, 0, 0, count, data))[1] for data, count in batches] == [[(key, encoded)]]


@pytest.mark.parametrize(
    "value",
    [
        ScopeValue(-2, 3, None, 100, (1, 2)),
        ScopeValue(-2, window=100, ring=(1, 2), epochs=(b"e" * 16, b"f" * 16)),
    ],
    ids=["epoch", "epochs"],
)
def test_every_flipped_bit_cut_and_longer_value_is_found_by_codec_and_kernel(value: ScopeValue) -> None:
    key = watermark_key(b"scope")
    right = value.encode(key)
    flips = [
        bytes([*right[:at], right[at] ^ 1 << bit, *right[at + 1 :]])
        for at in range(len(right))
        for bit in range(8)
    ]
    for wrong in [*flips, *(right[:size] for size in range(len(right))), right + b"\0"]:
        with pytest.raises(CorruptStateError):
            ScopeValue.decode(key, wrong)
        table = made(100, epoch=True, changes=bool(value.epochs))
        with pytest.raises(UnreadableScopeError):
            table.apply(columns_of([(key, wrong)])[0], track=True)


def test_version_1_is_still_read() -> None:
    key = watermark_key(b"scope")
    table = made()
    table.apply(columns_of([(key, encode_watermark(key, 7))])[0], track=True)
    assert judged(table, [(b"scope", 7), (b"scope", 8)]) == [Verdict.DUPLICATE, Verdict.PASS]
    assert ScopeValue.decode(key, encode_watermark(key, 7)) == ScopeValue(7)


@pytest.mark.parametrize(
    ("value", "window", "epoch"),
    [
        (ScopeValue(1), 0, True),
        (ScopeValue(1, 2), 0, False),
        (ScopeValue(1), 5, False),
        (ScopeValue(1, run=1), 0, False),
        (ScopeValue(1, run=6), 5, False),
        (ScopeValue(1, None, None, 6, (1,)), 5, False),
    ],
)
def test_state_of_another_definition_is_refused(value: ScopeValue, window: int, epoch: bool) -> None:  # noqa: FBT001
    key = watermark_key(b"scope")
    with pytest.raises(UnreadableScopeError) as caught:
        made(window, epoch=epoch).apply(columns_of([(key, value.encode(key))])[0], track=True)
    assert caught.value.reason is Unreadable.FOREIGN


# ---------------------------------------------------------------- local blocks


def sequences(store: MemoryStore) -> dict[bytes, int]:
    """Return what a restart reads."""
    log = ScopeLog(made())
    list(Table(store, log).load_log())
    which, _ = log.scopes.sweep(0, log.scopes.used, 10**6)
    batches = [EncodedBatch(0, 0, 0, count, data) for data, count in log.scopes.encode(which, 2_000_000)]
    return {key: value.sequence for batch in batches for key, value in values(columns_of(batch)[1]).items()}


def test_the_log_of_blocks_stays_short_and_holds_the_last_of_each_scope() -> None:
    table, store = made(), MemoryStore()
    local = Table(store, ScopeLog(table))
    last: dict[bytes, int] = {}
    for number in range(400):
        some = [(b"%d" % (number * 7 % 500 + more), number) for more in range(5)]
        judged(table, some)
        last.update(some)
        table.committed()
        local.apply({}, MARK)
    assert sequences(store) == last
    blocks = [value for key, value in store.items(BLOCK_KIND)]
    entries = sum(int.from_bytes(value[1:5], "big") for value in blocks)
    assert entries <= 3 * len(table) + 3 * 15


def filled() -> MemoryStore:
    store, table = MemoryStore(), made()
    local = Table(store, ScopeLog(table))
    for number in range(3):
        judged(table, [(b"%d" % scope, number) for scope in range(50 + number)])
        table.committed()
        local.stage()
    local.apply({}, MARK)
    return store


def test_a_block_that_is_not_whole_or_not_there_is_found() -> None:
    keys = [key for key, _ in filled().items(BLOCK_KIND)]
    assert len(keys) >= 3
    for key in keys:
        value = filled().get(key)
        assert value is not None
        for wrong in (None, value[:-1], value[:9], b"", bytes([*value[:-3], value[-3] ^ 1, *value[-2:]])):
            store = filled()
            store.write({key: wrong})
            with pytest.raises(CorruptStateError):
                list(Table(store, ScopeLog(made())).load_log())


def test_a_local_state_without_blocks_is_not_taken_for_one_with_none() -> None:
    for table in (Table(MemoryStore(), ScopeLog(made())), Table(filled())):
        with pytest.raises(CorruptStateError):
            list(table.load_log())
