"""Rows of the table whose ids are new are found, whoever wrote the file; of a damaged one none is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from processor.engine.rest import LowProbe
from processor.errors import StopError
from spark_sink.batch.plan import RunPlan
from spark_sink.batch.rows.data_files import DataFiles
from spark_sink.batch.rows.own_columns import OWN_SCHEMA, TIME
from spark_sink.batch.table.layout import DAY_US, DUPLICATES
from spark_sink.batch.tasks.probe import ProbedFile, matching

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

DAY = 20_454
"""2026-01-01."""
NUMBERS = ["seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row"]
Found = tuple[list[list[int]], list[tuple[str, str]]]


def plan(*, owners: bool = True, prints: bool = True) -> RunPlan:
    """Return the plan of a run with receipts or without them, with fingerprints or without them."""
    folders = {DUPLICATES: "duplicates" if owners else None}
    exclude: list[str] | None = [] if prints else None
    some: dict[str, Any] = {"batch": "", "run": "", "number": 0, "attempt": "", "staging": "", "output": ""}
    some |= {"format": "parquet", "files": [], "names": [], "id": [], "event_time": "", "window_us": DAY_US}
    some |= {"normal": [], "key": b"", "renamed": None, "rename_first": False, "since_day": None, "buckets": 1}
    return RunPlan(**some, folders=folders, exclude=exclude, on_collision="pass")


def table(count: int, seed: int = 1) -> pa.Table:
    dice = np.random.default_rng(seed)
    low, high, prints, row = dice.integers(-(2**63), 2**63, (4, count))
    time = DAY * DAY_US + 1_000 * dice.integers(0, 86_400_000, count)
    names = dice.integers(0, 3, count).tolist()
    columns = {
        "page": pa.array([f"page/{each % 50}" for each in range(count)]),
        "seqmark_low": pa.array(low),
        "seqmark_high": pa.array(high),
        "seqmark_fingerprint": pa.array(prints),
        "seqmark_time": pa.array(time).cast(TIME),
        "seqmark_date": pa.array(np.full(count, DAY, np.int32)).cast(pa.date32()),
        "seqmark_run": pa.array(["monday" if each else "sunday" for each in names]),
        "seqmark_file": pa.array([f"{each}.parquet" for each in names]),
        "seqmark_row": pa.array(row),
        "seqmark_collision": pa.nulls(count, pa.string()),
        "seqmark_original_id": pa.nulls(count, pa.string()),
    }
    return pa.table(columns, schema=pa.schema([("page", pa.string()), *OWN_SCHEMA]))


def written(folder: Path, rows: pa.Table) -> Path:
    with DataFiles(str(folder), str(folder), "some") as files:
        files.write(rows, np.full(len(rows), DAY, np.int64))
    return folder / files.written[0].path


def numbers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    return np.array(rows.column(name).cast(pa.int64()).to_numpy())


def found_in(file: Path, wanted: NDArray[np.int64], run: RunPlan, *, timed: bool = True) -> Found:
    """Return the rows of a file that a run finds, and the names that they have numbers of."""
    names: dict[tuple[str, str], int] = {}
    lows = LowProbe(np.unique(wanted.view(np.uint64)))
    found = [*matching(ProbedFile(str(file), DAY, timed), run, lows, names)]
    return np.concatenate([np.zeros((0, 6), np.int64), *found]).tolist(), list(names)


def expected(rows: pa.Table, at: NDArray[np.int64]) -> list[list[Any]]:
    """Return the same with the names in place of their numbers."""
    names = [rows.column(name).to_pylist() for name in ("seqmark_file", "seqmark_run")]
    columns = [numbers(rows, name)[at].tolist() for name in NUMBERS]
    return [[*row, tuple(each[k] for each in names)] for k, *row in zip(at.tolist(), *columns, strict=True)]


@pytest.mark.parametrize("count", [1, 30_000, 600_000])
def test_rows_that_match_come_with_what_is_asked_for(tmp_path: Path, count: int) -> None:
    rows = table(count)
    file, at = written(tmp_path, rows), np.unique(np.random.default_rng(2).integers(0, count, 500))
    wanted = numbers(rows, "seqmark_low")[at]
    found, names = found_in(file, wanted, plan())
    assert [[*row, names[number]] for *row, number in found] == expected(rows, at)
    few, nobody = found_in(file, wanted, plan(owners=False, prints=False), timed=False)
    assert few == [[low, high, 0, DAY * DAY_US, 0, 0] for low, high, *_ in found]
    assert nobody == [("", "")]
    assert found_in(file, wanted[:0], plan()) == ([], [])


OTHERS: dict[str, dict[str, Any]] = {
    "dictionaries": {"use_dictionary": True},
    "another codec": {"compression": "snappy"},
    "pages of version 2": {"data_page_version": "2.0"},
    "many row groups and pages": {"row_group_size": 700, "data_page_size": 1, "write_batch_size": 100},
}


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("unit", ["us", "ms"])
@pytest.mark.parametrize("how", OTHERS)
def test_files_that_others_have_merged_are_read_the_same(
    tmp_path: Path, how: str, unit: str, zone: str | None
) -> None:
    rows, file = table(2_000), tmp_path / "some.parquet"
    at = np.arange(0, 2_000, 3)
    times = rows.column("seqmark_time").cast(pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    place = rows.schema.get_field_index("seqmark_time")
    pq.write_table(rows.set_column(place, "seqmark_time", times), file, **OTHERS[how])
    found, names = found_in(file, numbers(rows, "seqmark_low")[at], plan())
    assert [[*row, names[number]] for *row, number in found] == expected(rows, at)


def without(rows: pa.Table, name: str) -> pa.Table:
    """Return rows of which the last has no value in a column."""
    values = rows.column(name).to_pylist()[:-1]
    return rows.set_column(
        rows.schema.get_field_index(name), name, pa.array([*values, None], rows.schema.field(name).type)
    )


@pytest.mark.parametrize("name", ["seqmark_low", "seqmark_high", "seqmark_time", "seqmark_row"])
def test_rows_without_what_each_has_are_refused(tmp_path: Path, name: str) -> None:
    rows, file = without(table(9), name), tmp_path / "some.parquet"
    pq.write_table(rows, file)
    with pytest.raises(StopError, match=f"{name} is .* null"):
        found_in(file, numbers(table(9), "seqmark_low"), plan())


def test_times_of_another_date_are_refused_where_they_matter(tmp_path: Path) -> None:
    rows = table(9)
    file, wanted = written(tmp_path, rows), numbers(rows, "seqmark_low")
    another = ProbedFile(str(file), DAY + 1, timed=True)
    with pytest.raises(StopError, match="another date"):
        list(matching(another, plan(), LowProbe(np.unique(wanted.view(np.uint64))), {}))


def test_a_page_with_a_bit_that_has_changed_is_not_read(tmp_path: Path) -> None:
    rows = table(2_000)
    file, wanted = written(tmp_path, rows), numbers(rows, "seqmark_low")
    assert len(found_in(file, wanted, plan())[0]) == 2_000
    column = pq.read_metadata(file).row_group(0).column(2)
    whole = bytearray(file.read_bytes())
    whole[column.data_page_offset + column.total_compressed_size - 5] ^= 16
    file.write_bytes(whole)
    with pytest.raises(OSError, match="CRC"):
        found_in(file, wanted, plan())


def test_a_footer_that_is_zeros_at_its_begin_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, table(2_000))
    raw = bytearray(file.read_bytes())
    begin = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    raw[begin : begin + 64] = bytes(64)
    file.write_bytes(raw)
    with pytest.raises(StopError, match="cut or corrupt"):
        found_in(file, np.arange(3), plan())


def test_of_a_footer_with_a_bit_that_has_changed_no_row_is_forgotten(tmp_path: Path) -> None:
    file, bad = tmp_path / "some.parquet", tmp_path / "bad.parquet"
    times = pa.array([DAY * DAY_US + 1_000 * each for each in range(5)]).cast(TIME)
    rows = pa.table({"seqmark_low": [1, 2, 3, 4, 5], "seqmark_high": [6, 7, 8, 9, 10], "seqmark_time": times})
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(rows, file, row_group_size=3, store_schema=False, write_page_checksum=True, **plain)
    raw, run, wanted = file.read_bytes(), plan(owners=False, prints=False), np.arange(1, 6)
    whole, begin = found_in(file, wanted, run), len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    assert [row[:2] for row in whole[0]] == [[1, 6], [2, 7], [3, 8], [4, 9], [5, 10]]
    wrong = []
    for bit in range(8 * begin, 8 * (len(raw) - 8)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        bad.write_bytes(changed)
        try:
            found = found_in(bad, wanted, run)
        except (StopError, pa.ArrowException, OSError, KeyError, ValueError):
            continue
        if found != whole:
            wrong.append((bit // 8 - begin, bit % 8, found))
    assert wrong == []
