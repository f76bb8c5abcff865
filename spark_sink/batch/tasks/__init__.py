"""Runs in Spark's tasks: each takes one item of a step, and writes files of its own."""
