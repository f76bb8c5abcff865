"""Reads the rows of input files as Arrow tables, and what they are judged by."""
