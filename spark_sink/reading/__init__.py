"""Reads what aggregates have written, for people: the report, the demo."""
