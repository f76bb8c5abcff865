"""Keeps the ids of the exact backend locally.

They are the pages of their blocks, each under the number of its first id: what is written is never changed, and
goes from the front when it is expired. Pages are also what a candidate is confirmed by, so they are written
right after each commit; in memory is only the index (`processor.engine.ids.exact.index`), which is rebuilt from
the pages, or from the changelog's blocks (`processor.state.ids.id_log`).

Invariant: every page that the index knows of, and that is not expired, is in the store whenever the table is
flushed. Pages without a mark say nothing (see `processor.state.restore`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.ids.exact.index import ExactIndex
from processor.state.ids.id_log import IdLog, taking_over
from schemas.changelog.ids import ID_PAGE_KIND, id_page_key, page_number
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from processor.engine.ids.page import Pages

PAGES_A_STEP = 256
"""Pages that are read in one go: 45,000 ids, about 10 ms."""
ERASED_IDS = 65_536
"""Expired ids that make it worth while to delete their pages, about 1.5 MB: a range that is deleted costs every
look-up a little until RocksDB has compacted it away."""


class ExactLog(IdLog[ExactIndex]):
    """The ids of one partition, see `IdLog`."""

    @override
    def _forget(self) -> None:
        super()._forget()
        self._pages: dict[bytes, bytes] = {}
        self._erased = 0

    @override
    def _keep(self, block: bytes, pages: Pages) -> None:
        first, at = pages.first.tolist(), pages.at.tolist()
        for page, number in enumerate(first):
            self._pages[id_page_key(number)] = block[at[page] : at[page + 1]]

    # ---------------------------------------------------------------- what is taken over

    @override
    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        # Every page is read, so one that is not whole is found now.
        some: list[tuple[bytes, bytes]] = []
        for key, value in items:
            if key.startswith(ID_PAGE_KIND):
                some.append((key, value))
                if len(some) == PAGES_A_STEP:
                    self._load_pages(some)
                    some = []
                    yield
            else:
                self._load_other(key, value)
        if some:
            self._load_pages(some)
            yield
        self._take_state(self._loaded_state())
        self.check()
        self._unsaved = False

    def _load_pages(self, some: Sequence[tuple[bytes, bytes]]) -> None:
        try:
            first = np.array([page_number(key) for key, _ in some], np.int64)
            self._goes_on(int(first[0]))
            if self._said is not None:  # it comes before all pages
                self.index.expect(self._said.next_number - self._said.floor)
            with taking_over():
                self.index.restore_pages([value for _, value in some], first)
        except (ValueError, OverflowError) as error:  # a key has a number that cannot be
            raise CorruptStateError(str(error)) from error

    @override
    def check(self) -> None:
        with taking_over():
            self.index.insert()
        super().check()

    @property
    @override
    def waiting_bytes(self) -> int:
        return self.index.waiting_bytes

    # ---------------------------------------------------------------- what is written locally

    @override
    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        pages, self._pages = self._pages, {}
        return {**pages, **super().write(sweeping=sweeping)}

    @override
    def erased(self) -> tuple[bytes, bytes] | None:
        # The pages whose rows have all expired, once they are enough for that.
        floor = self.index.floor
        if floor - self._erased < ERASED_IDS:
            return None
        first, self._erased = self._erased, floor
        self._pages = {key: page for key, page in self._pages.items() if page_number(key) >= floor}
        return id_page_key(first), id_page_key(floor)
