"""Writes aggregates into a PostgreSQL table, each batch exactly once.

`server` reaches the database and says what a failure asks for; `table` sees to it that the table is right;
`batch` writes a batch in one transaction; `output` joins them with Spark. The only importer of psycopg.
"""
