"""A clean table of Parquet files: what it is, what of it counts, and who may change it."""
