"""What the names of folders say of a file stands beside it, and is no part of the records that it has."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from processor.errors import StopError
from spark_sink.backfill.hashed import hashed_file
from spark_sink.backfill.plan import HistoryColumns, HistoryPlan, IdSource
from spark_sink.backfill.tables import hash_rows, read_history_footer
from spark_sink.batch.inputs import find_inputs, with_folders
from spark_sink.batch.plan import Split
from spark_sink.batch.rows.constants import as_texts

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"id": ["a", "b"], "amount": [1, 2]})


def put(file: Path, rows: pa.Table = ROWS) -> Path:
    """Write rows, each with a time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.append_column("time", pa.array([0] * len(rows), pa.int64())), file)
    return file


def names(given: Path) -> list[list[tuple[str, str | None]]]:
    found = with_folders(find_inputs([str(given)], "parquet")[0], None)
    return [[(each.name, each.value) for each in file.constants] for file in found]


def hashed(tmp_path: Path, file: Path, *ids: str) -> bytes:
    """Return what a backfill with a fingerprint writes of a file's rows."""
    (found,) = with_folders(find_inputs([str(file)], "parquet")[0], None)
    columns = HistoryColumns([IdSource(each, as_bytes=False) for each in ids or ("id",)], "time")
    settings: dict[str, Any] = {"partitions": 1, "secret": bytes(16), "exclude": []}
    plan = HistoryPlan("parquet", str(tmp_path), [str(file)], columns, **settings, constants=[found.constants])
    assert hash_rows(plan, Split(0, 0, groups=1)).faults == 0
    return hashed_file(str(tmp_path), 0).read_bytes()


def rows_of(tmp_path: Path, file: Path, columns: HistoryColumns, **more: Any) -> int:
    """Return how many rows of a history count."""
    (found,) = with_folders(find_inputs([str(file)], "parquet")[0], None)
    constants = [as_texts(found.constants, columns.texts)]
    settings: dict[str, Any] = {"partitions": 4, "secret": bytes(16), "exclude": None, **more}
    plan = HistoryPlan("parquet", str(tmp_path), [str(file)], columns, **settings, constants=constants)
    read_history_footer(plan, 0)
    return sum(hash_rows(plan, Split(0, 0, groups=1)).taken)


@pytest.mark.parametrize("role", ["id", "key"])
def test_a_decimal_that_is_no_whole_number_is_no_part_of_an_id_and_no_key(tmp_path: Path, role: str) -> None:
    amounts = pa.array([Decimal("10.25"), Decimal("10.75")], pa.decimal128(10, 2))
    file = put(tmp_path / "a.parquet", ROWS.set_column(1, "amount", amounts))
    columns = HistoryColumns(
        [IdSource("amount" if role == "id" else "id", as_bytes=False)], "time", key="amount"
    )

    with pytest.raises(StopError, match=r"column amount has the type decimal128\(10, 2\)"):
        rows_of(tmp_path, file, columns)


def test_whole_decimals_are_the_numbers_that_they_are_or_refused_by_name(tmp_path: Path) -> None:
    def read(*values: int) -> int:
        whole = pa.array([Decimal(each) for each in values], pa.decimal128(38, 0))
        file = put(tmp_path / "a.parquet", pa.table({"id": whole}))
        return rows_of(tmp_path, file, HistoryColumns([IdSource("id", as_bytes=False)], "time"))

    assert read(-1, 5) == 2
    assert read(5, 2**64 - 1) == 2
    with pytest.raises(StopError, match=r"a\.parquet, from row 0 on: .* no whole numbers of 64 bits"):
        read(5, 2**64)


def test_a_row_without_an_offset_is_not_taken_for_one_before_the_cut(tmp_path: Path) -> None:
    columns = HistoryColumns([IdSource("id", as_bytes=False)], "time", offset="o")

    def read(*offsets: int | None) -> int:
        ids = [str(each) for each in offsets]
        file = put(tmp_path / "a.parquet", pa.table({"id": ids, "o": pa.array(offsets, pa.int64())}))
        return rows_of(tmp_path, file, columns, before=[100, 0, 0, 0])

    assert read(99, 100) == 1
    with pytest.raises(StopError, match=r"a\.parquet, row 2 has no offset"):
        read(99, 100, None)


def test_what_a_folder_says_of_a_key_or_a_header_is_a_text_as_it_is_written(tmp_path: Path) -> None:
    (found,) = with_folders(
        find_inputs([str(put(tmp_path / "shop=007" / "n=3" / "a.parquet"))], "parquet")[0], None
    )
    columns = HistoryColumns([IdSource("id", as_bytes=False)], "time", key="shop")

    told = [(each.name, each.value, str(each.type)) for each in as_texts(found.constants, columns.texts)]
    assert told == [("shop", "007", "string"), ("n", "3", "int64")]


@pytest.mark.parametrize("text", ["+5", "0x10", "\u0663"])
def test_what_arrow_does_not_read_as_a_whole_number_in_decimal_digits_is_a_text(
    tmp_path: Path, text: str
) -> None:
    files = find_inputs([str(put(tmp_path / f"n={text}" / "a.parquet"))], "parquet")[0]
    for known in (None, pa.schema([("n", pa.int64())])):
        (found,) = with_folders(files, known)
        assert [str(each.type) for each in found.constants] == ["string"]


def test_a_column_that_only_folders_say_is_not_in_the_fingerprint_of_a_history(tmp_path: Path) -> None:
    outside, inside = put(tmp_path / "a.parquet"), put(tmp_path / "date=2026-01-05" / "b.parquet")

    assert hashed(tmp_path, inside) == hashed(tmp_path, outside)


def test_a_column_that_a_file_has_itself_is_in_the_fingerprint_whatever_its_folder_is_called(
    tmp_path: Path,
) -> None:
    of_file = ROWS.append_column("region", pa.array(["eu", "us"]))
    without, outside = put(tmp_path / "a.parquet"), put(tmp_path / "b.parquet", of_file)
    inside = put(tmp_path / "region=eu" / "c.parquet", of_file)

    assert hashed(tmp_path, inside) == hashed(tmp_path, outside) != hashed(tmp_path, without)


def test_a_folder_that_is_named_as_a_part_of_the_id_is_in_the_value_and_in_its_fingerprint(
    tmp_path: Path,
) -> None:
    of_file = ROWS.append_column("region", pa.array(["eu", "eu"]))
    outside, inside = put(tmp_path / "a.parquet", of_file), put(tmp_path / "region=eu" / "b.parquet")

    assert hashed(tmp_path, inside, "id", "region") == hashed(tmp_path, outside, "id", "region")


def test_folders_above_the_input_are_no_columns_but_those_that_its_own_path_ends_with(tmp_path: Path) -> None:
    put(tmp_path / "env=1" / "raw" / "date=2026-01-05" / "hour=3" / "a.parquet")
    found = [[("date", "2026-01-05"), ("hour", "3")]]
    raw = tmp_path / "env=1" / "raw"

    assert names(raw) == found
    assert names(raw / "date=2026-01-05") == names(raw / "date=2026-01-05" / "hour=3") == found
    assert names(raw / "date=2026-01-05" / "hour=3" / "a.parquet") == found
    assert names(tmp_path) == names(tmp_path / "env=1") == [[("env", "1"), *found[0]]]


def test_two_folders_of_one_name_above_the_input_are_not_refused(tmp_path: Path) -> None:
    put(tmp_path / "v=1" / "v=2" / "raw" / "a.parquet")

    assert names(tmp_path / "v=1" / "v=2" / "raw") == [[]]
    with pytest.raises(StopError, match="two of its folders name a column v"):
        names(tmp_path)
