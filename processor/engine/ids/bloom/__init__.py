"""The Bloom backend: a filter per bucket of time, and sorted runs that confirm its hits."""
