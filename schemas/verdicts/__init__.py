"""Verdict records: which offsets of a source topic are not in the clean stream. Drawn in docs/verdicts.md."""
