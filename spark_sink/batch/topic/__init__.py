"""A topic as the input of a batch: which part of it a run reads, and how its records become rows."""
