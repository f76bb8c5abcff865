"""Compares ways to make files clean against what is remembered: `make bench ARGS=rest`."""
