"""Judges: what passes, what is dropped and why, one per source partition; a mode is a judge."""
