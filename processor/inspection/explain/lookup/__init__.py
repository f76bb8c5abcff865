"""Finds single records in large topics: by searches of a few small fetches, not by scans."""
