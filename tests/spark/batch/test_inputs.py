"""What does a run make of files that are cut, changed, empty, or of other columns, and what does it refuse?"""

from __future__ import annotations

import gzip
import os
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from processor.errors import StopError
from spark_sink import read_clean
from spark_sink.batch.compaction import compact
from spark_sink.batch.job import BatchJob, BatchOptions
from tests.support.batches.scene import DAY, START, Audience, BatchScene, some_rows
from tests.support.batches.truth import FileRow
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def table(scene: BatchScene, name: str, **columns: Any) -> str:
    """Write a Parquet file of these columns beside an id and a time; return its path."""
    count = len(next(iter(columns.values()))) if columns else 1
    made = {
        "event_id": pa.array([f"{name}-{number}" for number in range(count)]),
        "occurred_at": pa.array([START] * count, pa.timestamp("us", "UTC")),
        "amount": pa.array(range(count), pa.int64()),
    } | columns
    file = scene.raw / name
    pq.write_table(pa.table(made), file)
    return str(file)


def refused(scene: BatchScene, path: str, message: str) -> None:
    """Run over a file that is refused, and see that nothing of it counts."""
    before = scene.rows() if (scene.out / "_seqmark" / "table.json").exists() else []
    with pytest.raises(StopError, match=message):
        scene.run([path])
    assert scene.rows() == before
    assert not list((scene.out / "_seqmark" / "staging").glob("*"))


def test_a_file_that_is_cut_or_corrupt_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    scene.run([table(scene, "good.parquet", amount=[1])])
    whole = Path(table(scene, "cut.parquet", amount=list(range(9_999)))).read_bytes()
    file = scene.raw / "cut.parquet"

    file.write_bytes(whole[: len(whole) // 2])
    refused(scene, str(file), re.escape(f"{file} is cut or corrupt, or no Parquet file"))

    middle = len(whole) // 3
    file.write_bytes(whole[:middle] + bytes(99) + whole[middle + 99 :])
    refused(scene, str(file), re.escape(f"{file} is corrupt"))

    lines = BatchScene(spark, tmp_path / "json", "json")
    good = b'{"event_id": "a", "occurred_at": "2026-01-01", "amount": 1}\n' * 99
    lines.run([str(Path(lines.write("good.jsonl", [FileRow("", 0, "e", START, 1)])))])
    packed, plain = lines.raw / "cut.jsonl.gz", lines.raw / "cut.jsonl"
    packed.write_bytes(gzip.compress(good)[:-20])
    refused(lines, str(packed), re.escape(f"{packed} is cut or corrupt"))
    plain.write_bytes(good[:-20])
    refused(lines, str(plain), re.escape(f"{plain} is cut: its last line, row 98, has no end and is no JSON"))


def test_a_new_column_is_taken_on_and_a_changed_type_refused_with_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path)
    scene.run([table(scene, "old.parquet", amount=[1])])

    refused(
        scene,
        table(scene, "changed.parquet", amount=["many"]),
        r"column amount is string in .*changed\.parquet and int64 in the table: a column keeps its type",
    )
    scene.run([table(scene, "new.parquet", amount=[2], tags=[["x", None]], at=[{"place": Decimal("1.5")}])])
    scene.run([table(scene, "without.parquet", amount=[3])])

    rows = {row["amount"]: (row["tags"], row["at"] and row["at"]["place"]) for row in scene.rows()}
    assert rows == {1: (None, None), 2: (["x", None], Decimal("1.5")), 3: (None, None)}


def test_objects_get_new_members_and_a_member_whose_type_has_changed_is_refused_with_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path, "json")

    def lines(name: str, value: str) -> str:
        file = scene.raw / name
        file.write_text(f'{{"event_id": "{name}", "occurred_at": "2026-01-01", "o": {value}}}\n')
        return str(file)

    scene.run([lines("a.jsonl", '{"x": 1, "deep": [{"y": 1.5}]}')])
    scene.run([lines("b.jsonl", '{"new": true, "deep": [{"z": "t"}]}')])
    refused(
        scene,
        lines("c.jsonl", '{"x": {"no": "number"}}'),
        r"column o is struct<x: struct<no: string>> in the input and struct<x: int64, deep: .*> in the table",
    )
    compact(spark, scene.batch, Audience())

    rows = {row["event_id"]: row["o"].asDict(recursive=True) for row in scene.rows()}
    assert rows == {
        "a.jsonl": {"x": 1, "deep": [{"y": 1.5, "z": None}], "new": None},
        "b.jsonl": {"x": None, "deep": [{"y": None, "z": "t"}], "new": True},
    }
    again = scene.run([lines("a.jsonl", '{"x": 1, "deep": [{"y": 1.5}]}')], run="again")
    assert again.counts["duplicates"] == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"event_id": [1.5]},
            "column event_id has the type double: an id is made of texts, whole numbers, booleans or bytes",
        ),
        ({"occurred_at": [True]}, "column occurred_at has the type bool: event_time is a timestamp, a date"),
        ({"seqmark_run": ["x"]}, "column seqmark_run: names that begin with seqmark_ are Seqmark's own"),
        ({"Seqmark_Run": ["x"]}, "column Seqmark_Run: names that begin with seqmark_ are Seqmark's own"),
        ({"o": [{"a": 1, "A": 2}]}, "Spark has none for members whose names differ by case alone"),
        ({"Amount": [1]}, "columns amount and Amount differ by case alone"),
        (
            {"late": pa.array([1], pa.duration("us"))},
            r"column late has the type duration\[us\]; Spark has none for",
        ),
    ],
)
def test_columns_that_cannot_be_read_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    scene = BatchScene(spark, tmp_path)
    refused(scene, table(scene, "a.parquet", **columns), message)


def test_a_column_that_no_file_has_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, event_time="happened_at")
    refused(
        scene,
        table(scene, "a.parquet"),
        "no input file has a column happened_at, which batch archive is to read",
    )


def test_without_quarantine_the_run_stops_at_the_first_row_that_cannot_be_judged(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path, quarantine=None)
    rows = [FileRow("a.parquet", number, f"e{number}", START, 1) for number in range(20)]
    rows[11], rows[17] = rows[11]._replace(at=None), rows[17]._replace(id=None)
    refused(
        scene,
        scene.write("a.parquet", rows),
        r"a\.parquet:11 cannot be judged \(field_missing\); .* Name a folder .*: batches\.archive\.quarantine",
    )


def test_empty_files_are_no_rows_and_no_file_at_all_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    (scene.raw / "readme.txt").write_text("not an input")
    with pytest.raises(StopError, match=r"input files are not parquet files: .*readme\.txt\. Name them"):
        scene.run()
    scene.table["ignore"] = ["*.txt"]
    with pytest.raises(
        StopError, match=r"no input: there is no parquet file in .*; 1 files are left out by ignore"
    ):
        scene.run()
    with pytest.raises(StopError, match=r"input .*nowhere does not exist"):
        scene.run([str(scene.raw / "nowhere")])
    assert scene.run([scene.write("empty.parquet", [])]).counts["read"] == 0
    assert scene.rows() == []

    lines = BatchScene(spark, tmp_path / "json", "json")
    assert lines.run([lines.write("empty.jsonl", [])]).counts["kept"] == 0
    assert lines.rows() == []


def test_lines_are_numbered_as_in_their_file_and_quarantined_as_they_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path, "json")
    lines = [
        b'\xef\xbb\xbf{"event_id": "a", "occurred_at": "2026-01-01T10:00:00Z", "n": 1, "o": {"x": [1, 2.5]}}',
        b"",
        b"  ",
        b'{"event_id": "b", "occurred_at": "2026-01-01T11:00:00+02:00", "n": "two", "o": {"y": true}}\r',
        b'{"event_id": "c", "occurred_at": 1767261600000, "n": null}',
        b'{"event_id": "d", "occurred_at": "yesterday"}',
        b'{"event_id": ["d"], "occurred_at": "2026-01-01"}',
        b'{"event_id": "e", "occurred_at": 1e30, "n": 1}',
        b'{"event_id": "e", "occurred_at": 99999999999999999, "n": 1}',
        b'{"event_id": "f"',
        b"[1]",
        b'{"event_id": 7, "occurred_at": "2026-01-02T00:00:00.123456789-00:30"}',
    ]
    file = scene.raw / "a.json"
    file.write_bytes(b"\n".join(lines))

    scene.run([str(file)])

    kept = {row["seqmark_row"]: row for row in scene.rows()}
    assert {number: row["event_id"] for number, row in kept.items()} == {0: "a", 3: "b", 4: "c", 11: "7"}
    assert {number: row["n"] for number, row in kept.items()} == {0: "1", 3: "two", 4: None, 11: None}
    assert kept[0]["o"].asDict() == {"x": [1.0, 2.5], "y": None}
    times = {number: row["seqmark_time"].replace(tzinfo=UTC) for number, row in kept.items()}
    assert times == {
        0: datetime(2026, 1, 1, 10, tzinfo=UTC),
        3: datetime(2026, 1, 1, 9, tzinfo=UTC),
        4: datetime(2026, 1, 1, 10, tzinfo=UTC),
        11: datetime(2026, 1, 2, 0, 30, 0, 123_456, tzinfo=UTC),
    }
    aside = {
        row["seqmark_source"]: (row["seqmark_error"], bytes(row["seqmark_line"]))
        for row in scene.rows("quarantine")
    }
    assert aside == {
        f"a.json:{number}": (code, lines[number])
        for number, code in {
            5: "field_type",
            6: "field_type",
            7: "field_type",
            8: "out_of_range",
            9: "value_not_json",
            10: "field_missing",
        }.items()
    }


def test_numbers_of_json_keep_their_digits_or_their_row_does_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [
        '{"event_id": 1, "occurred_at": "2026-01-01", "amount": 12345678901234567.89, "x": 9007199254740993}',
        '{"event_id": "1", "occurred_at": "2026-01-01", "amount": 1.10, "x": 0.5, "ratio": 0.1}',
        '{"event_id": "c", "occurred_at": "2026-01-01", "amount": 0.1234567890123456789}',
        '{"event_id": "d", "occurred_at": "2026-01-01", "amount": "3.5", "ratio": 9007199254740993}',
    ]

    def run(name: str, **more: Any) -> tuple[BatchScene, Audience, dict[str, int]]:
        scene, audience = BatchScene(spark, tmp_path / name, "json", **more), Audience()
        (scene.raw / "a.jsonl").write_text("\n".join(lines) + "\n")
        return scene, audience, BatchJob(spark, scene.batch, BatchOptions(), audience).run().counts

    lines.pop()
    scene, audience, counts = run("told")
    assert (counts["kept"], counts["quarantined"]) == (2, 1)
    told = "seqmark_error", "seqmark_source", "seqmark_detail"
    assert [tuple(each[name] for name in told) for each in scene.rows("quarantine")] == [
        ("out_of_range", "a.jsonl:2", "column amount has no room for its value")
    ]
    kept = {row["seqmark_row"]: (row["amount"], row["x"]) for row in scene.rows()}
    assert kept == {
        0: (Decimal("12345678901234567.89"), Decimal(9007199254740993)),
        1: (Decimal("1.10"), Decimal("0.5")),
    }
    assert audience.said[-2].startswith("1 ids in column event_id are numbers, and texts in the table")
    assert audience.said[-1].startswith("1 rows are in quarantine; or say what column amount is")
    with pytest.raises(
        StopError, match=r'a\.jsonl:2 cannot be judged \(out_of_range\).* columns = \{ amount = "dec'
    ):
        run("stops", quarantine=None)

    lines.append('{"event_id": "d", "occurred_at": "2026-01-01", "amount": "3.5", "ratio": 9007199254740993}')
    types = {"amount": "decimal(20,2)", "ratio": "double", "x": "string"}
    scene, _, counts = run("declared", columns=types)
    assert (counts["kept"], counts["quarantined"]) == (2, 2)
    fields = {each.name: each.dataType.simpleString() for each in read_clean(spark, str(scene.out)).schema}
    assert {name: fields[name] for name in types} == types
    assert {row["x"] for row in scene.rows()} == {"9007199254740993", "0.5"}


def test_files_of_one_name_size_and_time_in_two_folders_are_two(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, "json")
    folders = [scene.raw / each for each in "abc"]
    for each in folders:
        each.mkdir()
        file = each / "part.jsonl"
        file.write_text(f'{{"event_id": "{each.name}", "occurred_at": "2026-01-01"}}\n{{"event_id": "x"}}\n')
        os.utime(file, (1, 1))

    runs = [scene.run([str(each)]) for each in folders]

    assert [(each.earlier, each.counts["kept"]) for each in runs] == [(False, 1)] * 3
    scene.run([str(folders[0]), str(folders[1])], run="two")
    os.utime(folders[0] / "part.jsonl", (2, 2))
    with pytest.raises(StopError, match=r"run two has committed over other inputs: part\.jsonl was modified"):
        scene.run([str(folders[0]), str(folders[1])], run="two")
    # Undated rows of the file that is made again go, those of its namesakes stay.
    before = len(scene.rows("quarantine"))
    scene.run([str(folders[1])], run="again", since="2026-01-01")
    assert (before, len(scene.rows("quarantine"))) == (5, 4)


def test_folders_are_followed_by_links_and_a_link_to_nothing_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path)
    elsewhere = tmp_path / "else where %41 ü"
    elsewhere.mkdir()
    Path(scene.write("a.parquet", [FileRow("a.parquet", 0, "a", START, 1)])).rename(elsewhere / "a.parquet")
    scene.write("b.parquet", [FileRow("b.parquet", 0, "b", START, 1)])
    (scene.raw / "linked").symlink_to(elsewhere)
    (scene.raw / "round").symlink_to(scene.raw)
    (scene.raw / "b again.parquet").symlink_to(scene.raw / "b.parquet")
    lost = scene.raw / "lost.parquet"
    lost.symlink_to(tmp_path / "nowhere")

    with pytest.raises(StopError, match=r"input .*lost\.parquet cannot be read \(No such file"):
        scene.run()
    lost.unlink()

    assert scene.run().counts["read"] == 2
    assert {row["event_id"] for row in scene.rows()} == {"a", "b"}


def test_json_that_no_column_can_hold_is_kept_as_text(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, "json")
    deep = ['{"a":['] * 22 + ["1"] + ["]}"] * 22
    lines = [
        '{"event_id": 123456789012345678901234567890, "occurred_at": "0001-01-01T00:00:00Z"}',
        '{"event_id": 123456789012345678901234567891, "occurred_at": "0001-01-01T00:00:00Z"}',
        '{"event_id": "cases", "occurred_at": "0987-01-01", "o": {"a": 1, "A": 2}}',
        f'{{"event_id": "deep", "occurred_at": "9999-12-31", "d": {"".join(deep)}}}',
    ]
    file = scene.raw / "a.jsonl"
    file.write_text("\n".join(lines) + "\n")

    assert scene.run([str(file)], run="first").counts["kept"] == 4
    again = scene.run([str(file)], run="second")

    assert again.counts["duplicates"] == 4
    # Python has no such times in zones before UTC's: those are not brought to it.
    kept = read_clean(spark, str(scene.out)).select("event_id", "o", "d")
    rows = {row["event_id"]: row for row in kept.collect()}
    assert rows.keys() == {"123456789012345678901234567890", "123456789012345678901234567891", "cases", "deep"}
    assert rows["cases"]["o"] == '{"a":1,"A":2}'
    assert str(rows["deep"]["d"]).count("a") == 22
    assert scene.run([str(file)], run="third", since="0900-01-01").counts["skipped"] == 2
    assert read_clean(spark, str(scene.out)).count() == 4


def test_the_same_id_is_the_same_whatever_it_is_written_in(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    scene.table["id"] = ["event_id", "number"]
    count, numbers = 3, [1, 2**63 - 1, 0]
    columns: dict[str, Any] = {
        "event_id": pa.array(["x", "y", "é"]).dictionary_encode(),
        "occurred_at": pa.array(["2026-01-01"] * count),
        "number": pa.array(numbers, pa.int64()),
    }
    scene.run([table(scene, "a.parquet", **columns)])
    large = pa.array(["x", "y", "é"], pa.large_string())
    assert scene.run([table(scene, "b.parquet", **columns | {"event_id": large})]).counts["duplicates"] == count

    scene.table["input"] = {"format": "json", "path": str(scene.raw)}
    file = scene.raw / "c.json"
    escaped = '{"occurred_at": "2026-01-01T12:00:00Z", "number": 0, "event_id": "\\u00e9"}'
    other = '{"occurred_at": "2026-01-01T12:00:00Z", "number": "0", "event_id": "x"}'
    file.write_text(f"{escaped}\n")
    assert scene.run([str(file)]).counts["duplicates"] == 1
    file.write_text(f"{escaped}\n{other}\n")
    refused(scene, str(file), "column number is string in the input and int64 in the table")


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_what_is_normalised_does_not_count_and_the_rows_stay_as_they_came(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    scene = BatchScene(spark, tmp_path, kind, normalise={"event_id": "uuid"})
    ids = ["{6F9619FF-8B86-D011-B42D-00CF4FC964FF}", "6f9619ff8b86d011b42d00cf4fc964ff", "X", "x"]
    rows = [FileRow("a", row, each, START, row) for row, each in enumerate(ids)]

    counts = scene.run([scene.write("a", rows)]).counts

    assert (counts["kept"], counts["duplicates"]) == (3, 1)
    assert {row["event_id"] for row in scene.rows()} == {ids[0], "X", "x"}
    (receipt,) = scene.rows("duplicates")
    assert (receipt["row"], receipt["id"]) == (1, ["6f9619ff-8b86-d011-b42d-00cf4fc964ff"])
    scene.table["normalise"] = {"event_id": "lower"}
    refused(scene, str(scene.raw / "a"), "normalise was .*uuid.* and is .*lower")


def test_a_table_whose_ids_are_made_otherwise_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    path = scene.write("a.parquet", some_rows(dice(1), "a.parquet", 10))
    scene.run([path])
    scene.table["id"] = ["event_id", "amount"]

    with pytest.raises(StopError, match=r'id was \["event_id"\] and is \["event_id", "amount"\]'):
        scene.run([path], run="other")

    scene.table |= {"id": ["event_id"], "duplicates": str(tmp_path / "quarantine"), "quarantine": None}
    with pytest.raises(
        StopError, match=r"duplicates folder .*quarantine: it belongs to another table or holds another"
    ):
        scene.run([path], run="other")


def test_names_of_folders_are_columns_as_they_are_for_spark(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, event_time="day")
    folders = {
        "day=2026-01-01/hour=01/place=a%2Fb": "first",
        "day=2026-01-02/hour=2/place=__HIVE_DEFAULT_PARTITION__": "second",
        "day=2026-01-02/hour=3/place=c": "own",
    }
    for folder, name in folders.items():
        (scene.raw / folder).mkdir(parents=True)
        file = Path(table(scene, f"{name}.parquet", **({"hour": [33]} if name == "own" else {})))
        file.rename(scene.raw / folder / file.name)
    (scene.raw / "day=2026-01-04").mkdir()
    late = Path(table(scene, "late.parquet")).rename(scene.raw / "day=2026-01-04" / "late.parquet")
    late.rename(tmp_path / "kept")

    scene.run()

    columns = ["day", "hour", "place", "seqmark_date"]
    found = {row["event_id"]: tuple(row[each] for each in columns) for row in scene.rows()}
    first, second = START.date(), (START + DAY).date()
    assert found == {
        "first.parquet-0": (first, 1, "a/b", first),
        "second.parquet-0": (second, 2, None, second),
        "own.parquet-0": (second, 33, "c", second),
    }
    spark_reads = (
        spark.read.parquet(str(scene.raw)).where("event_id <> 'own.parquet-0'").select("event_id", *columns[:3])
    )
    assert {row["event_id"]: tuple(row)[1:] for row in spark_reads.collect()} == {
        name: values[:3] for name, values in found.items() if name != "own.parquet-0"
    }
    # A folder that is given itself is named as it is below another one.
    (tmp_path / "kept").rename(late)
    scene.run([str(late.parent)], run="late")
    assert {row["day"] for row in scene.rows() if row["seqmark_run"] == "late"} == {(START + 3 * DAY).date()}
    (late.parent / "day=2026-01-05").mkdir()
    late.rename(late.parent / "day=2026-01-05" / "twice.parquet")
    refused(scene, str(late.parent), "two of its folders name a column day; which one counts is not known")
