"""Reads and writes tables of Delta and Iceberg: one module per format, for batches and for aggregates."""
