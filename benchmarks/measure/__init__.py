"""Runs a system, watches it from outside, and compares what it wrote with the load."""
