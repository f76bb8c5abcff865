"""Readers of verdicts: the loop of docs/verdicts.md, and those that run beside a worker."""
