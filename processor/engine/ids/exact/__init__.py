"""The exact backend: an index of hashes in memory, confirmed by pages on disk."""
