"""Looks single ids and scopes up in the state of a partition while a worker judges by it.

Invariant: nothing is staged, thrown away or moved by a look-up, and what is said is committed: ids of the open
transaction are left out, and what it has replaced counts as it was. It is done between two pieces, in a turn of
its own (`processor.pipeline.turns`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.siphash import siphash
from processor.engine.ids.block import confirm
from processor.engine.ids.bloom.filter import NOWHERE
from processor.engine.ids.collisions import COMMITTED, OWNER, READING, RENEWALS
from processor.engine.ids.exact.hash_table import FLOOR, NEXT, STAGED
from processor.engine.ids.exact.kernels import SUPERSEDES
from processor.engine.ids.judgement import IdColumns
from processor.engine.ids.page import BACKFILLED
from processor.engine.watermark.scope_arrays import DIRTY, EPOCH, HEAD, LEFT, seek
from schemas.changelog.ids import id_page_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from processor.engine.ids.bloom.window import BloomWindow
    from processor.engine.ids.collisions import Collisions
    from processor.engine.ids.exact.index import ExactIndex
    from processor.engine.watermark.scope_table import ScopeTable

    Read = Callable[[Sequence[bytes]], list[bytes | None]]


class RememberedRecord(NamedTuple):
    """A record that has passed with an id, as the state remembers it.

    Attributes:
        owner: What names the record: its offset, or its source ref; None: filters know the id.
        reading_ms: The partition's clock when the id was last remembered; None likewise.
    """

    owner: int | None
    reading_ms: int | None


class ScopeMark(NamedTuple):
    """What the state knows of a scope.

    Attributes:
        sequence: The watermark.
        epoch: None where the definition has none, or its epochs have no order.
        committed: Whether the open transaction has not changed it.
    """

    sequence: int
    epoch: int | None
    committed: bool


def in_exact(
    index: ExactIndex, hashes: NDArray[np.uint64], clock_ms: int, read: Read
) -> list[RememberedRecord]:
    """Return what an exact index and its pages say of an id, uint64[1, 2].

    Raises:
        UnreadableBlockError: A page is not as it must be.
    """
    wanted = index.look_up(_asked(hashes, clock_ms))
    number = np.unique(np.concatenate((wanted.number, _replaced(index, hashes))))
    first = index._pages.first  # noqa: SLF001 - where pages begin, for those of replaced rows too
    page = np.searchsorted(first, number, side="right") - 1
    number, page = number[page >= 0], page[page >= 0]
    if not number.size:
        return []
    pages, which = np.unique(first[page], return_inverse=True)
    found = read([id_page_key(each) for each in pages.tolist()])
    # A page that is missing is an empty one, which is cut.
    rows = confirm([each or b"" for each in found], pages, which, number - first[page])
    (same,) = np.nonzero((rows.hash == hashes).all(axis=1))
    if not same.size:
        return []
    last = same[-1]
    return [RememberedRecord(int(rows.owner[last]), int(rows.reading_ms[last]))]


def _replaced(index: ExactIndex, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the committed numbers of an id that the open transaction has put another one in place of."""
    meta, staged = index._meta, index._staged  # noqa: SLF001 - only read, and nobody else needs them
    count = int(meta[NEXT] - meta[STAGED])
    rows = np.flatnonzero((staged.hash[:count] == hashes).all(axis=1))
    before = staged.info[rows, SUPERSEDES]
    replaced: NDArray[np.int64] = before[(before >= meta[FLOOR]) & (before < meta[STAGED])]
    return replaced


def in_filters(window: BloomWindow, hashes: NDArray[np.uint64], clock_ms: int) -> list[RememberedRecord]:
    """Return what Bloom filters say of an id, uint64[1, 2]."""
    (hit,) = window.look_up(_asked(hashes, clock_ms))
    return [] if hit == NOWHERE else [RememberedRecord(None, None)]


def in_variants(collisions: Collisions | None, hashes: NDArray[np.uint64]) -> list[RememberedRecord]:
    """Return the records of an id that collided."""
    if collisions is None:
        return []
    table = collisions._table  # noqa: SLF001 - as above
    count = int(table.meta[COMMITTED])
    reading = table.info[:count, READING].copy()
    renewed, before = table.renewal[: table.meta[RENEWALS]].T
    reading[renewed] = before
    rows = np.flatnonzero((table.hash[:count] == hashes).all(axis=1)).tolist()
    return [RememberedRecord(int(table.info[row, OWNER]), int(reading[row])) for row in rows]


def living(
    known: Iterable[RememberedRecord], variants: Iterable[RememberedRecord], clock_ms: int, window_ms: int
) -> list[RememberedRecord]:
    """Return those that are inside the window, each record once, the earliest first.

    An id's first record is among its variants, too. What a backfill has brought has no owner to tell that by:
    of it the variants count, where there are any.
    """

    def alive(some: Iterable[RememberedRecord]) -> list[RememberedRecord]:
        return [each for each in some if each.reading_ms is None or each.reading_ms + window_ms > clock_ms]

    last: dict[int | None, RememberedRecord] = {}
    brought: list[RememberedRecord] = []
    for found in (alive(known), alive(variants)):
        brought = [each for each in found if each.owner == BACKFILLED] or brought
        for each in found:
            before = last.get(each.owner)
            if before is None or (each.reading_ms or 0) > (before.reading_ms or 0):
                last[each.owner] = each
    last.pop(BACKFILLED, None)
    return brought + sorted(last.values(), key=lambda each: each.owner or 0)


def in_scopes(table: ScopeTable, scope: bytes) -> ScopeMark | None:
    """Return what is known of a scope."""
    words, key, layout = table._words, table._key, table._layout  # noqa: SLF001 - as above
    data = np.array(bytearray(scope), np.uint8)
    tag = np.uint64(siphash(data, 0, data.size, key)) & key[2]
    for slots in (table._slots, table._old):  # noqa: SLF001 - as above
        if not slots.size:
            continue
        word = int(seek(words, slots, tag, data, 0, data.size, int(layout[HEAD]))[0])
        if word >= 0:
            epoch = int(words[word + layout[EPOCH]]) if layout[EPOCH] and not layout[LEFT] else None
            return ScopeMark(int(words[word + 1]), epoch, not int(words[word]) & DIRTY)
    return None


def _asked(hashes: NDArray[np.uint64], clock_ms: int) -> IdColumns:
    none = np.zeros(1, np.int64)
    return IdColumns(hashes, np.zeros(1, np.uint8), np.zeros(1, np.bool_), none, np.full(1, clock_ms, np.int64))
