"""What became of one record, and why: the answer of ``seqmark explain``."""
