"""Runs the whole way by Seqmark's own commands, on records of which it is known what must become of them."""
