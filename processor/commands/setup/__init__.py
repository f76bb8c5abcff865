"""Commands before the first record: what a config needs, and whether all of it is there."""
