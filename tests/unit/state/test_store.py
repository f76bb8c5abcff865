"""One contract for every store: what holds for memory holds for RocksDB."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rocksdict import Options, Rdict

from processor.state.kv.rocks import CACHE, CACHE_BYTES, RocksStore, open_store
from processor.state.kv.store import CorruptStoreError, MemoryStore, StoreError
from tests.support.worker.disk import mounted, spoil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.state.kv.store import Store

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return an empty store of each kind."""
    made: Store = MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "state")
    yield made
    made.close()


# ---------------------------------------------------------------- the contract


def test_what_was_put_is_got_and_what_was_not_is_none(store: Store) -> None:
    store.write({b"a": b"1", b"": b"empty key", b"e": b""})
    assert [store.get(key) for key in (b"a", b"", b"e", b"b")] == [b"1", b"empty key", b"", None]


def test_a_later_write_replaces_and_none_deletes(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"1"})
    store.write({b"a": b"2", b"b": None, b"never was": None})
    assert list(store.items(b"")) == [(b"a", b"2")]


def test_items_come_in_byte_order(store: Store) -> None:
    keys = [b"\xff\xff", b"b", b"\x00", b"a\xff", b"a", b"a\x00", b"\x00L", b"W"]
    store.write({key: key[::-1] for key in keys})
    assert list(store.items(b"")) == [(key, key[::-1]) for key in sorted(keys)]


def test_only_items_with_the_prefix_come(store: Store) -> None:
    store.write(dict.fromkeys([b"V\xff", b"W", b"W\x00", b"Wz", b"W\xff\xff", b"X"], b"1"))
    assert [key for key, _ in store.items(b"W")] == [b"W", b"W\x00", b"Wz", b"W\xff\xff"]
    assert list(store.items(b"none")) == []


def test_clear_forgets_everything_and_the_store_goes_on(store: Store) -> None:
    store.write({b"a": b"1"})
    store.clear()
    assert list(store.items(b"")) == []
    store.write({b"b": b"2"})
    assert list(store.items(b"")) == [(b"b", b"2")]


def test_clear_works_while_items_are_being_looked_at(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"2"})
    assert next(store.items(b""), None) == (b"a", b"1")
    store.clear()
    assert store.get(b"a") is None


def test_many_are_got_at_once_in_the_order_they_are_asked_for(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"", b"c": b"3"})
    assert store.get_many([b"c", b"x", b"a", b"b", b"c"]) == [b"3", None, b"1", b"", b"3"]
    assert store.get_many([]) == []


def test_what_is_erased_is_gone_and_what_is_put_with_it_is_there(store: Store) -> None:
    store.write(dict.fromkeys([b"\x00I1", b"\x00I2", b"\x00I3", b"\x00J", b"P"], b"old"))
    store.write({b"\x00I2": b"new", b"P": b"new"}, (b"\x00I", b"\x00I3"))
    assert dict(store.items(b"")) == {
        b"\x00I2": b"new",
        b"\x00I3": b"old",
        b"\x00J": b"old",
        b"P": b"new",
    }
    store.write({}, (b"\x00I", b"\x00I3"))
    assert store.get_many([b"\x00I2", b"\x00I3"]) == [None, b"old"]


def test_keys_that_lie_apart_are_got_listed_and_erased_as_all_others(store: Store) -> None:
    keys = [b"\x00a", b"b", b"\xfe", b"\xff", b"\xffa", b"\xffb"]
    store.write({key: key for key in reversed(keys)})
    assert [key for key, _ in store.items(b"")] == keys
    assert [key for key, _ in store.items(b"\xff")] == keys[3:]
    assert store.get(b"\xffa") == b"\xffa"
    assert store.get_many([b"\xffb", b"b", b"\xffc"]) == [b"\xffb", b"b", None]
    assert store.get_many([b"\xffb", b"\xff"]) == [b"\xffb", b"\xff"]
    store.write({b"\xffb": None, b"\xffc": b""}, (b"\xff", b"\xffb"))
    assert [key for key, _ in store.items(b"")] == [*keys[:3], b"\xffc"]
    store.write({}, (b"b", b"\xffd"))
    assert [key for key, _ in store.items(b"")] == keys[:1]


def test_a_write_of_nothing_changes_nothing(store: Store) -> None:
    store.write({b"a": b"1"})
    store.write({})
    assert list(store.items(b"")) == [(b"a", b"1")]


# ---------------------------------------------------------------- what survives, in RocksDB


def test_what_was_written_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    first = RocksStore(tmp_path)
    first.write({b"a": b"1", b"b": b"2"})
    first.close()
    second, damage = open_store(tmp_path)
    assert (list(second.items(b"")), damage) == ([(b"a", b"1"), (b"b", b"2")], None)
    second.close()


def test_what_was_written_is_there_after_kill_9_all_of_a_write_or_none(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib, signal\n"
        "from processor.state.kv.rocks import RocksStore\n"
        "store = RocksStore(pathlib.Path(sys.argv[1]))\n"
        "for n in range(50):\n"
        "    store.write({b'a': b'%d' % n, b'b': b'%d' % n})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False, timeout=300)
    assert run.returncode == -signal.SIGKILL
    store, damage = open_store(tmp_path)
    assert (list(store.items(b"")), damage) == ([(b"a", b"49"), (b"b", b"49")], None)
    store.close()


def test_a_folder_that_is_open_elsewhere_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    first = RocksStore(tmp_path)
    first.write({b"a": b"1"})
    with pytest.raises(StoreError, match=str(tmp_path)):
        open_store(tmp_path)
    assert first.get(b"a") == b"1"
    first.close()


def test_a_folder_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from processor.state.kv.rocks import RocksStore\n"
        "store = RocksStore(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreError):
            open_store(tmp_path)
        other.communicate()


def test_values_lie_on_disk_byte_for_byte_so_that_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    tagged = {b"%d" % tag: bytes([tag]) + pickle.dumps(print) for tag in range(10)}
    store = RocksStore(tmp_path)
    store.write(tagged)
    store.close()
    raw = Rdict(str(tmp_path), Options(raw_mode=True))
    assert dict(raw.items()) == tagged
    raw.close()


@pytest.mark.parametrize("name", ["state", "clock-in", "blocks"])
def test_a_corrupt_folder_is_made_anew_whatever_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    damaged_store(folder)
    store, damage = open_store(folder)
    assert damage is not None
    assert list(store.items(b"")) == []
    store.write({b"b": b"2"})
    assert store.get(b"b") == b"2"
    store.close()


@pytest.mark.parametrize(
    ("said", "corrupt"),
    [
        ("Corruption: block checksum mismatch: stored = 1, computed = 2 in 000009.sst", True),
        ("Corruption: Can't access /000009.sst: IO error: No such file or directory", True),
        ("IO error: No such file or directory: While opening a file: /state/MANIFEST-000005", True),
        ("IO error: No space left on device: While appending to file: /state/000009.sst", False),
        ("IO error: While pread offset 0 len 4096: /state/000009.sst: Input/output error", False),
        ("IO error: lock hold by current process, acquire time 1: /state/LOCK: No locks available", False),
        ("IO error: Permission denied: While open a file: /Corruption/LOCK", False),
    ],
)
def test_only_what_is_corrupt_is_thrown_away(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    corrupt: bool,  # noqa: FBT001 - a case
) -> None:
    (tmp_path / "kept").write_bytes(b"")
    opened, refusals = Rdict, [said]

    def refuse(*args: object, **named: object) -> Rdict:
        if refusals:
            raise Exception(refusals.pop())  # noqa: TRY002 - as rocksdict does
        return opened(*args, **named)

    monkeypatch.setattr("processor.state.kv.rocks.Rdict", refuse)
    if corrupt:
        store, damage = open_store(tmp_path)
        store.close()
        assert damage is not None
        assert said in damage
    else:
        with pytest.raises(StoreError, match="see to the disk") as caught:
            open_store(tmp_path)
        assert not isinstance(caught.value, CorruptStoreError)
    assert (tmp_path / "kept").exists() != corrupt


def test_flipped_bytes_in_a_file_of_values_are_corruption_when_they_are_read(tmp_path: Path) -> None:
    filled = RocksStore(tmp_path)
    filled.write({b"%d" % number: os.urandom(4096) for number in range(500)})
    filled.close()
    store, damage = open_store(tmp_path)
    assert damage is None
    for file in tmp_path.glob("*.sst"):
        spoil(file)
    with pytest.raises(CorruptStoreError, match="orruption"):
        store.get_many([b"%d" % number for number in range(500)])
    try:
        list(store.items(b""))
    except CorruptStoreError:
        # With the traceback at hand, as whoever logs it has it.
        store.clear()
    assert list(store.items(b"")) == []
    store.close()


def test_what_was_read_takes_no_more_memory_with_many_stores_than_with_one(tmp_path: Path) -> None:
    most = 4 * 1024 * 1024
    CACHE.set_capacity(most)
    try:
        for number in range(3):
            keys = [b"%d" % key for key in range(2_000)]
            filled = RocksStore(tmp_path / str(number))
            filled.write({key: os.urandom(4096) for key in keys})
            filled.close()
            store = RocksStore(tmp_path / str(number))
            CACHE.set_capacity(0)
            CACHE.set_capacity(most)
            assert None not in store.get_many(keys)
            assert most // 2 < CACHE.get_usage() <= most
            store.close()
    finally:
        CACHE.set_capacity(CACHE_BYTES)


def test_a_disk_that_is_full_is_no_corruption_and_what_was_written_is_there_when_it_has_room() -> None:
    with mounted("32m") as disk:
        store = RocksStore(disk.path / "state")
        store.write({b"a": b"1"})
        disk.fill()
        with pytest.raises(StoreError, match="No space left") as caught:
            fill(store)
        assert not isinstance(caught.value, CorruptStoreError)
        store.close()
        disk.free()
        again, damage = open_store(disk.path / "state")
        assert (again.get(b"a"), damage) == (b"1", None)
        again.close()


def test_where_no_folder_can_be_made_the_error_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file/state"):
        RocksStore(tmp_path / "file" / "state")


def test_a_closed_store_is_an_error_and_no_crash(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.close()
    with pytest.raises(StoreError):
        store.get(b"a")
    with pytest.raises(StoreError):
        store.write({b"a": b"1"})
    with pytest.raises(StoreError):
        list(store.items(b""))


def damaged_store(folder: Path) -> None:
    """Make a store whose list of files is noise."""
    store = RocksStore(folder)
    store.write({b"a": b"1"})
    store.close()
    (folder / "CURRENT").write_bytes(b"noise")


def fill(store: Store) -> None:
    """Write 40 MB."""
    for number in range(10_000):
        store.write({b"%d" % number: os.urandom(4096)})
