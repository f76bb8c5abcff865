"""Is what the report shows of a table in PostgreSQL what it holds? Against a plain computation of the same."""

from __future__ import annotations

import psycopg
import pytest

from spark_sink.reading.read_back import read_sinks
from tests.spark.reading.test_read_back import check, rows, settings

pytestmark = pytest.mark.postgres

TABLE = """
    CREATE TABLE "Hourly rows" (
        window_start timestamptz, window_end timestamptz, campaign text, events bigint, revenue numeric(20, 2),
        p99 numeric(10, 2))
"""


def test_a_table_is_read_in_its_own_sql(database: str) -> None:
    made = rows()
    with psycopg.connect(database) as connection:
        connection.execute(TABLE)
        with connection.cursor() as cursor:
            insert = 'INSERT INTO "Hourly rows" VALUES (%s, %s, %s, %s, %s, %s)'
            cursor.executemany(insert, [each.row for each in made])

    (part,) = read_sinks(settings({"kind": "postgres", "url": database, "table": "Hourly rows"}))

    check(part, made)


def test_a_table_that_is_missing_is_told_without_the_secret(database: str) -> None:
    (part,) = read_sinks(settings({"kind": "postgres", "url": database, "table": "hourly"}))

    assert part.summary is None
    assert '"hourly" does not exist' in part.problems[0]
    assert database not in part.problems[0]
