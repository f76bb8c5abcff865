"""Files of other programs are what those mean by them; none is left out, and none is taken for more."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from processor.errors import StopError
from spark_sink.batch.inputs import find_inputs
from spark_sink.batch.plan import Split
from spark_sink.batch.rows.parquet_rows import input_schema, open_parquet, read_groups
from spark_sink.batch.rows.schema import fitted, grown_type, plain_schema, schema_of
from spark_sink.batch.tasks.inspect import read_footer
from tests.unit.tree.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = ROOT / "tests" / "golden" / "inputs"
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
SPARK = {
    "t": INSTANT,
    "n": LOCAL,
    "l": pa.list_(pa.field("element", INSTANT)),
    "s": pa.struct([("x", INSTANT), ("n", LOCAL)]),
    "m": pa.map_(pa.string(), INSTANT),
    "d": pa.decimal128(18, 2),
}
FILES = {
    "spark-3.5.6.parquet": SPARK,
    "spark-4.0.0.parquet": SPARK,
    "hive/_day=2026-03-02/000000_0": SPARK,
    "duckdb.parquet": {"t": INSTANT, "n": LOCAL, "clock": pa.string(), "fine": pa.string()},
    "pandas.parquet": {"t": INSTANT, "n": LOCAL, "k": pa.string(), "row": pa.int64()},
}


@pytest.mark.parametrize("name", FILES)
def test_a_time_is_an_instant_where_its_writer_meant_one(name: str) -> None:
    path = str(GOLDEN / name)
    plain = schema_of(read_footer(["id"], "t", None, (path, ())).schema)
    assert {each: plain.field(each).type for each in FILES[name]} == FILES[name]

    ((_, rows),) = read_groups(path, Split(0, 0, 0, 0, 1), None)
    (row,) = fitted(rows, plain, path).to_pylist()
    assert row["t"].isoformat() == "2026-03-02T09:00:00+00:00"
    assert row["n"].isoformat() == "2026-03-02T09:00:00"
    if "fine" in row:
        assert (row["clock"], row["fine"]) == ("09:00:00.000000", "2026-03-02 09:00:00.123456789")


def test_96_bits_are_no_instant_where_sparks_schema_says_so(tmp_path: Path) -> None:
    told = b'{"type":"struct","fields":[{"name":"n","type":"timestamp_ntz","nullable":true,"metadata":{}}]}'
    table = pa.table({"n": pa.array([0], LOCAL), "t": pa.array([0], LOCAL)})
    table = table.replace_schema_metadata({b"org.apache.spark.sql.parquet.row.metadata": told})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with open_parquet(str(tmp_path / "a.parquet")) as file:
        assert input_schema(file).types == [LOCAL, INSTANT]


def found(*paths: Path, kind: str = "parquet", ignore: tuple[str, ...] = ()) -> list[str]:
    return [each.stamp.name for each in find_inputs([str(path) for path in paths], kind, ignore)[0]]


def test_a_folder_that_begins_with_a_line_is_read_where_it_names_a_column_as_spark_does(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "hive", tmp_path / "raw")
    for hidden in ("_temporary", ".staging"):
        shutil.copytree(GOLDEN / "hive", tmp_path / "raw" / hidden)
    (tmp_path / "raw" / "_SUCCESS").touch()
    assert found(tmp_path / "raw") == ["_day=2026-03-02/000000_0"]


def test_a_file_of_another_format_is_refused_by_name_until_it_is_ignored(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "pandas.parquet", tmp_path / "000000_0")
    (tmp_path / "notes.csv").write_text("id,t\n")
    (tmp_path / "lines").mkdir()
    packed = tmp_path / "lines" / "a.json.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(
        StopError, match=r"not parquet files: .*a\.json\.zst, .*notes\.csv\. Name them in ignore"
    ):
        found(tmp_path)
    files, ignored = find_inputs([str(tmp_path)], "parquet", ["*.csv", "lines/*"])
    assert [each.name for each in files] == ["000000_0"]
    assert len(ignored) == 2

    (tmp_path / "lines" / "export").write_bytes(b'\xef\xbb\xbf \n{"id": 1}\n')
    (tmp_path / "lines" / "packed").write_bytes(gzip.compress(b'{"id": 1}\n'))
    with pytest.raises(StopError, match=r"not json files: .*a\.json\.zst"):
        found(tmp_path / "lines", kind="json")
    assert found(tmp_path / "lines", kind="json", ignore=("*.zst",)) == ["export", "packed"]


LINES = b'{"id": 1}\n'
OTHERS = {
    "zstd": b"\x28\xb5\x2f\xfd" + LINES,
    "packed zstd": gzip.compress(b"\x28\xb5\x2f\xfd" + LINES),
    "twice packed": gzip.compress(gzip.compress(LINES)),
    "parquet": (GOLDEN / "pandas.parquet").read_bytes(),
    "UTF-16": LINES.decode().encode("utf-16"),
    "an array": b' [\n{"id": 1},\n{"id": 2}\n]\n',
    "another array": b'\xef\xbb\xbf[{"id": 1},\n{"id": 2}]',
}


@pytest.mark.parametrize("given", [".", "a.json.gz", "named"])
@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_json_is_refused_whatever_it_is_called(tmp_path: Path, what: str, given: str) -> None:
    for name in ("a.json.gz", "named"):
        (tmp_path / name).write_bytes(OTHERS[what])
    with pytest.raises(StopError, match=r"not json files: .*(a\.json\.gz|named)"):
        found(tmp_path / given, kind="json")


@pytest.mark.parametrize(
    "text",
    [b"", b"rubbish\n" + LINES, b"[1, 2]\n" + LINES, b"\n \n" + LINES, b"\0\0\n" + LINES, b"\x1f\x8bcut"],
)
def test_lines_that_are_no_json_are_left_to_the_run(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    assert found(tmp_path, kind="json") == found(tmp_path / "a.json", kind="json") == ["a.json"]


TABLES = {
    "_delta_log/0.json": r"is a Delta table, .*read it with the format delta",
    "metadata/v1.metadata.json": "is an Iceberg table",
    "metadata/v1.metadata.json.gz": "is an Iceberg table",
    ".hoodie/hoodie.properties": "is a Hudi table",
    "_spark_metadata/0": "is the output of a Spark stream",
    "_seqmark/table.json": "is the clean table of a batch",
}


@pytest.mark.parametrize("mark", TABLES)
@pytest.mark.parametrize("given", [".", "deep", "deep/table", "deep/table/day=1", "deep/table/day=1/a.parquet"])
def test_files_of_a_table_are_refused_on_every_level(tmp_path: Path, mark: str, given: str) -> None:
    table = tmp_path / "raw" / "deep" / "table"
    for name in (mark, "day=1/a.parquet"):
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(GOLDEN / "pandas.parquet", table / name)
    with pytest.raises(StopError, match=f"input {table} {TABLES[mark]}"):
        found(tmp_path / "raw" / given)


@pytest.mark.parametrize("mark", TABLES)
@pytest.mark.parametrize("behind", [".", "day=1", "day=1/a.parquet"])
def test_files_of_a_table_are_refused_behind_links_too(tmp_path: Path, mark: str, behind: str) -> None:
    table = tmp_path / "table"
    for name in (mark, "day=1/a.parquet"):
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(GOLDEN / "pandas.parquet", table / name)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "link.parquet").symlink_to(table / behind)
    with pytest.raises(StopError, match=f"input {table} {TABLES[mark]}"):
        found(tmp_path / "raw")


def test_a_delta_table_is_not_read_as_parquet() -> None:
    with pytest.raises(StopError, match=r"inputs/delta is a Delta table"):
        found(GOLDEN)


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        (pa.int16(), pa.int64(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(9, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(9, 4), None),
        (pa.int64(), pa.float64(), None),
        (pa.int64(), pa.string(), None),
        (INSTANT, LOCAL, None),
    ],
)
def test_numbers_widen_in_either_order_where_no_value_changes(one: Any, other: Any, wider: Any) -> None:
    inside = [lambda kind: kind, pa.list_, lambda kind: pa.struct([("a", kind)])]
    for nest in inside:
        left, right = (plain_schema(pa.schema([("x", nest(kind))]), "f").field(0).type for kind in (one, other))
        grown = plain_schema(pa.schema([("x", nest(wider))]), "f").field(0).type if wider else None
        assert grown_type(left, right) == grown_type(right, left) == grown
