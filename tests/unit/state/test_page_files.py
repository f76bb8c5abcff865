"""Pages in files of their own: what a crash, a bad disk and a full one leave."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rocksdict import Options, Rdict

from processor.errors import RebuildError
from processor.state.home import sizes
from processor.state.kv import page_files
from processor.state.kv.page_records import PageRecord, sorted_pages
from processor.state.kv.rocks import LATE, PAGES_FOLDER, RocksStore, open_store, peek
from processor.state.kv.store import CorruptStoreError, StoreError
from schemas.changelog.ids import ID_PAGE_KIND, id_page_key
from schemas.changelog.values import CorruptStateError
from tests.support.judges.id_state import NOW_MS, Came, IdPartition
from tests.support.worker.disk import mounted, spoil

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
PAGE = bytes(range(250)) * 16
HOUR_MS = 3_600_000
IDS = 2_000


def files(folder: Path) -> list[Path]:
    return sorted((folder / PAGES_FOLDER).glob("*"))


def pages(numbers: range) -> dict[bytes, bytes | None]:
    return {id_page_key(number): b"%d" % number + PAGE for number in numbers}


def records(folder: Path) -> list[bytes]:
    """Return the keys of the records of a store that is closed."""
    db = Rdict(str(folder), Options(raw_mode=True), column_families={"pages": Options(raw_mode=True)})
    family = db.get_column_family("pages")
    found = [key for key in family.keys() if isinstance(key, bytes)]  # noqa: SIM118 - it is no dictionary
    family.close()
    db.close()
    return found


# ---------------------------------------------------------------- what survives


def test_pages_are_there_after_closing_and_opening_and_lie_in_files_one_behind_the_other(
    tmp_path: Path,
) -> None:
    store = RocksStore(tmp_path)
    store.write({id_page_key(2): b"two", b"a": b"1", id_page_key(1): b"one"})
    store.write({id_page_key(3): b"three"})
    store.close()
    assert [file.read_bytes() for file in files(tmp_path)] == [b"twoonethree"]
    store = RocksStore(tmp_path)
    assert [value for _, value in store.items(ID_PAGE_KIND)] == [b"one", b"two", b"three"]
    assert store.get_many([id_page_key(3), id_page_key(4), id_page_key(1)]) == [b"three", None, b"one"]
    store.close()


def test_a_store_without_pages_has_no_files_of_them(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write({b"a": b"1"}, (b"\xffP", b"\xffQ"))
    store.close()
    assert not (tmp_path / PAGES_FOLDER).exists()
    assert records(tmp_path) == []


def test_files_are_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = RocksStore(tmp_path)
        store.write({id_page_key(1): b"one"})
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / PAGES_FOLDER, *files(tmp_path))] == [
        0o700,
        0o600,
    ]
    store.close()


def test_a_kill_between_pages_and_the_batch_leaves_nothing_of_a_write(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib, signal\n"
        "from processor.state.kv.rocks import LATE, RocksStore\n"
        "store = RocksStore(pathlib.Path(sys.argv[1]))\n"
        "store.write({LATE + b'page 001': b'one', b'a': b'1'})\n"
        "prepare = store._pages.prepare\n"
        "def cut(*given):\n"
        "    prepare(*given)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "store._pages.prepare = cut\n"
        "store.write({LATE + b'page 002': b'two', b'a': b'2'})\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False, timeout=300)
    assert run.returncode == -signal.SIGKILL
    assert [file.read_bytes() for file in files(tmp_path)] == [b"onetwo"]

    store, damage = open_store(tmp_path)
    assert (list(store.items(b"")), damage) == ([(b"a", b"1"), (LATE + b"page 001", b"one")], None)
    store.write({LATE + b"page 002": b"2"})
    store.close()
    assert [file.read_bytes() for file in files(tmp_path)] == [b"one2"]


def test_a_write_that_rocksdb_refuses_leaves_nothing_and_the_next_one_takes_its_place(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write({id_page_key(1): b"one"})
    refusing: Any = store
    db = refusing._db
    refusing._db = Refusing(db)
    with pytest.raises(StoreError, match="IO error: refused"):
        store.write({id_page_key(2): b"two", b"a": b"1"}, (id_page_key(1), id_page_key(2)))
    refusing._db = db
    assert list(store.items(b"")) == [(id_page_key(1), b"one")]
    store.write({id_page_key(3): b"three"})
    assert store.get_many([id_page_key(1), id_page_key(2), id_page_key(3)]) == [b"one", None, b"three"]
    store.close()


class Refusing:
    """A database that takes no batch."""

    def __init__(self, db: Rdict) -> None:
        self._db = db

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    def write(self, batch: object) -> None:
        del batch
        raise Exception("IO error: refused")  # noqa: TRY002 - as rocksdict does


def test_a_disk_that_is_full_takes_nothing_of_a_write_and_goes_on_when_it_has_room() -> None:
    with mounted("32m") as disk:
        store = RocksStore(disk.path / "state")
        store.write(pages(range(10)))
        disk.fill(64 * 1024)
        with pytest.raises(StoreError, match="No space left") as caught:
            store.write({**pages(range(10, 110)), b"a": b"1"})
        assert not isinstance(caught.value, CorruptStoreError)
        assert len(list(store.items(b""))) == 10
        disk.free()
        store.write(pages(range(10, 12)))
        assert dict(store.items(b"")) == pages(range(12))
        store.close()
        again, damage = open_store(disk.path / "state")
        assert (dict(again.items(b"")), damage) == (pages(range(12)), None)
        again.close()


# ---------------------------------------------------------------- what is not whole


def cut(folder: Path) -> None:
    (file,) = files(folder)
    os.truncate(file, file.stat().st_size - 1)


def lose(folder: Path) -> None:
    (file,) = files(folder)
    file.unlink()


@pytest.mark.parametrize("damage", [cut, lose])
def test_a_file_that_is_cut_or_missing_is_corruption_when_it_is_opened(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    store = RocksStore(tmp_path)
    store.write({**pages(range(3)), b"a": b"1"})
    store.close()
    damage(tmp_path)
    store, found = open_store(tmp_path)
    assert found is not None
    assert ".pages" in found
    assert list(store.items(b"")) == []
    store.write(pages(range(3)))
    assert dict(store.items(b"")) == pages(range(3))
    store.close()


def test_a_file_that_is_cut_while_it_is_used_is_corruption_when_it_is_read(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write(pages(range(3)))
    cut(tmp_path)
    assert store.get(id_page_key(1)) == b"1" + PAGE
    with pytest.raises(CorruptStoreError, match="is cut"):
        store.get_many([id_page_key(1), id_page_key(2)])
    with pytest.raises(CorruptStoreError, match="is cut"):
        list(store.items(b""))
    store.close()


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_record_that_is_not_whole_is_refused(at: int) -> None:
    record = PageRecord(3, 50, [(b"a", b"b")], [b"c"], sorted_pages([b"\xffP%08d" % 1], [20], 3, 30))
    value = bytearray(record.encode(b"key"))
    assert PageRecord.decode(b"key", bytes(value)).encode(b"key") == value
    for wrong in (bytes(value[:at]), bytes(value) + b"\0"):
        with pytest.raises(CorruptStateError):
            PageRecord.decode(b"key", wrong)
    with pytest.raises(CorruptStateError):
        PageRecord.decode(b"another", bytes(value))
    value[at] ^= 1
    with pytest.raises(CorruptStateError):
        PageRecord.decode(b"key", bytes(value))


def filled(folder: Path, **dedup: object) -> IdPartition:
    """Return a partition with ids, which lie in page files."""
    partition = IdPartition(window=HOUR_MS, **dedup)
    partition.open(RocksStore(folder))
    for start in range(0, IDS, 500):
        partition.take(ids(range(start, start + 500)))
        partition.commit()
    return partition


def ids(numbers: range) -> list[Came]:
    return [Came(b"%d" % number, NOW_MS) for number in numbers]


def duplicates(partition: IdPartition) -> int:
    return sum(1 for verdict in partition.take(ids(range(IDS))).verdict if verdict)


def test_flipped_bits_of_pages_decide_nothing_and_the_state_is_read_anew(
    tmp_path: Path,
) -> None:
    partition = filled(tmp_path)
    assert duplicates(partition) == IDS
    for file in files(tmp_path):
        spoil(file)
    with pytest.raises(RebuildError, match="local state"):
        duplicates(partition)
    partition.open()
    assert duplicates(partition) == IDS
    partition.table.close()


# ---------------------------------------------------------------- what goes


def test_files_go_with_their_last_page_and_their_records_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_files, "LEAST_FILE_BYTES", 10 * len(PAGE))
    monkeypatch.setattr(page_files, "MOST_FILE_BYTES", 10 * len(PAGE))
    store = RocksStore(tmp_path)
    for start in range(0, 100, 5):
        store.write(pages(range(start, start + 5)))
    assert len(files(tmp_path)) == 10
    store.write({}, (id_page_key(0), id_page_key(35)))
    assert len(files(tmp_path)) == 7
    store.write({}, (id_page_key(35), id_page_key(99)))
    assert len(files(tmp_path)) == 1
    store.close()
    assert len(records(tmp_path)) <= 4
    store = RocksStore(tmp_path)
    assert dict(store.items(b"")) == pages(range(99, 100))
    store.write(pages(range(100, 110)))
    assert len(files(tmp_path)) == 2
    store.close()


def test_what_is_read_while_its_file_goes_is_an_error_and_no_other_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_files, "LEAST_FILE_BYTES", len(PAGE))
    store = RocksStore(tmp_path)
    for number in range(3):
        store.write(pages(range(number, number + 1)))
    reading = store.items(LATE)
    assert next(reading)[0] == id_page_key(0)
    store.write({}, (id_page_key(0), id_page_key(2)))
    with pytest.raises(StoreError, match="was erased"):
        next(reading)
    store.close()


def test_many_small_writes_are_few_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "MERGED_RECORDS", 10)
    store = RocksStore(tmp_path)
    for number in range(95):
        store.write({id_page_key(number): b"%d" % number})
    store.close()
    assert len(records(tmp_path)) == 9 + 5
    store = RocksStore(tmp_path)
    assert dict(store.items(b"")) == {id_page_key(number): b"%d" % number for number in range(95)}
    store.close()


def test_what_was_erased_stays_erased_when_records_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_files, "MERGED_RECORDS", 3)
    monkeypatch.setattr(page_files, "LEAST_FILE_BYTES", 3 * len(PAGE))
    store = RocksStore(tmp_path)
    store.write(pages(range(4)))
    store.write(pages(range(4, 5)), (id_page_key(0), id_page_key(2)))
    store.write({id_page_key(3): None})
    for number in range(5, 12):
        store.write(pages(range(number, number + 1)))
    there = pages(range(2, 3)) | pages(range(4, 12))
    for _ in range(2):
        assert dict(store.items(b"")) == there
        store.close()
        store = RocksStore(tmp_path)
    store.close()


def test_a_page_takes_twenty_bytes_of_memory(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write({id_page_key(number): b"%d" % number for number in range(8_000)})
    columns: Any = store._pages._directory._series[b"\xffP", 8]._all
    assert sum(each.itemsize for each in columns) == 20
    assert columns.number.size <= 8_000 * 9 // 8 + 64
    store.close()


def test_the_size_of_a_state_is_that_of_its_pages_too(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "clicks" / "home-0" / "p" / "0")
    store.write(pages(range(100, 200)))
    store.close()
    (size,) = sizes(tmp_path, "clicks", ["p"])
    assert 100 * len(PAGE) < size < 110 * len(PAGE)


def test_a_folder_that_is_taken_away_while_it_is_used_is_corruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_files, "LEAST_FILE_BYTES", 1)
    store = RocksStore(tmp_path / "state")
    store.write(pages(range(1)))
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(CorruptStoreError):
        store.write(pages(range(1, 2)))
    store.close()


# ---------------------------------------------------------------- who else opens the folder


def test_a_store_of_before_the_release_is_thrown_away(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    db = Rdict(str(tmp_path), options, column_families={"late": Options(raw_mode=True)})
    db.put(b"a", b"1")
    db.close()
    store, damage = open_store(tmp_path)
    assert list(store.items(b"")) == []
    assert damage is not None
    store.close()


def test_a_value_of_a_store_in_use_can_be_looked_at_and_nothing_in_its_folder_changes(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write({id_page_key(1): b"one", b"a": b"1"})
    (file,) = files(tmp_path)
    with file.open("ab") as opened:
        opened.write(b"what a write has begun")
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    assert (peek(tmp_path, b"a"), peek(tmp_path, b"b")) == (b"1", None)
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before
    store.close()


def test_a_store_that_another_has_open_keeps_what_it_has_begun_to_write(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write({id_page_key(1): b"one"})
    (file,) = files(tmp_path)
    with file.open("ab") as opened:
        opened.write(b"begun")
    with pytest.raises(StoreError):
        open_store(tmp_path)
    assert file.read_bytes() == b"onebegun"
    store.close()


def test_a_closed_store_reads_and_writes_no_page(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write({id_page_key(1): b"one"})
    reading = store.items(LATE)
    store.close()
    for call in (
        lambda: store.get(id_page_key(1)),
        lambda: store.write({id_page_key(2): b""}),
        lambda: next(reading),
    ):
        with pytest.raises(StoreError):
            call()
