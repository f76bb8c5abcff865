"""Tests of what ``seqmark simulate`` predicts."""
