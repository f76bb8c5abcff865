"""Writes a batch into the table once, whoever tries how often.

In one transaction, in this order:

    1  look       the batch is in the table already: done (a replay, or a COMMIT whose answer was lost)
    2  copy       its rows into a temporary table, as a stream; nobody waits for that
    3  lock       the table's row in `seqmark_progress`, and look again: from here on there is one writer
    4  upsert     from the temporary table into the table
    5  progress   the row says that the batch is in
    6  commit

Copying comes before the lock on purpose: PostgreSQL cannot end a transaction whose client stands still in the
middle of a COPY, and such a driver would keep its successor out for ever. Between statements it can, and does
(`idle_in_transaction_session_timeout`).

A batch is taken only if it is the very next one of the query that wrote all before it. Spark numbers batches
without gaps, and repeats only the last. Anything else means that checkpoint and table do not belong together,
and is refused before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spark_sink.outputs.postgres.server import Connection
    from spark_sink.outputs.postgres.table import Target

_STAGE = sql.Identifier("pg_temp", "seqmark_batch")
_NOTHING_YET = -1
INSTANT = "timestamp with time zone"


class Batch(NamedTuple):
    """Which batch of which query."""

    sink: str
    query: str
    """Spark's id of the query: made with the checkpoint, and lost with it."""
    number: int


def write_batch(connection: Connection, target: Target, batch: Batch, rows: Iterable[Sequence[object]]) -> bool:
    """Make a batch part of the table, unless it is already; says whether it was written.

    Args:
        connection: In a transaction, which the caller commits.
        target: The table.
        batch: Which batch of which query.
        rows: Rows with the table's fields in order; instants as microseconds since 1970 (an `int`), so that
            neither Python's range of years nor a time zone comes in between. Read once, and not kept.

    Raises:
        StopError: Checkpoint and table do not belong together; nothing was written.
    """
    if not _is_next(connection, target, batch, lock=False):
        return False
    _copy(connection, target, rows)
    if not _is_next(connection, target, batch, lock=True):
        return False
    written = _upsert(connection, target)
    connection.execute(
        sql.SQL(
            "UPDATE {} SET batch_id = %s, sink = %s, rows = %s, written_at = clock_timestamp()"
            " WHERE target = %s"
        ).format(target.progress),
        (batch.number, batch.sink, written, target.name),
    )
    return True


def _is_next(connection: Connection, target: Target, batch: Batch, *, lock: bool) -> bool:
    """Say whether the batch is to be written, or is in the table already."""
    if lock:
        # The row of a table that was never written has to be there to be locked.
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (target, query, batch_id) VALUES (%s, %s, %s) ON CONFLICT (target) DO NOTHING"
            ).format(target.progress),
            (target.name, batch.query, _NOTHING_YET),
        )
    select = sql.SQL("SELECT query, batch_id FROM {} WHERE target = %s {}").format(
        target.progress, sql.SQL("FOR UPDATE" if lock else "")
    )
    row = connection.execute(select, (target.name,)).fetchone()
    query, last = row or (batch.query, _NOTHING_YET)
    if query == batch.query and batch.number in {last, last + 1}:
        return bool(batch.number > last)
    raise StopError(_apart(target, batch, query, last))


def _apart(target: Target, batch: Batch, query: str, last: int) -> str:
    """Say how checkpoint and table are apart, and what to do."""
    name = f"{target.schema}.{target.name}"
    begin = f"aggregate {batch.sink}: batch {batch.number} is not written to {name}: "
    anew = (
        f"stop the aggregate, delete its checkpoint, empty {name}, and delete the row of '{target.name}' from "
        f"{target.schema}.seqmark_progress; the topic is then read from its beginning"
    )
    if query != batch.query:
        return begin + (
            f"it holds {last + 1} batches of another query ({query}; this one is {batch.query}). The "
            f"checkpoint was deleted or is another aggregate's. Bring the old checkpoint back, or begin "
            f"anew: {anew}"
        )
    if batch.number < last:
        return begin + (
            f"it holds batch {last} already. Either another process runs this aggregate, and nothing is to be "
            f"done, or the checkpoint was set back. Bring the newest checkpoint back, or begin anew: {anew}"
        )
    return begin + (
        f"it lacks the batches from {last + 1} on. The database was set back, or table or progress were made "
        f"anew, and the checkpoint was not. Bring the database's newest state back, or begin anew: {anew}"
    )


def _copy(connection: Connection, target: Target, rows: Iterable[Sequence[object]]) -> None:
    columns = [
        sql.SQL("{} " + ("bigint" if field.type == INSTANT else field.type)).format(sql.Identifier(field.name))
        for field in target.fields
    ]
    connection.execute(
        sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(_STAGE, sql.SQL(", ").join(columns))
    )
    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(_STAGE)) as copy:
        for row in rows:
            copy.write_row(row)


def _upsert(connection: Connection, target: Target) -> int:
    names = [sql.Identifier(field.name) for field in target.fields]
    values = [
        # In whole seconds and the rest: one factor of microseconds would be a double, and lose some after 2255.
        sql.SQL(
            "timestamptz '1970-01-01 00:00:00+00' + {0} / 1000000 * interval '1 second'"
            " + {0} % 1000000 * interval '1 microsecond'"
        ).format(name)
        if field.type == INSTANT
        else name
        for name, field in zip(names, target.fields, strict=True)
    ]
    comma = sql.SQL(", ")
    changes = comma.join(
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(field.name))
        for field in target.fields
        if not field.in_key
    )
    done = connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {}").format(
            target.table, comma.join(names), comma.join(values), _STAGE, comma.join(target.key), changes
        )
    )
    return done.rowcount
