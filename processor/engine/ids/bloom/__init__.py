"""The Bloom backend: a filter per bucket of time, and no ids."""
