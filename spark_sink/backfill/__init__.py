"""Hashes the rows of a history for `seqmark backfill`; the kernels and readers are those of `seqmark batch`."""
