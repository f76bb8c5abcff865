"""Tests of what ``seqmark audit`` finds, and of the rules that ``seqmark init`` writes by it."""
