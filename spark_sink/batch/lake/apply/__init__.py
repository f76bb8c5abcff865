"""Deletes from a Delta or Iceberg table what the verdicts of a pipeline say, by partition and offset."""
