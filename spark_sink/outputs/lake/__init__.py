"""Writes aggregates into Delta and Iceberg tables, exactly once by the log of the table itself."""
