"""Creates the table, or refuses one that differs.

Created where it is missing, and otherwise only looked at: a table that differs is refused with every
difference, never altered. Beside it, in the same schema, lies `seqmark_progress`: a row per table, with the
query that writes it and the last batch that it holds.

The unique key is window and group. Its columns may be null: PostgreSQL 15 can treat nulls as equal, an older
one is given an index over expressions that hold no null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import errors, sql

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_sink.outputs.postgres.server import Connection

PROGRESS = "seqmark_progress"
NULLS_EQUAL = 150_000
"""From this server version on a unique key may treat nulls as equal."""
LONGEST_NAME_BYTES = 63
"""NAMEDATALEN - 1: PostgreSQL cuts what is longer, without a word."""
# Any number: who creates tables waits for who does so already (CREATE TABLE IF NOT EXISTS alone can collide).
_CREATING = 5_170_339_124
_KINDS = ("r", "p")
_KIND_NAMES = {
    "v": "a view",
    "m": "a materialised view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
}


class Field(NamedTuple):
    """A column of the table."""

    name: str
    type: str
    """As PostgreSQL's `format_type` writes it."""
    nullable: bool = True
    in_key: bool = False


class Target(NamedTuple):
    """A table that is there and right."""

    schema: str
    name: str
    fields: tuple[Field, ...]
    key: tuple[sql.Composable, ...]
    """What the unique key is over, for ON CONFLICT: columns, or expressions of them."""

    @property
    def table(self) -> sql.Identifier:
        """The table, with its schema."""
        return sql.Identifier(self.schema, self.name)

    @property
    def progress(self) -> sql.Identifier:
        """The table of progress beside it."""
        return sql.Identifier(self.schema, PROGRESS)


PROGRESS_FIELDS = (
    Field("target", "text", nullable=False, in_key=True),
    Field("query", "text", nullable=False),
    Field("batch_id", "bigint", nullable=False),
    Field("sink", "text"),
    Field("rows", "bigint"),
    Field("written_at", "timestamp with time zone"),
)


def split_name(text: str) -> tuple[str | None, str]:
    """Return schema (None: the first of the user's search path) and table of a configured name.

    Names are taken as they are written, capitals included, and quoted by us.

    Raises:
        ValueError: The message says what would be right.
    """
    schema, dot, name = text.rpartition(".")
    if not name or (dot and not schema) or "." in schema or "\0" in text or '"' in text:
        raise ValueError("must be TABLE or SCHEMA.TABLE, without quotes")
    if any(len(part.encode()) > LONGEST_NAME_BYTES for part in (schema, name)):
        raise ValueError(f"is too long: PostgreSQL's names have at most {LONGEST_NAME_BYTES} bytes")
    if name == PROGRESS:
        raise ValueError("is the name of Seqmark's own table")
    return schema or None, name


def ensure(connection: Connection, schema: str | None, name: str, fields: Sequence[Field]) -> Target:
    """Create table and progress table where they are missing, and check them where they are not.

    Args:
        connection: In a transaction, which the caller commits.
        schema: Schema of both; None: where the table is found, or else the first of the search path.
        name: Name of the table.
        fields: The table's columns, in order.

    Raises:
        StopError: A table is there and differs, and the message has every difference; or the database cannot
            hold every text.
    """
    _require_utf8(connection, name)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
    place = schema or _place(connection, name)
    target = Target(place, name, tuple(fields), ())
    progress = Target(place, PROGRESS, PROGRESS_FIELDS, (sql.Identifier("target"),))
    for each in (progress, target):
        oid = _found(connection, each)
        if oid is None:
            if each is target:
                _require_new(connection, target)
            _create(connection, each)
        else:
            _refuse(each, list(_differences(connection, each, oid)))
    return target._replace(key=_key(connection, target))


def _require_utf8(connection: Connection, name: str) -> None:
    """Refuse a database that would refuse a batch for a character in it, whenever one comes."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StopError(
            f"table {name}: the database's encoding is {encoding}, which cannot hold every text of an event. "
            f"Create a database WITH ENCODING 'UTF8' and name it in `url`; a table that is there moves with "
            f"its {PROGRESS} (pg_dump)"
        )


def _place(connection: Connection, name: str) -> str:
    found = connection.execute(
        "SELECT coalesce((SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = to_regclass(%s)), current_schema()::text)",
        (sql.Identifier(name).as_string(connection),),
    ).fetchone()
    if found is None or found[0] is None:
        raise StopError(f"table {name}: the search path names no schema that is there; write SCHEMA.{name}")
    return str(found[0])


def _found(connection: Connection, target: Target) -> int | None:
    """Return the table's oid, or None where it is missing."""
    row = connection.execute(
        "SELECT c.oid, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        (target.schema, target.name),
    ).fetchone()
    if row is None:
        return None
    oid, kind = row
    if kind not in _KINDS:
        found = _KIND_NAMES.get(kind, "something else")
        raise StopError(f"{target.schema}.{target.name} is {found}, not a table; name another")
    return int(oid)


def _require_new(connection: Connection, target: Target) -> None:
    """Refuse to create a table again that progress says was written: what is closed would never come again."""
    select = sql.SQL("SELECT batch_id FROM {} WHERE target = %s").format(target.progress)
    row = connection.execute(select, (target.name,)).fetchone()
    if row is not None:
        raise StopError(
            f"table {target.schema}.{target.name} is gone, but {PROGRESS} says that it has the batches up to "
            f"{row[0]}: windows that are closed would never come again. Bring it back, or begin anew: delete "
            f"checkpoint and aside folder, and the row of '{target.name}' from {target.schema}.{PROGRESS}"
        )


def _create(connection: Connection, target: Target) -> None:
    columns = [
        sql.SQL("{} {} {}").format(
            sql.Identifier(field.name),
            # A type's name cannot be quoted; it is one of ours, not of the config.
            sql.SQL(field.type),
            sql.SQL("" if field.nullable else "NOT NULL"),
        )
        for field in target.fields
    ]
    keys = [field for field in target.fields if field.in_key]
    names = sql.SQL(", ").join(sql.Identifier(field.name) for field in keys)
    nullable = any(field.nullable for field in keys)
    if not nullable:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(names))
    elif _version(connection) >= NULLS_EQUAL:
        columns.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(names))
    body = sql.SQL(", ").join(columns)
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(target.table, body))
    if nullable and _version(connection) < NULLS_EQUAL:
        over = sql.SQL(", ").join(_expressions(target.fields))
        connection.execute(sql.SQL("CREATE UNIQUE INDEX ON {} ({})").format(target.table, over))


def _differences(connection: Connection, target: Target, oid: int) -> Iterator[str]:
    there = {
        name: (kind, not_null, made, exact)
        for name, kind, not_null, made, exact in connection.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
            " a.attgenerated <> '' OR a.attidentity <> '', coalesce(l.collisdeterministic, true)"
            " FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation"
            " WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            (oid,),
        )
    }
    wanted = {field.name: field for field in target.fields}
    for field in target.fields:
        if field.name not in there:
            yield f"missing: {field.name} {field.type}"
            continue
        kind, not_null, made, exact = there[field.name]
        if kind not in _fitting(field.type):
            yield f"other type: {field.name} is {kind}, should be {field.type}"
        if not_null and field.nullable:
            yield f"not null: {field.name} may be null"
        if made:
            yield f"generated: {field.name} is written by PostgreSQL, should be by Seqmark"
        if field.in_key and not exact:
            yield f"collation: {field.name} treats different texts as equal"
    for name in there.keys() - wanted.keys():
        # An aggregate that the config no longer has would keep old values beside new ones.
        yield f"extra: {name} {there[name][0]}"
    asks = wanted.keys() <= there.keys() and not any(there[name][2] for name in wanted)
    if asks and not _key(connection, target):
        keys = ", ".join(field.name for field in target.fields if field.in_key)
        equal = " that treats nulls as equal" if any(f.nullable and f.in_key for f in target.fields) else ""
        yield f"no unique key{equal}: ({keys})"


def _refuse(target: Target, differences: list[str]) -> None:
    if not differences:
        return
    lines = "".join(f"\n  {each}" for each in sorted(differences))
    raise StopError(
        f"table {target.schema}.{target.name} is not what the config asks for:{lines}\n"
        f"Alter it, or name a table that is not there yet: it is created then"
    )


def _fitting(wanted: str) -> tuple[str, ...]:
    """Return the types that hold every value of the wanted one unchanged."""
    if wanted.startswith("numeric"):
        return (wanted, "numeric")
    return (wanted, "character varying") if wanted == "text" else (wanted,)


def _key(connection: Connection, target: Target) -> tuple[sql.Composable, ...]:
    """Return what the table's unique key is over, or nothing where it has none that does."""
    keys = [field for field in target.fields if field.in_key]
    columns = tuple(sql.Identifier(field.name) for field in keys)
    nulls = any(field.nullable for field in keys)
    if (not nulls or _takes_nulls_for_equal(connection, target)) and _is_key(connection, target, columns):
        return columns
    expressions = tuple(_expressions(target.fields))
    return expressions if nulls and _is_key(connection, target, expressions) else ()


def _is_key(connection: Connection, target: Target, key: Sequence[sql.Composable]) -> bool:
    """Ask the planner, which is who has to find the key in the end."""
    comma = sql.SQL(", ")
    last = sql.Identifier(target.fields[-1].name)
    # With everything that a batch will do, so that a missing right is found at start too.
    asked = sql.SQL(
        "EXPLAIN INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE false"
        " ON CONFLICT ({key}) DO UPDATE SET {last} = excluded.{last}"
    ).format(
        table=target.table,
        columns=comma.join(sql.Identifier(field.name) for field in target.fields),
        key=comma.join(key),
        last=last,
    )
    try:
        with connection.transaction():
            connection.execute(asked)
    except errors.InvalidColumnReference:
        return False
    return True


def _takes_nulls_for_equal(connection: Connection, target: Target) -> bool:
    if _version(connection) < NULLS_EQUAL:
        return False
    names = sorted(field.name for field in target.fields if field.in_key)
    found = connection.execute(
        "SELECT 1 FROM pg_index i"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::smallint[])"
        " JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND i.indnullsnotdistinct AND i.indisunique AND i.indisvalid"
        " AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts"
        ' GROUP BY i.indexrelid HAVING array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C") = %s',
        (target.schema, target.name, names),
    ).fetchone()
    return found is not None


def _expressions(fields: Sequence[Field]) -> Iterator[sql.Composable]:
    """Yield what a unique index is over where nulls are never equal: each column as two that hold no null."""
    for field in fields:
        if not field.in_key:
            continue
        name = sql.Identifier(field.name)
        if not field.nullable:
            yield name
            continue
        zero = sql.SQL("{}::" + field.type).format(sql.Literal(_ZEROES.get(field.type, "0")))
        yield sql.SQL("(coalesce({}, {}))").format(name, zero)
        yield sql.SQL("({} IS NULL)").format(name)


_ZEROES = {
    "text": "",
    "boolean": "false",
    "date": "2000-01-01",
    "timestamp with time zone": "2000-01-01 00:00:00+00",
    "timestamp without time zone": "2000-01-01 00:00:00",
}
"""Any value of the type would do: the second expression tells it from a null."""


def _version(connection: Connection) -> int:
    return connection.info.server_version
