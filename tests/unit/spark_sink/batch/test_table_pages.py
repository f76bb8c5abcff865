"""Columns of ours are read from their pages as pyarrow reads them; what is not known is left to pyarrow."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from processor.engine.rest import (
    SLACK,
    LowProbe,
    differences_at,
    footer_columns,
    page_head,
    values_begin,
    words_at,
)
from spark_sink.batch.rows.data_files import DataFiles
from spark_sink.batch.rows.own_columns import OWN_SCHEMA, TIME
from spark_sink.batch.rows.table_pages import TablePages, UnknownPagesError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[4]
NUMBERS = ["seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row"]
WORDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.just(2**63 - 1) | st.just(-(2**63))


def table(count: int, seed: int = 1, *, jumps: bool = False) -> pa.Table:
    dice = np.random.default_rng(seed)
    low, high, prints, wild = dice.integers(-(2**63), 2**63, (4, count))
    time = wild if jumps else dice.integers(0, 86_400_000_000, count)
    # Of about 61 bits each: one of 64 begins with a byte, and these do not.
    row = wild[::-1] >> 3 if jumps else np.cumsum(dice.integers(1, 4, count))
    columns = {
        "page": pa.array([f"page/{each % 50}" for each in range(count)]),
        "seqmark_low": pa.array(low),
        "seqmark_high": pa.array(high),
        "seqmark_fingerprint": pa.array(prints),
        "seqmark_time": pa.array(time).cast(TIME),
        "seqmark_date": pa.array(np.zeros(count, np.int32)).cast(pa.date32()),
        "seqmark_run": pa.array(["monday"] * count),
        "seqmark_file": pa.array(["a.parquet"] * count),
        "seqmark_row": pa.array(row),
        "seqmark_collision": pa.nulls(count, pa.string()),
        "seqmark_original_id": pa.nulls(count, pa.string()),
    }
    return pa.table(columns, schema=pa.schema([("page", pa.string()), *OWN_SCHEMA]))


def written(folder: Path, rows: pa.Table) -> Path:
    with DataFiles(str(folder), str(folder), "some") as files:
        files.write(rows, np.zeros(len(rows), np.int64))
    return folder / files.written[0].path


def numbers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    return np.array(rows.column(name).cast(pa.int64()).to_numpy())


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("count", [1, 129, 30_000, 400_000])
def test_files_of_a_batch_are_read_without_a_library(tmp_path: Path, count: int, *, jumps: bool) -> None:
    rows = table(count, jumps=jumps)
    low = numbers(rows, "seqmark_low")
    wanted = np.unique(np.random.default_rng(2).integers(0, count, 500))
    probe = LowProbe(np.unique(low[wanted].view(np.uint64)))
    with TablePages(written(tmp_path, rows)) as pages:
        first = 0
        for group in range(pages.groups):
            found, words = pages.matches(group, probe)
            at = found + first
            assert words.tolist() == low[at].tolist()
            for name in NUMBERS:
                expected = numbers(rows, name)[at]
                assert pages.values(group, name, found).tolist() == expected.tolist()
                assert (
                    pages.words(group, name, found, partial(np.array, expected)).tolist() == expected.tolist()
                )
            assert pages.texts(group, ("seqmark_run", "seqmark_file")) == ("monday", "a.parquet")
            first += pages.rows(group)
            wanted = np.setdiff1d(wanted, at)
    assert first == count
    assert wanted.size == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(WORDS, min_size=1, max_size=300), st.sampled_from(["none", "zstd"]), st.integers(1, 200), st.data()
)
def test_pages_of_any_size_give_the_values_that_pyarrow_gives(
    tmp_path: Path, values: list[int], codec: str, page_rows: int, data: st.DataObject
) -> None:
    rows = pa.table({"seqmark_low": pa.array(values), "seqmark_row": pa.array(values)})
    file = tmp_path / "some.parquet"
    options: dict[str, Any] = {"write_page_checksum": True, "use_dictionary": False, "compression": codec}
    options["column_encoding"] = {"seqmark_low": "PLAIN", "seqmark_row": "DELTA_BINARY_PACKED"}
    pq.write_table(rows, file, data_page_size=1, write_batch_size=page_rows, row_group_size=190, **options)
    probe = LowProbe(np.unique(np.array(values, np.int64).view(np.uint64)))
    with TablePages(file) as pages:
        first = 0
        for group in range(pages.groups):
            count = pages.rows(group)
            part = np.array(values[first : first + count], np.int64)
            found, words = pages.matches(group, probe)
            assert found.tolist() == list(range(count))
            assert words.tolist() == part.tolist()
            some = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), np.int64)
            for name in rows.column_names:
                assert pages.values(group, name, some).tolist() == part[some].tolist()
            first += count


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nulls": ({"seqmark_low": pa.array([1, None, 3])}, {}),
    "a dictionary": ({"seqmark_low": pa.array([1, 1, 1])}, {"use_dictionary": True}),
    "another codec": ({"seqmark_low": pa.array([1, 2, 3])}, {"compression": "snappy"}),
    "pages of version 2": ({"seqmark_low": pa.array([1, 2, 3])}, {"data_page_version": "2.0"}),
    "milliseconds": ({"seqmark_time": pa.array([1, 2, 3]).cast(pa.timestamp("ms"))}, {}),
    "no levels": ({"seqmark_row": pa.array([1, 2, 3])}, {"required": True}),
    "32 bits": ({"seqmark_row": pa.array([1, 2, 3], pa.int32())}, {}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_others_have_written_is_left_to_pyarrow(tmp_path: Path, what: str) -> None:
    columns, options = OTHERS[what]
    file = tmp_path / "some.parquet"
    (name,) = columns
    plain = {"use_dictionary": False, "compression": "none", **options}
    nullable = not plain.pop("required", False)
    rows = pa.table(columns, schema=pa.schema([pa.field(name, columns[name].type, nullable=nullable)]))
    pq.write_table(rows, file, **plain)
    with TablePages(file) as pages, pytest.raises(UnknownPagesError):
        pages.values(0, name, np.arange(3))


def test_texts_that_differ_are_left_to_pyarrow(tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    pq.write_table(pa.table({"a": ["x", "x"], "b": ["x", "y"], "c": ["x", None]}), file)
    with TablePages(file) as pages:
        assert pages.texts(0, ("a", "a")) == ("x", "x")
        assert pages.texts(0, ("a", "b")) is None
        assert pages.texts(0, ("a", "c")) is None


def test_a_page_with_a_bit_that_has_changed_is_not_read(tmp_path: Path) -> None:
    rows = table(2_000)
    file = written(tmp_path, rows)
    with TablePages(file) as pages:
        assert pages.values(0, "seqmark_high", np.arange(3)).size == 3
    column = pq.read_metadata(file).row_group(0).column(2)
    whole = bytearray(file.read_bytes())
    whole[column.data_page_offset + column.total_compressed_size - 5] ^= 16
    file.write_bytes(whole)
    with TablePages(file) as pages, pytest.raises(UnknownPagesError):
        pages.values(0, "seqmark_high", np.arange(3))


def test_a_few_words_are_read_alone_and_none_that_is_not_what_it_has_to_be(tmp_path: Path) -> None:
    rows = table(300_000)
    file, some = written(tmp_path, rows), np.array([0, 5, 131_071, 131_072, 299_999])
    high = numbers(rows, "seqmark_high")[some]
    column = pq.read_metadata(file).row_group(0).column(2)
    whole = bytearray(file.read_bytes())
    # In the first page, of which nothing but two words has to be right.
    whole[column.data_page_offset + 4_000] ^= 16
    file.write_bytes(whole)
    with TablePages(file) as pages:
        assert pages.words(0, "seqmark_high", some, partial(np.array, high)).tolist() == high.tolist()
        wrong = high ^ np.array([0, 1, 0, 0, 0])
        for expected in (lambda: None, partial(np.array, wrong)):
            with pytest.raises(UnknownPagesError):
                pages.words(0, "seqmark_high", some, expected)
        assert pages.words(0, "seqmark_high", some[:0], partial(np.array, high[:0])).size == 0


def test_footers_say_what_pyarrow_says_whatever_other_columns_there_are(tmp_path: Path) -> None:
    low, inner = pa.array([1, None, 3] * 50), pa.array([{"seqmark_low": 1, "list": [1, 2]}] * 150)
    columns = {
        "a" * 300: inner,
        "seqmark_low": low,
        "b": inner,
        "seqmark_row": low,
        "map": pa.array([[("k", 1)]] * 150, pa.map_(pa.string(), pa.int64())),
    }
    rows, file = pa.table(columns), tmp_path / "some.parquet"
    pq.write_table(rows, file, row_group_size=7, compression={"seqmark_low": "none", "seqmark_row": "zstd"})
    found = footer_columns(footer(file), ("seqmark_row", "seqmark_low", "c"))
    metadata = pq.read_metadata(file)
    names = [metadata.schema.column(at).path for at in range(len(metadata.schema))]
    assert found is not None
    assert found.groups == metadata.num_row_groups == 22
    for group, name in [(0, "seqmark_low"), (9, "seqmark_low"), (0, "seqmark_row"), (21, "seqmark_row")]:
        told, place = metadata.row_group(group).column(names.index(name)), found.place(group, name)
        assert found.rows(group) == metadata.row_group(group).num_rows
        assert place is not None
        assert (place.values, place.size) == (told.num_values, told.total_compressed_size)
        assert (place.data, place.has_dictionary) == (told.data_page_offset, told.has_dictionary_page)
        assert place.codec == {"UNCOMPRESSED": 0, "ZSTD": 6}[told.compression]
    with pytest.raises(KeyError, match="c"):
        found.place(0, "c")


def test_a_footer_that_is_zeros_at_its_begin_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, table(2_000))
    raw = bytearray(file.read_bytes())
    begin = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    raw[begin : begin + 64] = bytes(64)
    file.write_bytes(raw)
    with pytest.raises(OSError, match="thrift"), TablePages(file):
        pytest.fail("it was read")


def columns_of(file: Path) -> list[list[int]] | None:
    """Return what a file says of our columns, as a run reads it; None: it is refused."""
    found: list[list[int]] = []
    try:
        with TablePages(file) as pages:
            for group in range(pages.groups):
                every = np.arange(pages.rows(group))
                try:
                    _, words = pages.matches(group, LowProbe(np.arange(1, 6, dtype=np.uint64)))
                    found += [words.tolist(), pages.values(group, "seqmark_row", every).tolist()]
                except UnknownPagesError:
                    with pq.ParquetFile(file) as parquet:
                        read = parquet.read_row_group(group, ["seqmark_low", "seqmark_row"])
                    pages.require_all(group, len(read))
                    # Words that stand as such in memory, as a run takes them.
                    found += [
                        np.concatenate([part.to_numpy() for part in each.chunks]).tolist() for each in read
                    ]
    except (pa.ArrowException, KeyError, OSError, ValueError):
        return None
    return found


def test_of_a_footer_with_a_bit_that_has_changed_no_row_is_forgotten(tmp_path: Path) -> None:
    rows = pa.table({"seqmark_low": [1, 2, 3, 4, 5], "seqmark_row": [6, 7, 8, 9, 10]})
    file, bad = tmp_path / "some.parquet", tmp_path / "bad.parquet"
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(rows, file, row_group_size=3, store_schema=False, write_page_checksum=True, **plain)
    raw = file.read_bytes()
    whole, begin = columns_of(file), len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    assert whole == [[1, 2, 3], [6, 7, 8], [4, 5], [9, 10]]
    wrong = []
    for bit in range(8 * begin, 8 * (len(raw) - 8)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        bad.write_bytes(changed)
        found = columns_of(bad)
        if found is not None and found != whole:
            wrong.append((bit // 8 - begin, bit % 8, found))
    assert wrong == []


def footer(file: Path) -> NDArray[np.uint8]:
    raw = bytearray(file.read_bytes())
    return np.frombuffer(raw, np.uint8)[len(raw) - 8 - int.from_bytes(raw[-8:-4], "little") : -8]


def damaged_footers(cases: int, seed: int) -> int:
    """Read footers with bytes that have changed; returns how many were read all the same."""
    dice, read = np.random.default_rng(seed), 0
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2, None], "b": [{"c": [1]}] * 3}), sink, row_group_size=1)
    raw = np.frombuffer(sink.getvalue().to_pybytes(), np.uint8)
    whole = raw[len(raw) - 8 - int.from_bytes(raw[-8:-4].tobytes(), "little") : -8]
    for _ in range(cases):
        some = whole.copy()
        some[dice.integers(0, some.size, dice.integers(1, 4))] = dice.integers(0, 256)
        some = some[: dice.integers(0, some.size)] if dice.integers(4) == 0 else some
        read += footer_columns(some, ("a", "c")) is not None
    return read


def damaged(cases: int, seed: int) -> int:
    """Read pages with bytes that have changed; returns how many were read all the same."""
    dice, read = np.random.default_rng(seed), 0
    sink = pa.BufferOutputStream()
    rows = pa.table({"a": dice.integers(0, 1_000, 300), "b": dice.integers(-(2**62), 2**62, 300)})
    encodings = {"a": "DELTA_BINARY_PACKED", "b": "PLAIN"}
    pq.write_table(rows, sink, compression="none", use_dictionary=False, column_encoding=encodings)
    raw = sink.getvalue().to_pybytes()
    group = pq.ParquetFile(pa.BufferReader(raw)).metadata.row_group(0)
    for case in range(cases):
        column = group.column(case % 2)
        at, size = column.data_page_offset, column.total_compressed_size
        chunk = np.frombuffer(raw, np.uint8)[at : at + size].copy()
        # Where counts, lengths and widths are: the values themselves may be anything.
        chunk[dice.integers(0, min(size, 120), dice.integers(1, 4))] = dice.integers(0, 256)
        chunk = chunk[: dice.integers(0, size)] if dice.integers(4) == 0 else chunk
        head = page_head(chunk, 0)
        if head is None:
            continue
        page = np.concatenate([chunk[head.begin : head.begin + head.size], np.zeros(SLACK, np.uint8)])
        begin = values_begin(page, head.values)
        if begin is None:
            continue
        some = np.unique(dice.integers(0, max(head.values, 1), 9))
        if case % 2 == 0:
            found = differences_at(page, begin, head.values, some)
            read += found is not None
        elif begin + 8 * head.values <= page.size - SLACK:
            read += words_at(page, begin, some[some < head.values]).size > 0
    return read


def test_as_plain_python_damaged_pages_are_read_within_their_bounds() -> None:
    # Whatever would be read outside raises there.
    program = f"import {__name__} as test; print(test.damaged(3_000, 1), test.damaged_footers(600, 1))"
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    pages, footers = map(int, done.stdout.split())
    assert pages == damaged(3_000, 1) > 100
    assert footers == damaged_footers(600, 1) > 50
