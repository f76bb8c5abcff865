"""Is the table created as the batches need it, and one that differs refused with every difference?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from processor.errors import StopError
from spark_sink.outputs.postgres import table as module
from spark_sink.outputs.postgres.batch import Batch, write_batch
from spark_sink.outputs.postgres.table import Field, Target, ensure, split_name
from tests.support.spark_sink.postgres import new_database, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.postgres

INSTANT = "timestamp with time zone"
WINDOW = (
    Field("window_start", INSTANT, nullable=False, in_key=True),
    Field("window_end", INSTANT, nullable=False, in_key=True),
)
FIELDS = (
    *WINDOW,
    Field("campaign", "text", nullable=False, in_key=True),
    Field("country", "text", in_key=True),
    Field("events", "bigint", nullable=False),
    Field("revenue", "numeric(38,2)"),
)
RIGHT = (
    "window_start timestamptz, window_end timestamptz, campaign text, country text, events bigint,"
    " revenue numeric(38,2)"
)
KEY = ", UNIQUE NULLS NOT DISTINCT (window_start, window_end, campaign, country)"


def ensured(
    url: str, name: str = "hourly", schema: str | None = None, fields: Sequence[Field] = FIELDS
) -> Target:
    with psycopg.connect(url) as connection:
        return ensure(connection, schema, name, fields)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def write(url: str, target: Target, number: int, *written: tuple[object, ...]) -> None:
    with psycopg.connect(url) as connection:
        assert write_batch(connection, target, Batch("hourly", "q", number), written)


def assert_nulls_are_one_group(url: str, target: Target) -> None:
    write(url, target, 0, (0, 1, "a", None, 1, None), (0, 1, "a", "", 2, None))
    write(url, target, 1, (0, 1, "a", None, 3, None), (0, 1, "a", "", 4, None))
    found = rows(url, "SELECT country, events FROM hourly ORDER BY country NULLS LAST")
    assert found == [("", 4), (None, 3)]


def test_a_missing_table_is_created_and_found_right_the_next_time(database: str) -> None:
    first = ensured(database)
    assert ensured(database) == first
    types = rows(
        database,
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_name = 'hourly' ORDER BY ordinal_position",
    )
    assert types == [
        ("window_start", INSTANT, "NO"),
        ("window_end", INSTANT, "NO"),
        ("campaign", "text", "NO"),
        ("country", "text", "YES"),
        ("events", "bigint", "NO"),
        ("revenue", "numeric", "YES"),
    ]


def test_a_table_that_was_written_and_is_gone_is_not_made_anew(database: str) -> None:
    write(database, ensured(database), 0)
    execute(database, "DROP TABLE hourly")

    with pytest.raises(StopError, match=r"hourly is gone, .* the batches up to 0: .* Bring it back"):
        ensured(database)


def test_nulls_are_one_group_by_the_key_of_postgresql_15_and_later(database: str) -> None:
    assert_nulls_are_one_group(database, ensured(database))


def test_nulls_are_one_group_by_the_key_for_older_servers(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their way is right on every version, so that it can be tried on this one."""
    monkeypatch.setattr(module, "NULLS_EQUAL", 10**9)
    assert_nulls_are_one_group(database, ensured(database))
    made = rows(database, "SELECT indexdef FROM pg_indexes WHERE tablename = 'hourly'")
    assert len(made) == 1
    assert "COALESCE" in made[0][0]
    monkeypatch.undo()
    # A server that was upgraded keeps its key.
    write(database, ensured(database), 2, (0, 1, "a", None, 5, None))
    assert rows(database, "SELECT events FROM hourly WHERE country IS NULL") == [(5,)]


@pytest.mark.parametrize(
    "kind",
    [
        *("text", "bigint", "boolean", "double precision", "numeric(20,4)", "date", INSTANT),
        "timestamp without time zone",
    ],
)
def test_every_type_can_be_a_group_that_may_be_null_on_older_servers(
    database: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NULLS_EQUAL", 10**9)
    fields = (*WINDOW, Field("country", kind, in_key=True), Field("events", "bigint"))
    target = ensured(database, fields=fields)
    write(database, target, 0, (0, 1, None, 1))
    write(database, target, 1, (0, 1, None, 2))
    assert rows(database, "SELECT events FROM hourly") == [(2,)]


def test_without_nulls_in_the_groups_the_key_is_the_primary_key(database: str) -> None:
    ensured(database, fields=(*WINDOW, Field("events", "bigint")))
    assert rows(database, "SELECT contype::text FROM pg_constraint WHERE conrelid = 'hourly'::regclass") == [
        ("p",)
    ]


@pytest.mark.parametrize(
    ("columns", "differences"),
    [
        (RIGHT.replace(", events bigint", "") + KEY, ["missing: events bigint"]),
        (RIGHT + ", noted text" + KEY, ["extra: noted text"]),
        (
            RIGHT.replace("events bigint", "events integer") + KEY,
            ["other type: events is integer, should be bigint"],
        ),
        (
            RIGHT.replace("numeric(38,2)", "double precision") + KEY,
            ["other type: revenue is double precision, should be numeric(38,2)"],
        ),
        (
            RIGHT.replace("timestamptz", "timestamp") + KEY,
            [
                "other type: window_end is timestamp without time zone, should be timestamp with time zone",
                "other type: window_start is timestamp without time zone, should be timestamp with time zone",
            ],
        ),
        (
            RIGHT.replace("campaign text", "campaign varchar(20)") + KEY,
            ["other type: campaign is character varying(20), should be text"],
        ),
        (
            RIGHT,
            [
                "no unique key that treats nulls as equal: (window_start, window_end, campaign, country)",
            ],
        ),
        (
            RIGHT + KEY.replace("NULLS NOT DISTINCT ", ""),
            [
                "no unique key that treats nulls as equal: (window_start, window_end, campaign, country)",
            ],
        ),
        (
            RIGHT + KEY.replace(", country", ""),
            [
                "no unique key that treats nulls as equal: (window_start, window_end, campaign, country)",
            ],
        ),
        (
            RIGHT.replace("numeric(38,2)", "numeric(38,2) NOT NULL") + KEY,
            ["not null: revenue may be null"],
        ),
        (
            RIGHT.replace("events bigint", "events bigint GENERATED ALWAYS AS (1) STORED") + KEY,
            ["generated: events is written by PostgreSQL, should be by Seqmark"],
        ),
        (
            RIGHT.replace("events bigint", "happenings bigint").replace("campaign text", "campaign int"),
            [
                "extra: happenings bigint",
                "missing: events bigint",
                "other type: campaign is integer, should be text",
            ],
        ),
    ],
)
def test_a_table_that_differs_is_refused_with_every_difference(
    database: str, columns: str, differences: list[str]
) -> None:
    execute(database, f"CREATE TABLE hourly ({columns})")
    with pytest.raises(StopError) as refused:
        ensured(database)
    lines = str(refused.value).splitlines()
    assert lines[0] == "table public.hourly is not what the config asks for:"
    assert [line.strip() for line in lines[1:-1]] == differences


@pytest.mark.parametrize(
    "columns",
    [
        RIGHT + KEY,
        RIGHT.replace("numeric(38,2)", "numeric").replace("campaign text", "campaign varchar") + KEY,
        RIGHT.replace("events bigint", "events bigint NOT NULL DEFAULT 0") + KEY,
        # The key's columns in another order, the table's too.
        (
            "revenue numeric(38,2), events bigint, country text, campaign text, window_end timestamptz,"
            " window_start timestamptz, UNIQUE NULLS NOT DISTINCT (country, window_end, campaign, window_start)"
        ),
    ],
)
def test_a_table_of_the_users_own_that_holds_every_value_is_taken(database: str, columns: str) -> None:
    execute(database, f"CREATE TABLE hourly ({columns})")
    assert_nulls_are_one_group(database, ensured(database))


def test_a_table_partitioned_by_time_is_taken(database: str) -> None:
    execute(
        database,
        f"CREATE TABLE hourly ({RIGHT + KEY}) PARTITION BY RANGE (window_start)",
        "CREATE TABLE hourly_1970 PARTITION OF hourly FOR VALUES FROM ('1969-01-01') TO ('1971-01-01')",
    )
    assert_nulls_are_one_group(database, ensured(database))


def test_a_key_under_a_collation_that_takes_different_texts_for_equal_is_refused(database: str) -> None:
    execute(
        database,
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        f"CREATE TABLE hourly ({RIGHT.replace('campaign text', 'campaign text COLLATE loose') + KEY})",
    )
    with pytest.raises(StopError, match="collation: campaign treats different texts as equal"):
        ensured(database)


def test_what_is_no_table_is_refused(database: str) -> None:
    execute(database, "CREATE VIEW hourly AS SELECT 1 AS one")
    with pytest.raises(StopError, match=r"public\.hourly is a view, not a table"):
        ensured(database)


def test_a_user_without_the_right_to_create_can_write_tables_that_are_there(database: str) -> None:
    target = ensured(database)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE ROLE seqmark_writer")
        try:
            for each in (target.table, target.progress):
                connection.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE ON {} TO seqmark_writer").format(each))
            connection.execute("SET ROLE seqmark_writer")
            again = ensure(connection, None, "hourly", FIELDS)
            assert write_batch(connection, again, Batch("hourly", "q", 0), [(0, 1, "a", None, 1, None)])
        finally:
            connection.execute("RESET ROLE")
            connection.rollback()


def test_names_are_quoted_and_taken_as_they_are_written(database: str) -> None:
    schema, name = 'Own "1"', "Hourly; DROP TABLE x"
    with psycopg.connect(database) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    fields = (*WINDOW, Field('the "group"', "text", in_key=True), Field("select", "bigint"))
    target = ensured(database, name, schema, fields)
    assert ensured(database, name, schema, fields) == target
    write(database, target, 0, (0, 1, None, 1))
    write(database, target, 1, (0, 1, None, 2))
    found = rows(database, 'SELECT "select" FROM "Own ""1"""."Hourly; DROP TABLE x"')
    assert found == [(2,)]


def test_a_table_without_a_schema_is_found_along_the_search_path(database: str) -> None:
    execute(database, "CREATE SCHEMA reports", "CREATE SCHEMA scratch")
    ensured(database, schema="reports")
    path = database + "?options=-csearch_path%3Dscratch,reports"
    assert ensured(path).schema == "reports"
    assert ensured(path, name="daily").schema == "scratch"


def test_a_schema_that_has_to_be_quoted_is_found_along_the_search_path(database: str) -> None:
    execute(database, 'CREATE SCHEMA "My-App"')
    first = ensured(database, schema="My-App")
    path = database + "?options=-csearch_path%3D%22My-App%22"
    assert ensured(path) == first
    assert ensured(path, name="daily").schema == "My-App"


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: str) -> None:
    with new_database(postgres, "LATIN1") as url:
        with pytest.raises(StopError, match=r"encoding is LATIN1, .* WITH ENCODING 'UTF8'"):
            ensured(url)
        assert rows(url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("hourly", (None, "hourly")), ("reports.hourly", ("reports", "hourly")), ("My Table", (None, "My Table"))],
)
def test_a_name_may_have_a_schema(text: str, expected: tuple[str | None, str]) -> None:
    assert split_name(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a.b.c", "SCHEMA.TABLE"),
        (".b", "SCHEMA.TABLE"),
        ("a.", "SCHEMA.TABLE"),
        ('"a"', "without quotes"),
        ("a" * 64, "63 bytes"),
        ("ä" * 32, "63 bytes"),
        ("seqmark_progress", "own table"),
    ],
)
def test_a_name_that_postgresql_would_read_otherwise_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        split_name(text)
