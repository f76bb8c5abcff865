"""Tests of `seqmark apply`."""
