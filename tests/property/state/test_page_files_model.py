"""Pages in files against a dictionary, cut short, closed and opened again at any point."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.state.kv import page_files
from processor.state.kv.page_files import PageFiles
from processor.state.kv.rocks import LATE, RocksStore
from processor.state.kv.store import MemoryStore
from schemas.changelog.ids import id_page_key
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator


def other_key(*numbers: int) -> bytes:
    """Return a key of another kind of page: longer, so of another series for each pair of numbers."""
    return b"\xffR" + b"".join(each.to_bytes(8, "big") for each in numbers)


page_keys = st.one_of(
    st.builds(id_page_key, st.integers(0, 12)),
    st.builds(other_key, st.integers(0, 4), st.integers(0, 2) | st.just(2**33), st.integers(0, 3)),
    st.builds(LATE.__add__, st.binary(max_size=3)),
    st.sampled_from([LATE * 8, LATE * 9, LATE * 20]),
)
keys = page_keys | st.sampled_from([b"", b"P", b"\xfe\xff"])
PREFIXES = (b"", LATE, b"\xffP", b"\xffR", id_page_key(3), b"\xffR\x80")


class Change(NamedTuple):
    """One write, with the bytes of each value; whether it is cut short; whether all is opened again then."""

    sizes: dict[bytes, int | None]
    erased: tuple[bytes, bytes] | None
    cut: bool
    opened: bool


def changes(among: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Change]]:
    return st.lists(
        st.builds(
            Change,
            st.dictionaries(among, st.sampled_from([0, 1, 30, 100]) | st.none(), max_size=5),
            st.none() | st.tuples(among, among).map(lambda pair: (min(pair), max(pair))),
            st.sampled_from([False, False, True]),
            st.booleans(),
        ),
        min_size=1,
        max_size=25,
    )


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Let files, what is read in one go and what is merged be small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_files, "LEAST_FILE_BYTES", 100)
        patch.setattr(page_files, "MOST_FILE_BYTES", 150)
        patch.setattr(page_files, "MERGED_RECORDS", 3)
        patch.setattr(page_files, "READ_BYTES", 64)
        patch.setattr(page_files, "_STEP", 3)
        yield


class ListedRecords:
    """Pages in files, with a dictionary in place of RocksDB for their records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.records: dict[bytes, bytes] = {}
        self.open()

    def open(self) -> None:
        self.pages = PageFiles(self._folder, sorted(self.records.items()))

    def write(
        self, values: dict[bytes, bytes | None], erased: tuple[bytes, bytes] | None, *, cut: bool = False
    ) -> None:
        prepared = self.pages.prepare(values, erased)
        if prepared is None or cut:
            return
        first, after = prepared.merged or (b"", b"")
        kept = {key: value for key, value in self.records.items() if not first <= key < after}
        self.records = kept | prepared.puts
        self.pages.committed(prepared)
        if prepared.record.erased or prepared.record.deleted:
            needed = self.pages.expired() or b""
            self.records = {key: value for key, value in self.records.items() if key >= needed}
            self.pages.remove()

    @property
    def files(self) -> list[Path]:
        return list(self._folder.glob("*"))


@examples(100)
@given(changes(page_keys), st.lists(page_keys, max_size=8))
def test_pages_in_files_are_what_a_dictionary_holds(script: list[Change], asked: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, store = MemoryStore(), ListedRecords(Path(folder, "pages"))
        for change, values in numbered(script):
            store.write(values, change.erased, cut=change.cut)
            if not change.cut:
                model.write(values, change.erased)
            if change.opened:
                store.pages.close()
                store.open()
            for prefix in PREFIXES:
                assert list(store.pages.items(prefix)) == list(model.items(prefix))
            assert store.pages.get_many(asked) == model.get_many(asked)
        store.write({}, (b"", LATE * 400))
        assert len(store.files) <= 1
        store.pages.close()


@examples(20)
@given(changes(keys), st.lists(keys, max_size=8))
def test_values_in_rocksdb_and_pages_in_files_are_one_store(script: list[Change], asked: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, store = MemoryStore(), RocksStore(Path(folder, "state"))
        for change, values in numbered(script):
            for each in (model, store):
                each.write(values, change.erased)
            if change.opened and change.cut:
                store.close()
                store = RocksStore(Path(folder, "state"))
            assert list(store.items(b"")) == list(model.items(b""))
            assert store.get_many(asked) == model.get_many(asked)
        store.close()


def numbered(script: list[Change]) -> Iterator[tuple[Change, dict[bytes, bytes | None]]]:
    """Yield changes with values that differ from each other where they are long enough for that."""
    fresh = itertools.count()
    for change in script:
        yield (
            change,
            {
                key: None if size is None else (b"%d" % next(fresh)).ljust(size, b".")[:size]
                for key, size in change.sizes.items()
            },
        )
