"""Says by SQL of its own what two runs over two files should have kept, and how a clean table differs.

Run by the interpreter of another environment, see `benchmarks.rest.ways.ENVIRONMENT`; imports nothing of ours.
Runs are "first", over one file, and "again", over both; windows are longer than all times are apart.
"""

from __future__ import annotations

import json
import sys

import duckdb  # type: ignore[import-not-found]  # it is in another environment

COUNTING = {
    "parquet": """
        SELECT unnest(added.rows).path AS path FROM read_json('{out}/_seqmark/commits/*.json')
        EXCEPT SELECT unnest(removed.rows)::VARCHAR FROM read_json('{out}/_seqmark/commits/*.json')
    """,
    "delta": """
        SELECT add.path AS path FROM read_json('{out}/_delta_log/*.json', format = 'newline_delimited')
        WHERE add IS NOT NULL
    """,
}
"""By format the files of rows that count; nothing is removed from the Delta tables that are looked at.

Of another format they are given as a list of JSON on stdin."""
EXPECTED = """
    WITH first AS (
        SELECT DISTINCT ON (event_id) event_id, file_row_number AS line, amount
        FROM read_parquet('{first}', file_row_number = true)
        WHERE event_id IS NOT NULL AND occurred_at IS NOT NULL
        ORDER BY event_id, occurred_at, file_row_number
    ), again AS (
        SELECT DISTINCT ON (event_id) event_id, file_row_number AS line, amount
        FROM read_parquet('{second}', file_row_number = true) ANTI JOIN first USING (event_id)
        WHERE event_id IS NOT NULL AND occurred_at IS NOT NULL
        ORDER BY event_id, occurred_at, file_row_number
    )
    SELECT 'first' AS run, * FROM first UNION ALL SELECT 'again', * FROM again
"""


def main(kind: str, out: str, first: str, second: str) -> None:
    """Print how many rows there should be, and those that are missing or too many."""
    base = duckdb.connect()
    if kind in COUNTING:
        files = [f"{out}/{path}" for (path,) in base.execute(COUNTING[kind].format(out=out)).fetchall()]
    else:
        files = json.load(sys.stdin)
    base.execute("CREATE TABLE expected AS " + EXPECTED.format(first=first, second=second))
    base.execute(
        "CREATE TABLE found AS "
        "SELECT seqmark_run AS run, event_id, seqmark_row AS line, amount FROM read_parquet(?)",
        [files],
    )
    counted = base.execute("SELECT count(*) FROM expected").fetchone()[0]
    missing = base.execute("FROM expected EXCEPT ALL FROM found").fetchall()
    extra = base.execute("FROM found EXCEPT ALL FROM expected").fetchall()
    sys.stdout.write(json.dumps({"rows": counted, "missing": missing, "extra": extra}))


if __name__ == "__main__":
    main(*sys.argv[1:])
