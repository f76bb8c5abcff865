"""What the names of folders say of a file stands beside it, and is no part of the records that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from processor.errors import StopError
from spark_sink.backfill.hashed import hashed_file
from spark_sink.backfill.plan import HistoryColumns, HistoryPlan, IdSource
from spark_sink.backfill.tables import hash_rows
from spark_sink.batch.inputs import find_inputs, with_folders
from spark_sink.batch.plan import Split

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"id": ["a", "b"], "amount": [1, 2]})


def put(file: Path, rows: pa.Table = ROWS) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return file


def names(given: Path) -> list[list[tuple[str, str | None]]]:
    found = with_folders(find_inputs([str(given)], "parquet")[0], None)
    return [[(each.name, each.value) for each in file.constants] for file in found]


def hashed(tmp_path: Path, file: Path, *ids: str) -> bytes:
    """Return what a backfill with a fingerprint writes of a file's rows."""
    (found,) = with_folders(find_inputs([str(file)], "parquet")[0], None)
    columns = HistoryColumns([IdSource(each, as_bytes=False) for each in ids or ("id",)], None)
    settings: dict[str, Any] = {"partitions": 1, "secret": bytes(16), "exclude": []}
    plan = HistoryPlan("parquet", str(tmp_path), [str(file)], columns, **settings, constants=[found.constants])
    assert hash_rows(plan, Split(0, 0, groups=1)).faults == 0
    return hashed_file(str(tmp_path), 0).read_bytes()


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
