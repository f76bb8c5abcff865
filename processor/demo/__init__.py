"""The demo: a stream with known duplicates, made clean by a real worker, checked against the truth."""
