"""Judges quarantined records of a stopped pipeline again."""
