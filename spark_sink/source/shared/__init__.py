"""Lets aggregates of one job that read the same topic read and parse it once."""
