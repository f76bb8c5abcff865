"""Lets the log of a Delta or Iceberg table decide which rows of a clean table count."""
